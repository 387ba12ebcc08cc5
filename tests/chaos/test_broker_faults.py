"""Brokers that are killed, frozen and told to stop, under load."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress

import psycopg
import pytest

from msgbroker.client import Message, MessageCenter, Receipt
from msgdb.locks import QUEUE_LOCK_CLASS
from tests.chaos.history import Place, read_log
from tests.chaos.load import EVENT_CODE, TOPIC, Load, register
from tests.support.broker_fixtures import LEASE_SECONDS, StartBrokerProcess
from tests.support.broker_processes import BrokerProcess
from tests.support.eventually import eventually

_WAITS_FOR_TABLE = """
SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE a.datname = current_database() AND NOT l.granted AND l.locktype = 'relation'
"""
_APPENDS = f"""
SELECT DISTINCT a.pid, a.state FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE a.datname = current_database() AND l.locktype = 'advisory' AND l.granted AND l.classid = {QUEUE_LOCK_CLASS}
"""
"""Sessions in the middle of an append: they have the locks of their queues."""
GROUPS = ("SG_ONE", "SG_TWO")
_DUPLICATE_WINDOW_SECONDS = 2.0
"""Settled so long before a fault, a message is persisted (every 0.2 s; the rest is for a slow machine)."""
_HELD_UP_SECONDS_MAX = 3.0


def start_brokers(broker_process: StartBrokerProcess, count: int) -> list[BrokerProcess]:
    brokers = [broker_process() for _ in range(count)]
    for broker in brokers:
        assert broker.address
    return brokers


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.long)])
async def test_nothing_acknowledged_is_lost_when_a_broker_is_killed(
    broker_process: StartBrokerProcess, database_url: str, count: int, rounds: int
) -> None:
    await register(database_url, *GROUPS)
    brokers = start_brokers(broker_process, count)
    faults: list[float] = []
    async with Load.running([broker.address for broker in brokers], GROUPS, instances=count) as load:
        await load.more(2_000)
        for _ in range(rounds):
            victim = brokers.pop(0)
            faults.append(time.monotonic())
            victim.kill()
            await load.more(2_000)
            # The lanes of the dead broker are served again once its leases have passed.
            await _until_taken_over(database_url, victim)
            faults.append(time.monotonic())
            listen = victim.address
            brokers.append(broker_process(listen=listen))
            assert brokers[-1].address == listen
            await load.more(1_000)
        history = await load.finish()

    history.check(read_log(database_url), GROUPS)
    assert not history.failed
    # What was settled and not yet persisted, and what was in flight: no more than that.
    history.check_duplicates(faults, _DUPLICATE_WINDOW_SECONDS)


async def test_a_broker_told_to_stop_ends_well_and_leaves_no_lease_behind(
    broker_process: StartBrokerProcess, database_url: str
) -> None:
    await register(database_url, *GROUPS)
    leaving, staying = start_brokers(broker_process, 2)
    async with Load.running([leaving.address, staying.address], GROUPS) as load:
        await load.more(2_000)
        started_at = time.monotonic()
        leaving.terminate()
        status = await asyncio.to_thread(leaving.process.wait, 15)
        seconds = time.monotonic() - started_at
        owners = _owners(database_url)
        await load.more(2_000)
        history = await load.finish()

    assert (status, seconds < 10) == (0, True), leaving.log
    assert len(owners) <= 1
    history.check(read_log(database_url), GROUPS)
    assert not history.failed
    # Nothing went wrong, so nothing came twice.
    assert history.check_duplicates([], 0) == 0


async def test_a_broker_told_to_stop_does_not_wait_for_ever_for_handlers(
    broker_process: StartBrokerProcess, database_url: str
) -> None:
    await register(database_url, "SG_ONE")
    broker = broker_process()
    started, for_ever = asyncio.Event(), asyncio.Event()

    async with MessageCenter(broker.address, drain_timeout_seconds=0.5) as center:

        @center.subscriber(group="SG_ONE", topic=TOPIC)
        async def hang(_: Message) -> None:
            started.set()
            await for_ever.wait()

        await center.start()
        await center.publish(TOPIC, EVENT_CODE, "p0:0")
        await started.wait()
        stopped_at = time.monotonic()
        broker.terminate()
        status = await asyncio.to_thread(broker.process.wait, 15)
        seconds = time.monotonic() - stopped_at

    assert (status, seconds < 10) == (0, True), broker.log
    assert _owners(database_url) == []


async def test_a_broker_that_serves_nobody_stops_at_once(broker_process: StartBrokerProcess, database_url: str) -> None:
    broker = broker_process()
    assert broker.address
    started_at = time.monotonic()
    broker.terminate()
    status = await asyncio.to_thread(broker.process.wait, 15)

    assert status == 0, broker.log
    assert time.monotonic() - started_at < 3
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM broker").fetchone() == (0,)


async def test_a_broker_frozen_in_the_middle_of_its_transaction_does_not_hold_the_others_up(
    broker_process: StartBrokerProcess, database_url: str
) -> None:
    await register(database_url)
    frozen, other = start_brokers(broker_process, 2)
    async with MessageCenter(frozen.address) as of_frozen, MessageCenter(other.address) as of_other:
        for center in (of_frozen, of_other):
            await center.publish(TOPIC, EVENT_CODE, "p0:0", key="one queue")
        publishing = await _freeze_with_its_locks(frozen, of_frozen, database_url)

        started_at = time.monotonic()
        receipts = [await of_other.publish(TOPIC, EVENT_CODE, f"p2:{n}", key="one queue") for n in range(10)]
        seconds = time.monotonic() - started_at

        frozen.thaw()
        late = await publishing

    assert seconds < _HELD_UP_SECONDS_MAX
    places = [Place(receipt.queue_id, receipt.queue_offset) for receipt in [*receipts, late]]
    first = places[0]
    assert places == [Place(first.queue_id, first.queue_offset + n) for n in range(11)]


@pytest.mark.long
async def test_brokers_frozen_at_any_moment_do_not_hold_the_others_up(
    broker_process: StartBrokerProcess, database_url: str, rounds: int
) -> None:
    await register(database_url, *GROUPS)
    brokers = start_brokers(broker_process, 3)
    moments = random.Random(7)
    faults: list[float] = []
    async with (
        Load.running([broker.address for broker in brokers], GROUPS, instances=3) as load,
        MessageCenter(brokers[-1].address) as center,
    ):
        await load.more(2_000)
        for number in range(rounds):
            victim = brokers[number % 2]
            await asyncio.sleep(moments.uniform(0, 0.1))
            faults.append(time.monotonic())
            victim.freeze()
            slowest = 0.0
            for n in range(50):
                started_at = time.monotonic()
                await center.publish(TOPIC, EVENT_CODE, f"probe{number}:{n}", key=str(n))
                slowest = max(slowest, time.monotonic() - started_at)
            victim.thaw()
            faults.append(time.monotonic())
            assert slowest < _HELD_UP_SECONDS_MAX
            await load.more(2_000)
        history = await load.finish()

    assert not history.failed
    history.check(read_log(database_url), GROUPS)


async def test_four_broker_processes_store_gapless_offsets_in_the_order_of_their_commits(
    broker_process: StartBrokerProcess, database_url: str
) -> None:
    await register(database_url)
    brokers = start_brokers(broker_process, 4)
    async with Load.running([broker.address for broker in brokers], [], publishers=8) as load:
        looks = 0
        with psycopg.connect(database_url, autocommit=True) as connection:
            while len(load.history.acknowledged) < 10_000:
                rows = connection.execute(
                    "SELECT queue_id, count(*), max(queue_offset) + 1 FROM message GROUP BY queue_id"
                ).fetchall()
                # Whoever sees an offset sees all below it.
                assert [count for _, count, _ in rows] == [end for _, _, end in rows]
                looks += len(rows)
                await load.more(200)
        history = await load.finish()

    assert looks > 50
    assert not history.failed
    history.check(read_log(database_url), [])


def _rows(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query).fetchall()


def _owners(url: str) -> list[tuple[object, ...]]:
    return _rows(url, "SELECT DISTINCT owner FROM cursor WHERE owner IS NOT NULL")


async def _until_taken_over(url: str, dead: BrokerProcess) -> None:
    owned = f"SELECT 1 FROM cursor c JOIN broker b ON b.broker_id = c.owner WHERE b.pid = {dead.pid}"
    await eventually(lambda: not _rows(url, owned), LEASE_SECONDS + 5)


async def _freeze_with_its_locks(broker: BrokerProcess, center: MessageCenter, url: str) -> asyncio.Task[Receipt]:
    """Freeze *broker* in the middle of a transaction; return the publish that it was about to store."""

    async def publish() -> Receipt:
        return await center.publish(TOPIC, EVENT_CODE, "p1:1", key="one queue")

    def is_done_or_waits() -> object:
        return publishing.done() or _rows(url, _WAITS_FOR_TABLE)

    publishing = asyncio.create_task(publish())
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("SET lock_timeout = '1s'")
        for _ in range(50):
            # It takes its locks, and waits to be told where the queue ends; the answer finds it frozen.
            with suppress(psycopg.errors.LockNotAvailable):
                async with connection.transaction(force_rollback=True):
                    await connection.execute("LOCK TABLE message IN ACCESS EXCLUSIVE MODE")
                    if publishing.done():
                        publishing = asyncio.create_task(publish())
                    # Only now, or it would be done before the table is locked again.
                    broker.thaw()
                    await eventually(is_done_or_waits, what="an append that waits")
                    broker.freeze()
                if await eventually(lambda: _frozen_append(url), what="its state") == "has its locks":
                    return publishing
            # It was about something else, and has to get on with that; or it gave up in the very moment.
            broker.thaw()
    raise AssertionError("it never froze with its locks")


def _frozen_append(url: str) -> str | None:
    """What came of the append whose broker froze while it waited; None before that is known."""
    # One look: of two, each may see what the other would deny.
    appends = _rows(url, _APPENDS)
    if not appends:
        return "gave up"
    return "has its locks" if [state for _, state in appends] == ["idle in transaction"] else None
