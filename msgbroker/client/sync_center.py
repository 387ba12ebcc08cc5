"""SyncMessageCenter: the same client for blocking code. The asyncio core runs in one background thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from msgbroker.client.center import Function, MessageCenter
from msgbroker.client.connect import forks
from msgbroker.client.handle.handlers import SubscriberOptions
from msgbroker.client.last_words import OpenCenters
from msgbroker.client.loop_thread import LoopThread
from msgbroker.client.publish.handover import Handover, ManyReceipts, SoonReceipt
from msgbroker.client.publish.publishing import ReceiptFuture, encode_outgoing, note_answers, publish_within
from msgbroker.client.publish.wire import MessageEncoder
from msgbroker.client.stop_signals import stopped_by_signals
from msgbroker.client.values.bodies import Body
from msgbroker.client.values.config import AddressesGiven, CenterSettings, Unsaid
from msgbroker.client.values.message import OutgoingMessage, Receipt
from msgbroker.contract.errors import CenterClosedError, MessageCenterError

_CLOSING_THREAD_NAME: Final = "msgcenter-close"
_OPEN_CENTERS: Final = OpenCenters()

Result = TypeVar("Result")


class SyncMessageCenter:
    """A connection to the message center for code without asyncio; may be used from many threads.

    Args and settings as for `MessageCenter`. Handlers that are not async run in threads and may call the center;
    async ones run on its loop and may not.

    Example:
        with SyncMessageCenter("localhost:7400") as center:
            receipt = center.publish("TP_TRADE", "EC_PAID", {"order": 1}, key="order-1")
    """

    def __init__(self, addresses: AddressesGiven = Unsaid.ADDRESSES, **settings: Unpack[CenterSettings]) -> None:
        self._core = self._make_core(addresses, settings)
        self._config = self._core.config
        # In the caller's thread: what is published is what it was when it was given.
        self._encode = MessageEncoder().encode
        self._is_closed = False
        self._begin()
        forks.watch_center(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._handover: Handover | None = None
        self._has_closed = threading.Event()

    def begin_anew(self) -> None:
        """Go on in a forked process as if this had never been used, with the same handlers; for the client itself."""
        if self._handover is not None:
            self._handover.abandon()
        forks.never_free(self._lock, self._thread, self._handover, self._has_closed)
        self._begin()
        if self._is_closed:
            # Or by a thread that is not here: nobody else would say so.
            self._has_closed.set()

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
        encoded = self._encode(topic, event_code, body, headers, key, ordering_key)

        async def publish() -> Receipt:
            buffer = self._core.open_buffer()
            if timeout_seconds is None:
                return await buffer.offer_in_turn(encoded)
            return await publish_within(buffer, encoded, timeout_seconds, self._config.addresses_text)

        return self._call(publish())

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
        handover = self._running_handover()
        try:
            encoded = self._encode(topic, event_code, body, headers, key, ordering_key)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the message
            refused: Future[Receipt] = Future()
            refused.set_exception(error)
            return refused
        receipt = SoonReceipt()
        handover.put(encoded, receipt, self._config.publish_timeout_seconds)
        return receipt

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
        encoded = self._encode(topic, event_code, body, headers, key, ordering_key)

        async def publish() -> bool:
            return self._core.open_buffer().offer_one_way(encoded)

        return self._call(publish())

    def publish_many(self, messages: Iterable[OutgoingMessage]) -> list[Receipt | MessageCenterError]:
        """Publish messages in order and wait for all answers: for each, its receipt or its error.

        As `MessageCenter.publish_many` does it.

        Args:
            messages: any number; they are taken as there is room, in the caller's thread.

        Example:
            answers = center.publish_many(OutgoingMessage("TP_TRADE", "EC_PAID", row) for row in rows)
        """
        handover = self._running_handover()
        receipts = ManyReceipts()
        refused: list[MessageCenterError | None] = []
        try:
            for index, message in enumerate(messages):
                try:
                    handover.put(encode_outgoing(self._encode, message, index), receipts)
                except MessageCenterError as error:
                    refused.append(error)
                else:
                    refused.append(None)
        except Exception as failure:
            note_answers(failure, receipts.wait_beside(refused))
            raise
        return receipts.wait_beside(refused)

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

    def run(self, *, handle_signals: bool | None = None) -> dict[str, MessageCenterError]:
        """Run the subscribers until SIGINT (Ctrl-C) or SIGTERM, or until the center is closed (from another thread).

        Args, Returns and Raises as for `MessageCenter.run`.

        Example:
            center.run()
        """
        handover, thread = self._running_handover(), self._running_thread()
        has_come = False

        def close(number: signal.Signals) -> None:
            handover.fetch()
            self._core.close_by_signal(number)

        def stop(number: signal.Signals) -> None:
            # In the middle of anything: closing from here might wait for what was interrupted.
            nonlocal has_come
            has_come = True
            with suppress(RuntimeError):
                # Else the loop is closed, and so is the center.
                thread.loop.call_soon_threadsafe(close, number)

        with stopped_by_signals(stop, handle_signals):
            try:
                ended = self._call(self._core.run(handle_signals=False))
            except CenterClosedError:
                if not has_come:
                    raise
                # It was closed before it had begun.
                ended = self.ended_groups
        if has_come:
            self.close()
        return ended

    @property
    def ended_groups(self) -> dict[str, MessageCenterError]:
        """The groups that are not served any more, and why; `start` tries them again."""
        return self._core.ended_groups

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
        """Finish as `MessageCenter.close` does, and end the background thread.

        Every call waits until the center is closed; only a handler's own does not.

        Raises:
            RuntimeError: it was called in that thread, by an async handler or a callback of a future.
        """
        with self._lock:
            thread = self._thread
            if thread is not None and thread.is_current():
                raise RuntimeError(
                    "an async handler or a callback cannot close SyncMessageCenter: it would wait for itself; "
                    "close it in another thread: threading.Thread(target=center.close).start()"
                )
            is_first, self._is_closed = not self._is_closed, True
        if thread is not None and thread.is_of_handler():
            # It is one of those that are waited for.
            if is_first:
                threading.Thread(target=self._close, name=_CLOSING_THREAD_NAME).start()
        elif is_first:
            self._close()
        else:
            self._has_closed.wait()

    def _close(self) -> None:
        _OPEN_CENTERS.discard(self)
        thread, handover = self._thread, self._handover
        try:
            if thread is not None and handover is not None:
                try:
                    # Handlers publish: all calls go on, and the core decides, until they are done.
                    thread.call(self._core.close(), behind=handover.fetch)
                finally:
                    handover.close()
                    thread.stop()
        finally:
            self._has_closed.set()

    def _make_core(self, addresses: AddressesGiven, settings: CenterSettings) -> MessageCenter:
        return MessageCenter(addresses, **settings)

    def _call(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        try:
            handover = self._running_handover()
        except BaseException:
            coroutine.close()
            raise
        assert self._thread is not None  # made with the handover
        return self._thread.call(coroutine, behind=handover.fetch)

    def _running_handover(self) -> Handover:
        self._running_thread()
        assert self._handover is not None  # made with the thread
        return self._handover

    def _running_thread(self) -> LoopThread:
        with self._lock:
            if self._thread is None:
                if self._is_closed:
                    raise CenterClosedError
                self._thread = LoopThread()
                self._handover = Handover(self._thread.loop, self._offer, self._config)
                _OPEN_CENTERS.add(self, lambda: self._core.left_count)
            thread = self._thread
        if thread.is_current():
            raise RuntimeError("an async handler cannot call SyncMessageCenter: it would wait for itself")
        return thread

    def _offer(self, encoded: bytes) -> ReceiptFuture:
        return self._core.open_buffer().offer_in_turn(encoded)
