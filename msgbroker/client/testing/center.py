"""InMemoryCenter: the public API of MessageCenter on lists and a clock that only a test moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Unpack

from msgbroker.client.center import MessageCenter
from msgbroker.client.core.center_core import CenterCore
from msgbroker.client.testing.delivery import DeadLetter
from msgbroker.client.testing.memory_core import MemoryCore
from msgbroker.client.values.config import AddressesGiven, CenterSettings, make_config
from msgbroker.client.values.message import Message
from msgbroker.contract.names import ANY_EVENT_CODE

SETTLE_SECONDS_MAX: Final = 7 * 86_400.0
"""How much of its time may pass while a center in memory settles its messages."""


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
        self._is_strict = strict
        super().__init__("in-memory:1", **settings)

    def _make_core(self, addresses: AddressesGiven, settings: CenterSettings) -> CenterCore:
        config = make_config(addresses, settings)
        is_instance_named = bool(settings.get("instance_id"))
        self._memory = MemoryCore(config, is_strict=self._is_strict, is_instance_named=is_instance_named)
        return self._memory

    # --- what a test looks at -----------------------------------------------------------------------------------

    @property
    def published(self) -> list[Message]:
        """All messages stored so far, in their order."""
        return [Message(stored.delivery(1), stored.queue_id) for stored in self._memory.log.messages]

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """What was dead-lettered so far, group by group."""
        return [letter for stream in self._memory.streams.values() for letter in stream.dead_letters]

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
        await self._memory.settle_all(within_seconds)

    async def advance(self, seconds: float) -> None:
        """Let time pass: what falls due is delivered, what is not answered in time is taken back.

        Args:
            seconds: how much, by the clock of the center.

        Example:
            await center.advance(10)   # the first retry
        """
        await self._memory.advance(seconds)

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

        Args:
            name: the topic's name.
            event_codes: event codes to register with it, beside those that it has.
            queue_count: how many queues it has; default 1.
            body_bytes_max: how large a body may be; default 8,192 bytes.
            is_open: whether event codes that are not registered are taken.
            is_closed: whether publishing to it is refused.
            stress_refused: whether stress-test messages are refused.

        Raises:
            InvalidNameError: a name is not of the alphabet.
            InvalidSettingError: a setting is out of bounds.

        Example:
            center.register_topic("TP_TRADE", "EC_PAID", "EC_SHIPPED")
        """
        self._memory.registry.is_explicit = True
        self._memory.registry.put_topic(
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

        Args:
            name: the group's name.
            ack_timeout_seconds: how long a message may stay without an answer.
            handle_seconds_max: how long a handler may keep a message, by extending that time.
            retry_schedule_seconds: how long to wait before each further attempt.
            attempts_max: how many attempts there are before a message is a dead letter.
            unsettled_max: how many messages an instance may hold.

        Raises:
            InvalidNameError: the name is not of the alphabet.
            InvalidSettingError: a setting is out of bounds.

        Example:
            center.register_group("SG_POINTS", retry_schedule_seconds=(1, 5), attempts_max=3)
        """
        self._memory.registry.is_explicit = True
        self._memory.registry.put_group(
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
        self._memory.delete_group(name)

    def register_publisher_group(self, name: str) -> None:
        """Register a publisher group. A center that was told of one, or is strict, refuses messages of any other.

        Example:
            center.register_publisher_group("PG_SHOP")
        """
        self._memory.registry.is_explicit = True
        self._memory.registry.put_publisher_group(name)

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
        self._memory.registry.is_explicit = True
        return self._memory.subscribe(group, topic, event_code, expression, from_beginning=from_beginning)

    def allow_stress(self, group: str, topic: str, event_code: str = ANY_EVENT_CODE) -> None:
        """Put a group on the stress-test whitelist of a message type.

        Raises:
            GroupNotFoundError, TopicNotFoundError: one of them is not registered.

        Example:
            center.allow_stress("SG_SHADOW", "TP_TRADE")
        """
        self._memory.registry.set_stress_allowed(group, topic, event_code, is_allowed=True)

    def disallow_stress(self, group: str, topic: str, event_code: str = ANY_EVENT_CODE) -> None:
        """Take a group off the whitelist.

        Example:
            center.disallow_stress("SG_SHADOW", "TP_TRADE")
        """
        self._memory.registry.set_stress_allowed(group, topic, event_code, is_allowed=False)
