"""SyncMessageCenter: the same client for blocking code. The asyncio core runs in one background thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from msgbroker.client.background import cancel_and_wait
from msgbroker.client.bodies import Body
from msgbroker.client.center import DEFAULT_ADDRESS, Function, MessageCenter
from msgbroker.client.config import CenterSettings, make_config
from msgbroker.client.handlers import SubscriberOptions
from msgbroker.client.message import OutgoingMessage, Receipt
from msgbroker.contract.errors import CenterClosedError, ClientBufferFullError, MessageCenterError

Result = TypeVar("Result")

_THREAD_NAME: Final = "msgcenter-client"
_FINISH_SECONDS: Final = 2.0


class SyncMessageCenter:
    """A connection to the message center for code without asyncio; may be used from many threads.

    Args and settings as for `MessageCenter`. Handlers that are not async run in threads and may call the center;
    async ones run on its loop and may not.

    Example:
        with SyncMessageCenter("localhost:7400") as center:
            receipt = center.publish("TP_TRADE", "EC_PAID", {"order": 1}, key="order-1")
    """

    def __init__(self, addresses: str | Sequence[str] = DEFAULT_ADDRESS, **settings: Unpack[CenterSettings]) -> None:
        self._core = self._make_core(addresses, settings)
        config = make_config(addresses, settings)
        self._unanswered_max = config.unanswered_messages_max
        self._room_timeout_seconds = config.publish_timeout_seconds
        # What the core bounds, it bounds on its loop; this bounds what is on the way there.
        self._room = threading.BoundedSemaphore(self._unanswered_max)
        self._lock = threading.Lock()
        self._thread: _LoopThread | None = None
        self._is_closed = False

    @property
    def instance_id(self) -> str:
        """The name of this instance in its subscriber groups."""
        return self._core.instance_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def publish(
        self,
        topic: str,
        event_code: str,
        body: Body = b"",
        *,
        headers: Mapping[str, str] | None = None,
        key: str = "",
        ordering_key: str = "",
        timeout_seconds: float | None = None,
    ) -> Receipt:
        """Publish a message and wait until it is stored. Args, Returns, Raises as for `MessageCenter.publish`.

        Example:
            receipt = center.publish("TP_TRADE", "EC_PAID", b"...", key="order-1")
        """
        return self._call(
            self._core.publish(
                topic,
                event_code,
                body,
                headers=headers,
                key=key,
                ordering_key=ordering_key,
                timeout_seconds=timeout_seconds,
            )
        )

    def publish_soon(
        self,
        topic: str,
        event_code: str,
        body: Body = b"",
        *,
        headers: Mapping[str, str] | None = None,
        key: str = "",
        ordering_key: str = "",
    ) -> Future[Receipt]:
        """Publish a message without waiting for its answer; waits for room if too many are unanswered.

        Returns:
            A `concurrent.futures.Future` of the receipt; whatever is wrong with the message is raised by it.

        Raises:
            ClientBufferFullError: there was no room within the publish timeout.

        Example:
            futures = [center.publish_soon("TP_TRADE", "EC_PAID", row) for row in rows]
            receipts = [future.result() for future in futures]
        """
        loop = self._running_loop()
        if not self._room.acquire(timeout=self._room_timeout_seconds):
            raise ClientBufferFullError(self._unanswered_max, self._unanswered_max)
        publishing = self._core.publish(topic, event_code, body, headers=headers, key=key, ordering_key=ordering_key)
        future = asyncio.run_coroutine_threadsafe(publishing, loop)
        future.add_done_callback(lambda _: self._room.release())
        return future

    def publish_one_way(
        self,
        topic: str,
        event_code: str,
        body: Body = b"",
        *,
        headers: Mapping[str, str] | None = None,
        key: str = "",
        ordering_key: str = "",
    ) -> bool:
        """Publish a message whose fate nobody asks about. Returns and Raises as for `MessageCenter.publish_one_way`.

        Example:
            center.publish_one_way("TP_METRICS", "EC_SAMPLE", {"cpu": 0.7})
        """

        async def publish() -> bool:
            return self._core.publish_one_way(
                topic, event_code, body, headers=headers, key=key, ordering_key=ordering_key
            )

        return self._call(publish())

    def publish_many(self, messages: Iterable[OutgoingMessage]) -> list[Receipt | MessageCenterError]:
        """Publish messages in order and wait for all answers: for each, its receipt or its error.

        Example:
            answers = center.publish_many(OutgoingMessage("TP_TRADE", "EC_PAID", row) for row in rows)
        """
        return self._call(self._core.publish_many(messages))

    def flush(self) -> None:
        """Wait until everything published so far has been answered (or has failed)."""
        self._call(self._core.flush())

    def subscriber(self, **options: Unpack[SubscriberOptions]) -> Callable[[Function], Function]:
        """Make the decorated function a handler. Args and Raises as for `MessageCenter.subscriber`.

        Example:
            @center.subscriber(group="SG_POINTS", topic="TP_TRADE", event_code="EC_PAID")
            def add_points(order: dict) -> None:
                ...
        """
        return self._core.subscriber(**options)

    def start(self) -> None:
        """Connect the subscribers and return once each is attached; handlers run in the background from here.

        Raises:
            GroupNotFoundError: a group is not registered.
        """
        self._call(self._core.start())

    def run(self) -> None:
        """Run the subscribers until the center is closed (from another thread) or Ctrl-C.

        Raises:
            MessageCenterError: a group cannot be subscribed (any more).
        """
        self._call(self._core.run())

    def register(
        self,
        topic: str,
        event_code: str,
        *,
        group: str = "",
        expression: str = "",
        from_beginning: bool = False,
        timeout_seconds: float = 15.0,
    ) -> list[str]:
        """Register what does not exist yet. Args, Returns, Raises as for `MessageCenter.register`."""
        return self._call(
            self._core.register(
                topic,
                event_code,
                group=group,
                expression=expression,
                from_beginning=from_beginning,
                timeout_seconds=timeout_seconds,
            )
        )

    def close(self) -> None:
        """Finish as `MessageCenter.close` does, and end the background thread."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            thread = self._thread
        if thread is not None:
            thread.run_until_done(self._core.close())
            thread.stop()

    def _make_core(self, addresses: str | Sequence[str], settings: CenterSettings) -> MessageCenter:
        return MessageCenter(addresses, **settings)

    def _call(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        try:
            loop = self._running_loop()
        except BaseException:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(_contained(coroutine), loop)
        try:
            outcome = future.result()
            if isinstance(outcome, _Raised):
                raise outcome.end
            return outcome
        finally:
            # Ctrl-C in this thread must not leave the call running in the other.
            future.cancel()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                raise CenterClosedError
            if self._thread is None:
                self._thread = _LoopThread()
            thread = self._thread
        if thread.is_current():
            raise RuntimeError("an async handler cannot call SyncMessageCenter: it would wait for itself")
        return thread.loop


@dataclass(frozen=True, slots=True)
class _Raised:
    end: BaseException


async def _contained(coroutine: Coroutine[Any, Any, Result]) -> Result | _Raised:
    """Return what *coroutine* returns, or the SystemExit that it raises: that would end the loop, for all threads."""
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as end:
        return _Raised(end)


class _LoopThread:
    """A thread that runs an event loop until it is stopped."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        # A daemon: a program that forgets to close still ends.
        self._thread = threading.Thread(target=self.loop.run_forever, name=_THREAD_NAME, daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return threading.current_thread() is self._thread

    def run_until_done(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run *coroutine* on the loop and wait for it."""
        asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def stop(self) -> None:
        """End the loop and the thread, once the calls of other threads have their answers."""
        self.run_until_done(_finish_tasks())
        self.run_until_done(self.loop.shutdown_asyncgens())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _finish_tasks() -> None:
    """Let every other task of the loop end: somebody waits for each `run` and `publish`."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, pending = await asyncio.wait(others, timeout=_FINISH_SECONDS)
        await cancel_and_wait(*pending)
