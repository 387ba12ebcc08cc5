"""InMemoryCenter: the public API of MessageCenter on lists and a clock that only a test moves."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Unpack

from msgbroker.client.center import Function, MessageCenter
from msgbroker.client.connect import forks
from msgbroker.client.connect.directory import log_warnings
from msgbroker.client.handle.dispatch import Dispatcher
from msgbroker.client.handle.handlers import HandlerOptions, Registration, SubscriberOptions, make_options
from msgbroker.client.publish.publishing import Publisher
from msgbroker.client.publish.wire import message_of
from msgbroker.client.subscribe.missing_subscriptions import MissingSubscriptions
from msgbroker.client.subscribe.subscribers import GroupStream
from msgbroker.client.testing.delivery import DeadLetter, MemoryStream
from msgbroker.client.testing.log import MemoryLog
from msgbroker.client.testing.registry import Registry, compile_header, warnings_of_header
from msgbroker.client.values.config import CenterSettings, check_call_timeout
from msgbroker.client.values.message import Message, Receipt
from msgbroker.contract.errors import GroupNotFoundError, MessageCenterError
from msgbroker.contract.names import ANY_EVENT_CODE, check_event_code, check_group, check_topic
from msgbroker.engine.handled import list_missing
from msgbroker.v1 import subscriber_pb2

SETTLE_SECONDS_MAX: Final = 7 * 86_400.0
_ROUNDS_MAX: Final = 100_000
_PATIENCE_SECONDS: Final = 0.5
"""Of real time, that `advance` gives running handlers at each step; one that waits for something else is left alone."""


class InMemoryCenter(MessageCenter):
    """A message center for unit tests: publishes into memory, runs the handlers, and never waits for real.

    As long as a test registers nothing, everything used is registered by itself: topics by publishing, groups and
    subscriptions by `subscriber`; a typo goes unnoticed then. From the first `register_topic`, `register_group`,
    `register_publisher_group`, `register_subscription` or `register` on, publishing and subscribing to names that are
    not registered raise; only subscriptions are still made by `subscriber`, for groups without a registered one to the
    topic. With `strict=True` nothing is made up at all, as with a broker.

    Time stands still between calls of `advance` and `settle_all`: a retry is made when the test says so. A message that
    is released at once for the hundredth time comes again after a minute, so that time can pass at all.

    Args:
        strict: refuse what is not registered.
        settings: as for MessageCenter; what is about connections has no effect.

    Example:
        async with InMemoryCenter() as center:
            attach_handlers(center)
            await center.start()
            await center.publish("TP_TRADE", "EC_PAID", {"order": 1})
            await center.settle_all()
            assert center.dead_letters == []
    """

    def __init__(self, *, strict: bool = False, **settings: Unpack[CenterSettings]) -> None:
        super().__init__("in-memory:1", **settings)
        self._now = time.time()
        self._registry = Registry(self._config.namespace, is_strict=strict)
        self._log = MemoryLog(self._registry, lambda: self._now, self._config.namespace)
        self._subscribed_by_test: set[tuple[str, str]] = set()
        self._memory_streams: dict[str, MemoryStream] = {}
        self._is_dirty = False

    def begin_anew(self) -> None:
        """Go on in a forked process with what is stored, and with handlers that nobody has started."""
        super().begin_anew()
        forks.never_free(self._memory_streams)
        self._memory_streams = {}
        self._is_dirty = False

    # --- what a test looks at -----------------------------------------------------------------------------------

    @property
    def published(self) -> list[Message]:
        """Everything stored so far, in order."""
        return [Message(stored.delivery(1), stored.queue_id) for stored in self._log.messages]

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """What was dead-lettered so far, group by group."""
        return [letter for stream in self._memory_streams.values() for letter in stream.dead_letters]

    # --- time ---------------------------------------------------------------------------------------------------

    async def settle_all(self, within_seconds: float = SETTLE_SECONDS_MAX) -> None:
        """Run the handlers, moving time from retry to retry, until every message is settled in every started group.

        Args:
            within_seconds: how much time of the center may pass.

        Raises:
            TimeoutError: some messages are released again and again (no handler for their type, perhaps).

        Example:
            await center.settle_all()
        """
        deadline = self._now + within_seconds
        for _ in range(_ROUNDS_MAX):
            await self._rest()
            wakeup = self._next_wakeup()
            if wakeup == math.inf:
                return
            if wakeup > deadline:
                break
            self._move_to(wakeup)
        raise TimeoutError(f"messages are not settled after {within_seconds:g} s of the center's time")

    async def advance(self, seconds: float) -> None:
        """Let time pass: what falls due is delivered, what is not answered in time is taken back.

        Example:
            await center.advance(10)   # the first retry
        """
        target = self._now + seconds
        await self._rest(_PATIENCE_SECONDS)
        for _ in range(_ROUNDS_MAX):
            wakeup = self._next_wakeup()
            if wakeup > target:
                break
            self._move_to(wakeup)
            await self._rest(_PATIENCE_SECONDS)
        self._move_to(target)

    # --- registration -------------------------------------------------------------------------------------------

    def register_topic(
        self,
        name: str,
        *event_codes: str,
        queue_count: int | None = None,
        body_bytes_max: int | None = None,
        is_open: bool | None = None,
        is_closed: bool | None = None,
        stress_refused: bool | None = None,
    ) -> None:
        """Register a topic of one queue and event codes, or change what is given of its settings.

        Example:
            center.register_topic("TP_TRADE", "EC_PAID", "EC_SHIPPED")
        """
        self._registry.is_explicit = True
        self._registry.put_topic(
            name,
            event_codes,
            queue_count=queue_count,
            body_bytes_max=body_bytes_max,
            is_open=is_open,
            is_closed=is_closed,
            stress_refused=stress_refused,
        )

    def register_group(
        self,
        name: str,
        *,
        ack_timeout_seconds: float | None = None,
        handle_seconds_max: float | None = None,
        retry_schedule_seconds: Sequence[float] | None = None,
        attempts_max: int | None = None,
        unsettled_max: int | None = None,
    ) -> None:
        """Register a subscriber group, before the center starts, with the settings an operator would give it.

        What is not given has its default, or stays as it is where the group is registered already.

        Example:
            center.register_group("SG_POINTS", retry_schedule_seconds=(1, 5), attempts_max=3)
        """
        self._registry.is_explicit = True
        self._registry.put_group(
            name,
            ack_timeout_seconds=ack_timeout_seconds,
            handle_seconds_max=handle_seconds_max,
            retry_schedule_seconds=retry_schedule_seconds,
            attempts_max=attempts_max,
            unsettled_max=unsettled_max,
        )

    def delete_group(self, name: str) -> None:
        """Delete a subscriber group, as an operator may while it is served: its handlers here get nothing more.

        Raises:
            GroupNotFoundError: it is not registered.

        Example:
            center.delete_group("SG_POINTS")
        """
        self._registry.get_group(name)
        stream = self._memory_streams.get(name)
        if stream is not None:
            stream.end(GroupNotFoundError(self._config.namespace, name))
        self._registry.remove_group(name)
        self._subscribed_by_test -= {(group, topic) for group, topic in self._subscribed_by_test if group == name}

    def register_publisher_group(self, name: str) -> None:
        """Register a publisher group. A center that was told of one, or is strict, refuses messages of any other.

        Example:
            center.register_publisher_group("PG_SHOP")
        """
        self._registry.is_explicit = True
        self._registry.put_publisher_group(name)

    def register_subscription(
        self,
        group: str,
        topic: str,
        event_code: str = ANY_EVENT_CODE,
        *,
        expression: str = "",
        from_beginning: bool = False,
    ) -> bool:
        """Register a subscription from now on (or from the beginning); return False if it exists.

        Raises:
            GroupNotFoundError, TopicNotFoundError: one of them is not registered.
            BeginningPassedError: with *from_beginning*, and the group has read the topic already.
            InvalidExpressionError: *expression* does not compile.
            ExpressionTooCostlyError: *expression* would take too long to evaluate for every message.

        Example:
            center.register_subscription("SG_POINTS", "TP_TRADE", expression='headers.region == "hz"')
        """
        self._registry.is_explicit = True
        is_new = self._subscribe(group, topic, event_code, expression, from_beginning=from_beginning)
        self._subscribed_by_test.add((group, topic))
        return is_new

    def _subscribe(self, group: str, topic: str, event_code: str, expression: str, *, from_beginning: bool) -> bool:
        found = self._registry.get_topic(topic)
        start_offsets = {} if from_beginning else self._log.tails(found)
        stream = self._memory_streams.get(group)
        if from_beginning and stream is not None and stream.has_read(found):
            self._registry.refuse_new_subscription(group, topic, event_code)
        return self._registry.add_subscription(group, topic, event_code, expression, start_offsets)

    def allow_stress(self, group: str, topic: str, event_code: str = ANY_EVENT_CODE) -> None:
        """Put a group on the stress-test whitelist of a message type.

        Example:
            center.allow_stress("SG_SHADOW", "TP_TRADE")
        """
        self._registry.set_stress_allowed(group, topic, event_code, is_allowed=True)

    def disallow_stress(self, group: str, topic: str, event_code: str = ANY_EVENT_CODE) -> None:
        """Take a group off the whitelist.

        Example:
            center.disallow_stress("SG_SHADOW", "TP_TRADE")
        """
        self._registry.set_stress_allowed(group, topic, event_code, is_allowed=False)

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
        """Register what does not exist, as `MessageCenter.register` does."""
        check_call_timeout(timeout_seconds)
        self._check_open()
        self._registry.is_explicit = True
        return self._register(Registration(topic, event_code, group, expression, from_beginning))

    async def _register_for_handler(self, wanted: Registration) -> None:
        # The application asks for it, not the test: nothing is refused from here on.
        self._register(wanted)

    def _register(self, wanted: Registration) -> list[str]:
        registry = self._registry
        topic, event_code, group, expression = wanted.topic, wanted.event_code, wanted.group, wanted.expression
        check_topic(topic)
        if event_code != ANY_EVENT_CODE:
            check_event_code(event_code)
        if group:
            check_group(group)
            registry.refuse_other_expression(group, topic, event_code, expression)
        if expression:
            compile_header(expression)
        created: list[str] = []
        if registry.find_topic(topic) is None:
            registry.put_topic(topic, ())
            created.append(f"topic {topic}")
        found = registry.get_topic(topic)
        if event_code != ANY_EVENT_CODE and event_code not in found.event_codes:
            registry.add_event_code(found, event_code)
            created.append(f"event code {event_code}")
        if group and registry.find_group(group) is None:
            registry.put_group(group)
            created.append(f"group {group}")
        if group and self._subscribe(group, topic, event_code, expression, from_beginning=wanted.from_beginning):
            created.append(f"subscription {group} {topic}/{event_code}")
        if group and expression:
            log_warnings(group, topic, event_code, warnings_of_header(expression))
        return created

    def subscriber(self, **options: Unpack[SubscriberOptions]) -> Callable[[Function], Function]:
        """Make the decorated function a handler, as `MessageCenter.subscriber` does; registers unless strict."""
        attach = super().subscriber(**options)

        def attach_registered(function: Function) -> Function:
            if not self._registry.is_strict:
                self._register_used(make_options(options))
            attach(function)
            return function

        return attach_registered

    def _register_used(self, options: HandlerOptions) -> None:
        registry = self._registry
        if not (registry.takes_unknown or options.register):
            registry.check_event_code_of(registry.get_topic(options.topic), options.event_code)
            registry.get_group(options.group)
        topic = registry.find_topic(options.topic) or registry.put_topic(options.topic, ())
        if options.event_code != ANY_EVENT_CODE:
            registry.add_event_code(topic, options.event_code)
        if registry.find_group(options.group) is None:
            registry.put_group(options.group)
        if (options.group, options.topic) not in self._subscribed_by_test:
            self._subscribe(
                options.group,
                topic.name,
                options.event_code,
                options.expression or "",
                from_beginning=options.from_beginning,
            )

    # --- in place of a broker -----------------------------------------------------------------------------------

    def _open_publisher(self) -> Publisher:
        return _MemoryPublisher(self._store)

    def _open_stream(self, group: str, dispatcher: Dispatcher) -> GroupStream:
        route = self._registry.get_group(group)
        missing = list_missing(self._registry.snapshot, route, dispatcher.message_types)
        MissingSubscriptions(group).take(subscriber_pb2.MissingSubscription(**each._asdict()) for each in missing)
        stream = MemoryStream(
            route,
            dispatcher,
            self._registry,
            self._log,
            lambda: self._now,
            self._wake,
        )
        self._memory_streams[group] = stream
        self._wake()
        return stream

    def _store(self, encoded: bytes) -> Receipt:
        message = message_of(encoded)
        receipt = self._log.append(message, self._config.publisher_group, self._config.host)
        self._wake()
        return receipt

    def _wake(self) -> None:
        """See that what changed is looked at in the loop's next turn."""
        if not self._is_dirty:
            self._is_dirty = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        if self._is_dirty:
            self._is_dirty = False
            try:
                for stream in self._memory_streams.values():
                    stream.pump()
            except Exception as failure:  # noqa: BLE001 - whatever it is: nobody else is there to hear of it
                self._subscribers.fail("delivery in memory", failure)

    async def _rest(self, patience_seconds: float | None = None) -> None:
        """Wait until the handlers are done with all that can be handed out now; raise what ended a part of us."""
        with self._subscribers.listening():
            is_at_rest = False
            while not is_at_rest and await self._rest_once(patience_seconds):
                is_at_rest = not self._is_dirty and all(
                    stream.dispatcher.is_at_rest for stream in self._memory_streams.values()
                )
        self._subscribers.raise_failure()

    async def _rest_once(self, patience_seconds: float | None) -> bool:
        """Hand out what can be, and wait for it; return False if it is not done in time, or never will be."""
        self._pump()
        for stream in self._memory_streams.values():
            if self._subscribers.has_failed or not await stream.dispatcher.join(patience_seconds):
                return False
        return True

    def _next_wakeup(self) -> float:
        return min((stream.next_wakeup() for stream in self._memory_streams.values()), default=math.inf)

    def _move_to(self, now: float) -> None:
        self._now = max(self._now, now)
        for stream in self._memory_streams.values():
            stream.expire()
        self._is_dirty = True
        self._pump()


