"""The core of a center in memory: it stores, delivers and lets time pass by itself, where others talk to brokers."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from msgbroker.client.connect import forks
from msgbroker.client.connect.directory import log_warnings
from msgbroker.client.core.center_core import CenterCore
from msgbroker.client.handle.group_handlers import GroupHandlers
from msgbroker.client.handle.handlers import HandlerOptions
from msgbroker.client.handle.signatures import HandlerFunction
from msgbroker.client.publish.publisher import Publisher
from msgbroker.client.publish.wire import message_of
from msgbroker.client.subscribe.missing_subscriptions import MissingSubscriptions
from msgbroker.client.subscribe.subscribers import GroupStream
from msgbroker.client.testing.delivery import MemoryStream
from msgbroker.client.testing.log import MemoryLog
from msgbroker.client.testing.publisher import MemoryPublisher
from msgbroker.client.testing.registry import Registry, compile_header, warnings_of_header
from msgbroker.client.values.config import ClientConfig
from msgbroker.client.values.message import Receipt
from msgbroker.client.values.registration import Registration
from msgbroker.contract.errors import GroupNotFoundError
from msgbroker.contract.names import ANY_EVENT_CODE, check_event_code, check_group, check_topic
from msgbroker.engine.missing_types import list_missing
from msgbroker.v1 import subscriber_pb2

_ROUNDS_MAX: Final = 100_000
_PATIENCE_SECONDS: Final = 0.5
"""The real time that `advance` gives running handlers at each step; one that waits for something else is left alone."""


class MemoryCore(CenterCore):
    """A core on lists, and on a clock that only a test moves."""

    def __init__(self, config: ClientConfig, *, is_strict: bool, is_instance_named: bool) -> None:
        super().__init__(config, is_instance_named=is_instance_named)
        self.registry = Registry(config.namespace, is_strict=is_strict)
        self.log = MemoryLog(self.registry, lambda: self._now, config.namespace)
        self.streams: dict[str, MemoryStream] = {}
        """What keeps each group supplied that was started, by its name."""
        self._now = time.time()
        self._subscribed_by_test: set[tuple[str, str]] = set()
        self._is_dirty = False

    def begin_anew(self) -> None:
        """Go on in a forked process with what is stored, and with handlers that nobody has started."""
        super().begin_anew()
        forks.never_free(self.streams)
        self.streams = {}
        self._is_dirty = False

    # --- time ---------------------------------------------------------------------------------------------------

    async def settle_all(self, within_seconds: float) -> None:
        """Run the handlers, moving time from retry to retry, until all is settled; raise TimeoutError if it is not."""
        deadline = self._now + within_seconds
        for _ in range(_ROUNDS_MAX):
            await self._rest()
            wakeup = self._next_wakeup()
            if wakeup is None:
                return
            if wakeup > deadline:
                break
            self._move_to(wakeup)
        raise TimeoutError(f"messages are not settled after {within_seconds:g} s of the center's time")

    async def advance(self, seconds: float) -> None:
        """Let time pass: what falls due is delivered, what is not answered in time is taken back."""
        target = self._now + seconds
        await self._rest(_PATIENCE_SECONDS)
        for _ in range(_ROUNDS_MAX):
            wakeup = self._next_wakeup()
            if wakeup is None or wakeup > target:
                break
            self._move_to(wakeup)
            await self._rest(_PATIENCE_SECONDS)
        self._move_to(target)

    # --- registration -------------------------------------------------------------------------------------------

    def delete_group(self, name: str) -> None:
        """Delete a subscriber group; its handlers here get nothing more."""
        self.registry.get_group(name)
        stream = self.streams.get(name)
        if stream is not None:
            stream.end(GroupNotFoundError(self.config.namespace, name))
        self.registry.remove_group(name)
        self._subscribed_by_test -= {(group, topic) for group, topic in self._subscribed_by_test if group == name}

    def subscribe(self, group: str, topic: str, event_code: str, expression: str, *, from_beginning: bool) -> bool:
        """Register a subscription for the test, which means to have no other one to that topic made up."""
        is_new = self._subscribe(group, topic, event_code, expression, from_beginning=from_beginning)
        self._subscribed_by_test.add((group, topic))
        return is_new

    def _subscribe(self, group: str, topic: str, event_code: str, expression: str, *, from_beginning: bool) -> bool:
        found = self.registry.get_topic(topic)
        start_offsets = {} if from_beginning else self.log.tails(found)
        stream = self.streams.get(group)
        if from_beginning and stream is not None and stream.has_read(found):
            self.registry.refuse_new_subscription(group, topic, event_code)
        return self.registry.add_subscription(group, topic, event_code, expression, start_offsets)

    async def _register(self, wanted: Registration, timeout_seconds: float) -> list[str]:  # noqa: ARG002 - takes none
        self.registry.is_explicit = True
        return self._register_at_once(wanted)

    async def _register_for_handler(self, wanted: Registration) -> None:
        # The application asks for it, not the test: nothing is refused from here on.
        self._register_at_once(wanted)

    def _register_at_once(self, wanted: Registration) -> list[str]:
        registry = self.registry
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
            log_warnings(wanted, warnings_of_header(expression))
        return created

    def attach(self, function: HandlerFunction, options: HandlerOptions) -> None:
        """Make *function* a handler; unless it is strict, what it uses is registered."""
        if not self.registry.is_strict:
            self._register_used(options)
        super().attach(function, options)

    def _register_used(self, options: HandlerOptions) -> None:
        registry = self.registry
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
        return MemoryPublisher(self._store)

    def _open_stream(self, group: str, handlers: GroupHandlers) -> GroupStream:
        route = self.registry.get_group(group)
        missing = list_missing(self.registry.snapshot, route, handlers.message_types)
        MissingSubscriptions(group).take(subscriber_pb2.MissingSubscription(**each._asdict()) for each in missing)
        stream = MemoryStream(
            route, handlers, self.registry, self.log, clock=lambda: self._now, note_change=self._note_change
        )
        self.streams[group] = stream
        self._note_change()
        return stream

    def _store(self, encoded: bytes) -> Receipt:
        message = message_of(encoded)
        receipt = self.log.append(message, self.config.publisher_group, self.config.host)
        self._note_change()
        return receipt

    def _note_change(self) -> None:
        """See that what changed is looked at in the loop's next turn."""
        if not self._is_dirty:
            self._is_dirty = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        if self._is_dirty:
            self._is_dirty = False
            try:
                for stream in self.streams.values():
                    stream.pump()
            except Exception as failure:  # noqa: BLE001 - whatever it is: nobody else is there to hear of it
                self._subscribers.fail("delivery in memory", failure)

    async def _rest(self, patience_seconds: float | None = None) -> None:
        """Wait until the handlers are done with all that can be handed out now; raise what ended a part of us."""
        with self._subscribers.listening():
            is_at_rest = False
            while not is_at_rest and await self._rest_once(patience_seconds):
                is_at_rest = not self._is_dirty and all(stream.handlers.is_at_rest for stream in self.streams.values())
        self._subscribers.raise_failure()

    async def _rest_once(self, patience_seconds: float | None) -> bool:
        """Hand out what can be, and wait for it; return False if it is not done in time, or never will be."""
        self._pump()
        for stream in self.streams.values():
            if self._subscribers.has_failed or not await stream.handlers.join(patience_seconds):
                return False
        return True

    def _next_wakeup(self) -> float | None:
        wakeups = (stream.next_wakeup() for stream in self.streams.values())
        return min((at for at in wakeups if at is not None), default=None)

    def _move_to(self, now: float) -> None:
        self._now = max(self._now, now)
        for stream in self.streams.values():
            stream.expire()
        self._is_dirty = True
        self._pump()
