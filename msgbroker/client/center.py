"""MessageCenter: publish and subscribe from asyncio."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from msgbroker.client.connect import forks
from msgbroker.client.connect.background import LoopEndedError
from msgbroker.client.connect.directory import register_through_any, until_answered
from msgbroker.client.connect.outages import OutageLog
from msgbroker.client.handle.dispatch import Dispatcher
from msgbroker.client.handle.handlers import Registration, SubscriberOptions, make_handler, make_options
from msgbroker.client.last_words import log_closing, log_not_closed, log_waiting
from msgbroker.client.publish.publishing import Publisher
from msgbroker.client.publish.publishing_center import PublishingCenter
from msgbroker.client.publish.stream import PublisherStream
from msgbroker.client.stop_signals import stopped_by_signals
from msgbroker.client.subscribe.stream import SubscriberStream
from msgbroker.client.subscribe.subscribers import GroupStream, Subscribers
from msgbroker.client.values.config import (
    AddressesGiven,
    CenterSettings,
    ClientConfig,
    Unsaid,
    check_call_timeout,
    default_instance_id,
    make_config,
)
from msgbroker.contract import limits
from msgbroker.contract.errors import CenterClosedError, MessageCenterError

_LAST_ANSWERS_SECONDS: Final = 1.0
"""How long closing waits at least for answers to what was published, where it may wait at all."""

_QUIET_SECONDS: Final = 1.0
"""Closing that takes longer says what it waits for."""

Function = TypeVar("Function", bound=Callable[..., Any])


class MessageCenter(PublishingCenter):
    """A connection to the message center: publishes, and runs the handlers of subscriber groups.

    Nothing is opened before it is needed: the first publish connects, and `start` or `run` connects the subscribers. It
    reconnects by itself, to the addresses given and to the brokers these tell of.

    Args:
        addresses: `host:port`, several with commas or as a list; tried in turn. Default: those in the environment's
            `MSGCENTER_BROKER`, else `127.0.0.1:7400`.
        namespace: where topics and groups live.
        publisher_group: the name of the publishing application; must be registered when given.
        instance_id: names this process in its subscriber groups, stable across reconnects. Default: made up.
        unanswered_messages_max: how many published messages may wait for their answer.
        unanswered_bytes_max: how many bytes of them.
        on_unavailable: `"wait"` keeps and resends what is unanswered while no broker or no database is there (until
            the publish timeout); `"raise"` fails it with an UnavailableError.
        publish_timeout_seconds: how long one publish may wait for its answer; None: for ever.
        answer_timeout_seconds: a broker that answers nothing for so long is left for the next one.
        connect_timeout_seconds: how long one connection attempt may take.
        backoff_initial_seconds: the first wait before connecting again; it doubles each time.
        backoff_max_seconds: the longest such wait.
        drain_timeout_seconds: how long `close` waits for running handlers and unanswered messages.
        credentials: `grpc.ChannelCredentials` for TLS.

    Raises:
        InvalidSettingError: a setting is out of bounds, or an address is not host:port.
        InvalidNameError: a name is not of the alphabet.

    Example:
        async with MessageCenter("localhost:7400") as center:
            receipt = await center.publish("TP_TRADE", "EC_PAID", {"order": 1}, key="order-1")
    """

    def __init__(self, addresses: AddressesGiven = Unsaid.ADDRESSES, **settings: Unpack[CenterSettings]) -> None:
        super().__init__(make_config(addresses, settings))
        self._is_instance_named = bool(settings.get("instance_id"))
        self._subscribers = Subscribers(self._open_stream, self._register_for_handler)
        self._process_id = b""
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None
        forks.watch_center(self)

    @property
    def left_count(self) -> int | None:
        """How many messages are unanswered, were it to end now; None where nothing is under way: for its end only."""
        count = self.unanswered_count
        return count if count or self._subscribers.is_started else None

    def begin_anew(self) -> None:
        """Go on in a forked process as if this had never been used, with the same handlers; for the client itself."""
        forks.never_free(self._publisher, self._subscribers, self._closing)
        self._publisher = self._closing = None
        self._subscribers = self._subscribers.anew()
        self._process_id = b""
        self._is_publishing_over = self._is_closed
        if not self._is_instance_named:
            self._config = dataclasses.replace(self._config, instance_id=default_instance_id(self._config.host))

    @property
    def config(self) -> ClientConfig:
        """How it behaves: for SyncMessageCenter, not for applications."""
        return self._config

    @property
    def instance_id(self) -> str:
        """The name of this instance in its subscriber groups."""
        return self._config.instance_id

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- subscribing --------------------------------------------------------------------------------------------

    def subscriber(self, **options: Unpack[SubscriberOptions]) -> Callable[[Function], Function]:
        """Make the decorated function the handler of a message type in a subscriber group.

        The function, async or not, gets what its first parameter is annotated with: Message (or nothing), or the
        body as bytes, str, dict or list (read from JSON), a pydantic model, or any type that pydantic reads from
        JSON, where it is installed; a second parameter annotated Message gets the message beside the body.
        Returning acknowledges; raising makes another attempt later; `Reject`, `RetryAfter` and `Release` say
        otherwise. A body that cannot be read is rejected. Functions that are not async run in threads, at most 64
        for each group.

        Args:
            group: the subscriber group; its instances share the messages.
            topic: the topic's name.
            event_code: the event code's name; `*` (the default): all that no other handler of the group here names.
            concurrency: how many calls may run at once; default 64.
            credit: how many messages this instance holds at most; default: follows the speed of the handlers.
            timeout_seconds: a call that takes longer counts as failed.
            body: the type of the body, where the annotation cannot be read (a class local to a function).
            register: register topic, group and subscription first (for development; the broker must allow it).
            expression: with *register*: a HEADER subscription with this CEL expression. A message without a header
                that it reads does not match, with `!=` and `!` as well; ask first: `"region" in headers && ...`.
            from_beginning: with *register*: deliver what is stored already, too; a group that has read the topic
                already is refused (BEGINNING_PASSED).

        Raises:
            InvalidSettingError: an option is out of bounds, or the function cannot be a handler.
            InvalidNameError: a name is not of the alphabet.

        Example:
            @center.subscriber(group="SG_POINTS", topic="TP_TRADE", event_code="EC_PAID")
            async def add_points(order: dict, message: Message) -> None:
                ...
        """
        checked = make_options(options)

        def attach(function: Function) -> Function:
            self._check_open()
            self._subscribers.attach(make_handler(function, checked))
            return function

        return attach

    async def start(self) -> None:
        """Connect the subscribers, and return once each group has been attached by a broker.

        Where one is refused the others are served all the same, until the center is closed. The next call tries again
        those that are not served.

        Raises:
            GroupNotFoundError: a group is not registered.
            RegistrationDisabledError: a subscriber has `register=True` and the broker does not allow it.

        Example:
            await center.start()   # handlers run in the background from here
        """
        self._check_open()
        await self._subscribers.start()

    async def run(self, *, handle_signals: bool | None = None) -> dict[str, MessageCenterError]:
        """Run the subscribers until SIGINT (Ctrl-C) or SIGTERM, or until the center is closed or this call cancelled.

        The first of these signals closes the center in good order, and this call returns; a second one ends the process
        at once. What handled them before does so again afterwards.

        A group that was attached and is refused for good later (it was deleted, for example) ends alone, which is
        logged at once; the others go on.

        Args:
            handle_signals: None: in the main thread, and not those that the application has a handler of its own for,
                of signal.signal or of its event loop. True: both signals in any case. False: neither.

        Returns:
            The groups that have ended so, and why; empty as a rule.

        Raises:
            MessageCenterError: a group cannot be subscribed, as for `start`; or none is left to serve: what the last
                one ended with, with a note of each of the others.
            InvalidSettingError: *handle_signals* is True, and this is not the main thread.

        Example:
            await center.run()
        """
        self._check_open()
        loop = asyncio.get_running_loop()

        def stop(number: signal.Signals) -> None:
            with suppress(RuntimeError):
                # Else the loop is closed, and so is the center.
                loop.call_soon_threadsafe(self.close_by_signal, number)

        with stopped_by_signals(stop, handle_signals):
            return await self._subscribers.run()

    @property
    def ended_groups(self) -> dict[str, MessageCenterError]:
        """The groups that are not served any more, and why; `start` tries them again."""
        return self._subscribers.ended

    async def register(
        self,
        topic: str,
        event_code: str,
        *,
        group: str = "",
        expression: str = "",
        from_beginning: bool = False,
        timeout_seconds: float = 15.0,
    ) -> list[str]:
        """Register a topic, an event code and, with *group*, a subscription, as far as they do not exist.

        For development and demonstrations; the broker must allow it. Returns once the subscription is active.

        A message without a header that *expression* reads does not match: `headers.region != "hz"` takes none without a
        region. Ask first: `"region" in headers && ...`, or `!("region" in headers) || ...` to take such messages. Where
        it reads one unasked in a way that can surprise, a warning is logged (`msgbroker.client`).

        Returns:
            What was made; empty if all existed.

        Raises:
            RegistrationDisabledError: the broker does not let clients register.
            InvalidExpressionError: *expression* does not compile.
            ExpressionTooCostlyError: *expression* would take too long to evaluate for every message.
            SubscriptionDiffersError: the group has the subscription with another expression.

        Example:
            await center.register("TP_TRADE", "EC_PAID", group="SG_POINTS")
        """
        check_call_timeout(timeout_seconds)
        self._check_open()
        forks.check()
        return await register_through_any(
            self._config,
            topic=topic,
            event_code=event_code,
            group=group,
            expression=expression,
            from_beginning=from_beginning,
            timeout_seconds=timeout_seconds,
        )

    # --- closing ------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop: finish the running handlers, send their verdicts, wait for unanswered messages; bounded in time.

        What is not finished in `drain_timeout_seconds` is given back (handlers) or fails (publishes); telling the
        broker takes a few seconds more at most. Every call waits until the center is closed, and who gives up waiting
        leaves it to close. Only a handler that closes its center does not wait: it is one of those that are waited for.
        """
        closing = self._begin_to_close()
        if not self._subscribers.is_handling(asyncio.current_task()):
            await asyncio.shield(closing)

    def close_by_signal(self, number: signal.Signals) -> None:
        """Begin to close, and say so: for `run`, not for applications."""
        log_closing(number.name, self._config.drain_timeout_seconds)
        self._begin_to_close()

    def _begin_to_close(self) -> asyncio.Task[None]:
        self._is_closed = True
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(), name="close")
        return self._closing

    async def _close(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._config.drain_timeout_seconds
        saying = loop.call_later(_QUIET_SECONDS, self._say_what_is_waited_for, until)
        try:
            try:
                # Handlers publish: the publisher stays until they are done, and opens for them if it must.
                await self._subscribers.close(until)
            finally:
                self._is_publishing_over = True
                # What the last handler published has a moment, even if that one has used all the time there was.
                moment_seconds = min(self._config.drain_timeout_seconds, _LAST_ANSWERS_SECONDS)
                await self._close_publisher(max(until, loop.time() + moment_seconds))
        finally:
            saying.cancel()
            self._subscribers.announce_closed()

    def _say_what_is_waited_for(self, until: float) -> None:
        seconds_left = max(0.0, until - asyncio.get_running_loop().time())
        log_waiting(seconds_left, self._subscribers.running_counts, self.unanswered_count)

    def _check_open(self) -> None:
        if self._is_closed:
            raise CenterClosedError

    # --- what the in-memory center does otherwise ---------------------------------------------------------------

    def _open_publisher(self) -> Publisher:
        forks.check()
        return PublisherStream(self._config, OutageLog("publisher"), self._take_failure)

    def _open_stream(self, group: str, dispatcher: Dispatcher) -> GroupStream:
        forks.check()
        # Made when it is needed: two processes must not have the same one.
        self._process_id = self._process_id or secrets.token_bytes(limits.PROCESS_ID_BYTES)
        return SubscriberStream(
            self._config, group, dispatcher, OutageLog("subscriber", group=group), self._process_id, self._take_failure
        )

    def _take_failure(self, what: str, error: BaseException) -> bool:
        """Take note that a part of us has ended; where the whole loop has, say that nobody closed us.

        Returns whether somebody waits in `run`, who gets it raised.
        """
        if not isinstance(error, LoopEndedError):
            return self._subscribers.fail(what, error)
        if not self._is_closed:
            self._is_closed = self._is_publishing_over = True
            log_not_closed("MessageCenter", "use `async with`, or await close()", self.unanswered_count)
            # They work in no other loop; and what they ended with has gRPC's objects at hand, which hold up forks.
            self._publisher = None
            self._subscribers = self._subscribers.anew()
        return False

    async def _register_for_handler(self, wanted: Registration) -> None:
        def register() -> Coroutine[Any, Any, list[str]]:
            return self.register(
                wanted.topic,
                wanted.event_code,
                group=wanted.group,
                expression=wanted.expression,
                from_beginning=wanted.from_beginning,
            )

        await until_answered(register, self._config, OutageLog("registration", group=wanted.group))
