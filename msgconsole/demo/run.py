"""Plays the demo's scenario against a running center: registers, subscribes, publishes, counts, cleans up."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter, OutgoingMessage, Receipt, Reject
from msgbroker.contract.names import DEFAULT_NAMESPACE
from msgconsole.demo.scenario import (
    GROUPS,
    PAID,
    REFUNDED,
    RETRY_SCHEDULE_SECONDS,
    Counts,
    DemoGroup,
    DemoMessage,
    expected_counts,
    make_messages,
)
from msgdb.dead_letters.choosing import purge_dead_letters
from msgdb.dead_letters.reading import DeadLetterCount, count_dead_letters, list_dead_letters
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.store import MessageStore

_SETTLE_POLL_SECONDS: Final = 0.2
_SETTLE_POLLS_MAX: Final = 150
# What must not come is waited for as well: longer than any retry of the scenario.
_QUIET_SECONDS: Final = 1.0


class DemoHandlerError(Exception):
    """A handler of the demo fails on purpose. The client catches it, as it does all errors of handlers."""


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What a group got, and what it had to get."""

    group: str
    subscription: str
    counted: Counts
    expected: Counts

    @property
    def is_right(self) -> bool:
        """Every count is what it had to be."""
        return self.counted == self.expected


@dataclass(frozen=True, slots=True)
class DemoNames:
    """The names of one run: no two runs meet."""

    suffix: str

    @classmethod
    def fresh(cls) -> DemoNames:
        """Return names that no other run has."""
        return cls(secrets.token_hex(3).upper())

    @property
    def topic(self) -> str:
        """The name of this run's topic."""
        return f"DEMO_TRADE_{self.suffix}"

    def group(self, group: DemoGroup) -> str:
        """Return what *group* is called in this run."""
        return f"DEMO_{group.name}_{self.suffix}"


class Recorder:
    """The handler of one group: fails and rejects as the scenario says, and counts."""

    def __init__(self, group: DemoGroup) -> None:
        self._group = group
        self._attempts: Counter[int] = Counter()
        self._handled: Counter[int] = Counter()
        self._stress = 0

    async def handle(self, body: dict[str, int], message: Message) -> None:
        """Handle one message as the scenario says, and count it."""
        order = body["order"]
        self._attempts[order] += 1
        if order in self._group.rejects:
            reason = "the ledger is closed for this order"
            raise Reject(reason)
        if self._attempts[order] <= self._group.failures.get(order, 0):
            raise DemoHandlerError(order)
        self._handled[order] += 1
        self._stress += message.stress

    def counts(self, dead_letters: int) -> Counts:
        """Return what was counted so far."""
        attempts = sum(self._attempts.values())
        return Counts(
            # A message handled twice counts twice, and makes the count wrong.
            handled=sum(self._handled.values()),
            stress=self._stress,
            retried=attempts - len(self._attempts),
            dead_letters=dead_letters,
        )


async def play(
    service: ConfigService, store: MessageStore, broker: str, say: Callable[[str], None], *, keep: bool
) -> list[GroupResult]:
    """Play the scenario and return each group's counts; with *keep* its registrations stay."""
    names = DemoNames.fresh()
    messages = make_messages()
    recorders = {group.name: Recorder(group) for group in GROUPS}
    async with AsyncExitStack() as stack:
        say(f"Registering topic {names.topic}, two event codes, four groups and their subscriptions ...")
        group_ids = await _register(service, names, stack, keep=keep)
        if not keep:
            stack.push_async_callback(_purge_dead_letters, store, [*group_ids.values()])
        await stack.enter_async_context(_subscribed(broker, names, recorders))
        say(f"Publishing {len(messages)} messages, {sum(message.stress for message in messages)} of them stress ...")
        await _publish(broker, names, messages)
        say("Waiting for deliveries, retries and dead letters ...")

        async def results() -> list[GroupResult]:
            async with store.connection() as connection:
                buried = await count_dead_letters(connection)
            return [
                GroupResult(
                    names.group(group),
                    f"{group.event_code} {group.expression or ''}".rstrip(),
                    recorders[group.name].counts(_count_of(buried.get(group_ids[group.name]))),
                    expected_counts(group, messages),
                )
                for group in GROUPS
            ]

        await _until_right(results)
        # Nothing may come on top of what is right.
        await asyncio.sleep(_QUIET_SECONDS)
        return await results()


def _count_of(found: DeadLetterCount | None) -> int:
    return 0 if found is None else found.total


async def _until_right(results: Callable[[], Awaitable[list[GroupResult]]]) -> None:
    # What is missing after the last poll is missing: the table says what.
    for _ in range(_SETTLE_POLLS_MAX):
        if all(result.is_right for result in await results()):
            return
        await asyncio.sleep(_SETTLE_POLL_SECONDS)


async def _purge_dead_letters(store: MessageStore, group_ids: list[int]) -> None:
    async with store.transaction() as connection:
        for group_id in group_ids:
            # A page of them is far more than the scenario makes.
            found = await list_dead_letters(connection, WantedDeadLetters(group_id=group_id))
            await purge_dead_letters(connection, [summary.dead_letter_id for summary in found.items])


async def _register(service: ConfigService, names: DemoNames, stack: AsyncExitStack, *, keep: bool) -> dict[str, int]:
    """Register everything and return the groups' ids; unless *keep*, what was made goes when *stack* closes."""

    async def clean_up(delete: Callable[[str, str], Awaitable[object]], name: str) -> None:
        if not keep:
            await delete(DEFAULT_NAMESPACE, name)

    await service.topics.create(DEFAULT_NAMESPACE, names.topic, description="msgcenter demo")
    stack.push_async_callback(clean_up, service.topics.delete, names.topic)
    for event_code in (PAID, REFUNDED):
        await service.event_codes.add(DEFAULT_NAMESPACE, names.topic, event_code)
    group_ids: dict[str, int] = {}
    version = 0
    for group in GROUPS:
        name = names.group(group)
        made = await service.subscriber_groups.create(
            DEFAULT_NAMESPACE, name, retry_schedule_seconds=RETRY_SCHEDULE_SECONDS, description="msgcenter demo"
        )
        stack.push_async_callback(clean_up, service.subscriber_groups.delete, name)
        group_ids[group.name] = made.thing.group_id
        if group.takes_stress:
            await service.stress.allow(DEFAULT_NAMESPACE, name, names.topic, "*")
        subscribed = await service.subscriptions.create(
            DEFAULT_NAMESPACE, name, names.topic, group.event_code, expression=group.expression
        )
        version = subscribed.version
    await service.wait_until_active(version)
    return group_ids


@asynccontextmanager
async def _subscribed(broker: str, names: DemoNames, recorders: dict[str, Recorder]) -> AsyncIterator[None]:
    async with MessageCenter(broker) as center:
        for group in GROUPS:
            attach = center.subscriber(group=names.group(group), topic=names.topic)
            attach(recorders[group.name].handle)
        await center.start()
        yield


async def _publish(broker: str, names: DemoNames, messages: list[DemoMessage]) -> None:
    async with MessageCenter(broker) as center:
        answers = await center.publish_many(
            OutgoingMessage(
                names.topic,
                message.event_code,
                json.dumps({"order": message.order, "amount": message.amount}),
                headers=message.headers,
                key=f"order-{message.order}",
            )
            for message in messages
        )
    for answer in answers:
        if not isinstance(answer, Receipt):
            raise answer
