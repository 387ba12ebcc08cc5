"""Whoever is at a job may be gone at any moment: the next one goes on, and nothing is done twice or left out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.contract.errors import MessageCenterError
from msgbroker.server.app import Broker
from msgbroker.server.jobs.purging import Purging
from msgbroker.server.jobs.receivers import Receivers
from msgbroker.server.jobs.redriving import Redriving
from msgbroker.server.jobs.replaying import Replaying
from msgbroker.server.jobs.storing_again import Republisher, StoredAgain
from msgbroker.server.jobs.work import JobWork, Stepped
from msgbroker.server.log.message import TargetedMessage
from msgconsole.operations.dead_letters.purge import purge
from msgconsole.operations.dead_letters.redrive import redrive
from msgconsole.operations.replays.replay import WantedReplay, replay
from msgconsole.operations.stores import Stores
from msgdb.dead_letters.choosing import purge_dead_letters
from msgdb.dead_letters.reading import list_redrives
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs.listing import get_job
from msgdb.jobs.records import ClaimedJob, JobKind, JobState
from msgdb.jobs.steering import set_state
from msgdb.jobs.steps import claim_jobs, end_job
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, TOPIC, register_group, subscribed
from tests.support.dead_letter_rows import all_dead_letters
from tests.support.jobs import buried

BY_ADA: dict[str, Any] = {"actor": "ada", "reason": "why"}
OPEN = WantedDeadLetters(namespace="default", is_open=True)
COUNT = 5
WEEK_SECONDS = 7 * 86_400.0


class GoneError(Exception):
    """The process is gone: nothing that it would have done next is done."""


class Mortal(Republisher):
    """Stores as a broker does, and is gone before or after that, the first few times."""

    def __init__(self, broker: Broker, *, before: int = 0, after: int = 0) -> None:
        super().__init__(broker.committer)
        self.before, self.after = before, after
        self.frames: list[bytes] = []

    async def store(
        self, publisher_id: bytes, items: Sequence[TargetedMessage | MessageCenterError]
    ) -> list[StoredAgain]:
        self.frames.append(publisher_id)
        if self.before:
            self.before -= 1
            raise GoneError
        stored = await super().store(publisher_id, items)
        if self.after:
            self.after -= 1
            raise GoneError
        return stored


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    """Return a broker that leaves jobs to the test."""
    broker = await start_broker()
    (jobs,) = [task for task in broker._running if task.get_name() == "jobs"]
    jobs.cancel()
    await asyncio.wait([jobs])
    broker._running.remove(jobs)
    return broker


@pytest.fixture
async def groups(trade: ConfigService) -> ConfigService:
    await register_group(trade)
    return trade


async def go_on(stores: Stores, work: JobWork, *, messages_max: int = 2) -> ClaimedJob:
    """Claim the job as the next broker would, once the lease of the one before has passed, and do it to its end."""
    async with stores.messages.transaction() as conn:
        await conn.execute("UPDATE job SET lease_until = NULL")
        (job,) = await claim_jobs(conn, uuid4(), 1, 30)
    stepped = Stepped(job, 0)
    while not (stepped.is_done or stepped.is_halted):
        stepped = await work.step(stepped.job, messages_max)
    async with stores.messages.transaction() as conn:
        await end_job(conn, stepped.job, JobState.DONE)
    return stepped.job


async def until_done(stores: Stores, work: JobWork) -> int:
    """Let one broker after the other go on until the job is done; return how many died over it."""
    deaths = 0
    while True:
        try:
            await go_on(stores, work)
        except GoneError:
            deaths += 1
        else:
            return deaths


def redriving(
    stores: Stores, broker: Broker, republisher: Republisher, frame_seconds: float = WEEK_SECONDS
) -> Redriving:
    return Redriving(stores.messages, republisher, Receivers(broker.feed.get), frame_seconds)


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("deaths", [1, 2])
async def test_a_redrive_goes_on_where_its_broker_died(
    groups: ConfigService, broker: Broker, stores: Stores, where: str, deaths: int
) -> None:
    ids = await buried(broker.address, stores.messages, COUNT)
    async with subscribed(broker.address) as ours:
        begun = await redrive(stores, OPEN, **BY_ADA)
        mortal = Mortal(broker, **{where: deaths})
        assert await until_done(stores, redriving(stores, broker, mortal)) == deaths

        assert sorted(await ours.until(COUNT)) == [f"body {number}" for number in range(COUNT)]
        async with stores.messages.connection() as conn:
            status = await get_job(conn, begun.job_id)
            landings = [await list_redrives(conn, dead_letter_id) for dead_letter_id in ids]
        assert (status.state, status.done, status.failed) == ("DONE", COUNT, 0)
        places = [(landing.queue_id, landing.queue_offset) for (landing,) in landings]
        assert sorted(places) == sorted((message.queue_id, message.queue_offset) for message in ours.messages)
        # The same frame each time.
        assert len(set(mortal.frames)) == len(mortal.frames) - deaths


@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_replay_goes_on_where_its_broker_died(
    groups: ConfigService, broker: Broker, stores: Stores, where: str
) -> None:
    async with subscribed(broker.address, act=None) as ours:
        await publish(broker, COUNT)
        await ours.until(COUNT)
        begun = await replay(stores, WantedReplay(namespace="default", group=GROUP, topic=TOPIC), **BY_ADA)
        mortal = Mortal(broker, **{where: 2})
        work = Replaying(broker_store(broker), mortal, Receivers(broker.feed.get), WEEK_SECONDS)
        assert await until_done(stores, work) == 2

        bodies = await ours.until(2 * COUNT)
        assert sorted(bodies) == sorted(2 * [f"body {number}" for number in range(COUNT)])
    async with stores.messages.connection() as conn:
        status = await get_job(conn, begun.job_id)
    assert (status.state, status.done, status.failed, status.scanned) == ("DONE", COUNT, 0, COUNT)


async def test_what_was_stored_before_is_counted_though_its_dead_letter_is_gone_by_now(
    groups: ConfigService, broker: Broker, stores: Stores
) -> None:
    ids = await buried(broker.address, stores.messages, 2)
    begun = await redrive(stores, OPEN, **BY_ADA)
    with pytest.raises(GoneError):
        await go_on(stores, redriving(stores, broker, Mortal(broker, after=1)))
    async with stores.messages.connection() as conn:
        await purge_dead_letters(conn, ids)
    await go_on(stores, redriving(stores, broker, Mortal(broker)))

    async with stores.messages.connection() as conn:
        status = await get_job(conn, begun.job_id)
    assert (status.done, status.failed) == (2, 0)


async def test_what_was_left_for_so_long_that_its_frame_may_be_forgotten_is_not_stored_again(
    groups: ConfigService, broker: Broker, stores: Stores
) -> None:
    await buried(broker.address, stores.messages, 3)
    begun = await redrive(stores, OPEN, **BY_ADA)
    with pytest.raises(GoneError):
        await go_on(stores, redriving(stores, broker, Mortal(broker, after=1)))
    async with stores.messages.connection() as conn:
        await conn.execute("UPDATE job SET batch_at = batch_at - interval '2 hours'")
    mortal = Mortal(broker)
    await go_on(stores, redriving(stores, broker, mortal, frame_seconds=3_600))

    assert len(mortal.frames) == 1
    async with stores.messages.connection() as conn:
        status = await get_job(conn, begun.job_id)
    assert (status.done, status.failed, status.total) == (1, 2, 3)


async def test_a_job_that_is_cancelled_in_the_middle_of_a_step_ends_with_that_step(
    groups: ConfigService, broker: Broker, stores: Stores
) -> None:
    await buried(broker.address, stores.messages, COUNT)
    begun = await redrive(stores, OPEN, **BY_ADA)
    with pytest.raises(GoneError):
        await go_on(stores, redriving(stores, broker, Mortal(broker, after=1)))
    async with stores.messages.transaction() as conn:
        await set_state(conn, begun.job_id, JobState.CANCELLED, **BY_ADA)
    await go_on(stores, redriving(stores, broker, Mortal(broker)))

    async with stores.messages.connection() as conn:
        status = await get_job(conn, begun.job_id)
    assert (status.state, status.done, status.is_in_step) == ("CANCELLED", 2, False)


async def test_two_brokers_that_take_the_same_step_do_it_once(
    groups: ConfigService, broker: Broker, stores: Stores
) -> None:
    await buried(broker.address, stores.messages, 2)
    begun = await redrive(stores, OPEN, **BY_ADA)
    slow = Mortal(broker, before=1)
    with pytest.raises(GoneError):
        await go_on(stores, redriving(stores, broker, slow))
    async with stores.messages.transaction() as conn:
        await conn.execute("UPDATE job SET lease_until = NULL")
        (lost,) = await claim_jobs(conn, uuid4(), 1, 30)
    # The other has the job by now; this one was only slow, and does what it was about to do.
    await go_on(stores, redriving(stores, broker, Mortal(broker)))
    with pytest.raises(MessageCenterError, match="another broker's"):
        await redriving(stores, broker, Mortal(broker)).step(lost, 2)

    async with subscribed(broker.address) as ours:
        await ours.until(2)
        async with stores.messages.connection() as conn:
            status = await get_job(conn, begun.job_id)
        assert (status.state, status.done) == ("DONE", 2)
        assert sorted(ours.bodies) == ["body 0", "body 1"]


async def test_a_purge_is_counted_as_it_is_done(groups: ConfigService, broker: Broker, stores: Stores) -> None:
    await buried(broker.address, stores.messages, COUNT)
    begun = await purge(stores, WantedDeadLetters(namespace="default"), **BY_ADA)
    async with stores.messages.transaction() as conn:
        (job,) = await claim_jobs(conn, uuid4(), 1, 30)
    await Purging(stores.messages).step(job, 2)
    await go_on(stores, Purging(stores.messages))

    async with stores.messages.connection() as conn:
        status = await get_job(conn, begun.job_id)
        assert await all_dead_letters(conn) == []
    assert (status.kind, status.state, status.done, status.failed) == (JobKind.PURGE, "DONE", COUNT, 0)


def broker_store(broker: Broker) -> Any:
    """Return the message store as the broker has it: it follows the store's history."""
    return broker.hub.cache._store


async def publish(broker: Broker, count: int) -> None:
    async with MessageCenter(broker.address) as center:
        for number in range(count):
            await center.publish(TOPIC, PAID, f"body {number}")
