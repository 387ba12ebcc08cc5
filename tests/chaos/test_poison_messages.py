"""Processes that a message ends, again and again, and processes that share an instance id."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter, OutgoingMessage
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBrokerProcess
from tests.support.collecting import GROUP, PAID, TOPIC, dead_letters, register_group, register_topic
from tests.support.eventually import eventually
from tests.support.subscriber_processes import SubscriberProcess, handled_in

NEIGHBOURS = [f"n{number}" for number in range(1_000)]
POISONED = [*NEIGHBOURS[:637], "poison", *NEIGHBOURS[637:]]

StartSubscriber = Callable[..., SubscriberProcess]


@pytest.fixture
def subscriber_process(tmp_path: Path) -> Iterator[StartSubscriber]:
    """Return a function that starts a subscriber in a process of its own; all are ended with the test."""
    started: list[SubscriberProcess] = []

    def start(address: str, **how: object) -> SubscriberProcess:
        started.append(SubscriberProcess.start(address, GROUP, TOPIC, tmp_path, **how))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for process in started:
        process.end()


class Supervisor:
    """Starts subscribers again whenever they end, as whatever runs them in production does."""

    def __init__(self, start: Callable[[int], SubscriberProcess], count: int) -> None:
        self._start = start
        self._processes = [start(number) for number in range(count)]

    async def run(self) -> None:
        """Look after them until cancelled."""
        while True:
            for number, process in enumerate(self._processes):
                if process.has_ended:
                    self._processes[number] = self._start(number)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def supervised(start: Callable[[int], SubscriberProcess], count: int) -> AsyncIterator[None]:
    running = asyncio.create_task(Supervisor(start, count).run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def publish(address: str, bodies: list[str]) -> None:
    async with MessageCenter(address) as center:
        await center.publish_many([OutgoingMessage(TOPIC, PAID, body) for body in bodies])


@pytest.mark.parametrize(
    "how, instances, poison_seconds, handler_seconds",
    [
        ("exit", 1, 0.0, 0.0),
        ("kill", 1, 0.0, 0.0),
        ("kill", 6, 0.0, 0.002),
        ("exit", 1, 0.2, 0.01),
    ],
    ids=["exits at once", "is killed at once", "six instances", "after a while, beside others"],
)
async def test_a_message_that_ends_every_process_becomes_a_dead_letter_and_its_neighbours_do_not(
    config: ConfigService,
    message_store: MessageStore,
    broker_process: StartBrokerProcess,
    subscriber_process: StartSubscriber,
    tmp_path: Path,
    how: str,
    instances: int,
    poison_seconds: float,
    handler_seconds: float,
) -> None:
    # However busy the machine is, its lanes stay here: a lease that passes would take the count of attempts with it.
    address = broker_process(lease_seconds=60).address
    await register_topic(config)
    await register_group(config, retry_schedule_seconds=(0.2, 0.2, 0.2))
    started: list[SubscriberProcess] = []

    def start(number: int) -> SubscriberProcess:
        process = subscriber_process(
            address,
            name=f"subscriber-{number}",
            instance_id=f"subscriber-{number}",
            how=how,
            poison_seconds=poison_seconds,
            handler_seconds=handler_seconds,
        )
        started.append(process)
        return process

    async with supervised(start, instances):
        await eventually(lambda: all(process.is_ready for process in started), 60)
        await publish(address, POISONED)
        await eventually(lambda: dead_letters(config, message_store), 60)
        await eventually(lambda: set(NEIGHBOURS) <= set(handled_in(tmp_path)), 60)
        letters = await dead_letters(config, message_store)

    assert [letter.body for letter in letters] == [b"poison"]
    assert letters[0].summary.attempts == 4
    assert (letters[0].summary.last_error or "").startswith("the instance's stream ended")
    # Each attempt ends a process, and one more before it was known which message did it. On a busy machine the others
    # may be through with their turns when it comes again: then there may be another such.
    assert 4 <= sum(line.startswith("poison") for line in handled_in(tmp_path)) <= 4 + 1 + 3


async def test_of_two_processes_with_one_instance_id_one_ends_with_the_reason_and_the_other_goes_on(
    config: ConfigService,
    message_store: MessageStore,
    broker_process: StartBrokerProcess,
    subscriber_process: StartSubscriber,
    tmp_path: Path,
) -> None:
    # However busy the machine is, its lanes stay here: a lease that passes would take the count of attempts with it.
    address = broker_process(lease_seconds=60).address
    await register_topic(config)
    await register_group(config, retry_schedule_seconds=(0.2, 0.2, 0.2))
    await publish(address, NEIGHBOURS)
    first = subscriber_process(address, name="first", instance_id="same", handler_seconds=0.02)
    await eventually(lambda: len(handled_in(tmp_path)) > 50, 30)
    second = subscriber_process(address, name="second", instance_id="same", handler_seconds=0.02)

    await eventually(lambda: second.is_ready, 60)
    await eventually(lambda: first.has_ended, 30)
    assert first.process.wait() == 3
    assert "REPLACED another process has attached as instance 'same', from host" in first.log
    await eventually(lambda: set(NEIGHBOURS) <= set(handled_in(tmp_path)), 60)
    await publish(address, ["after"])
    await eventually(lambda: "after" in handled_in(tmp_path), 30)
    assert not second.has_ended
    assert await dead_letters(config, message_store) == []
    # Once more at most: what the first had begun.
    assert max(Counter(handled_in(tmp_path)).values()) <= 2