class _MemoryPublisher:
    """Stores at once: nothing is ever unanswered."""

    def __init__(self, store: Callable[[bytes], Receipt]) -> None:
        self._store = store

    trouble: Final = None

    @property
    def buffer(self) -> Any:
        """Where messages go in."""
        return self

    @property
    def unanswered_count(self) -> int:
        """How many messages wait for their answer: none."""
        return 0

    def offer(self, encoded: bytes) -> asyncio.Future[Receipt]:
        """Store a message: that takes no time."""
        return self.offer_in_turn(encoded)

    def offer_in_turn(self, encoded: bytes, within_seconds: float | None = None) -> asyncio.Future[Receipt]:  # noqa: ARG002
        """Store a message: that takes no time."""
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        try:
            answer.set_result(self._store(encoded))
        except MessageCenterError as error:
            answer.set_exception(error)
        return answer

    def offer_one_way(self, encoded: bytes) -> bool:
        """Store a message; whether it is refused stays unsaid."""
        answer = self.offer(encoded)
        # Looked at, so that asyncio does not report it as forgotten.
        answer.exception()
        return True

    async def taken(self, answer: asyncio.Future[Receipt]) -> None:
        """Return: there was room."""

    def is_sent(self, answer: asyncio.Future[Receipt]) -> bool:
        """Return whether it is stored: it was at once."""
        return answer.done()

    async def room(self) -> None:
        """Return: there is room."""

    async def flush(self) -> None:
        """Return: all is stored."""

    async def close(self, reason: MessageCenterError) -> None:
        """Return: nothing is open."""
