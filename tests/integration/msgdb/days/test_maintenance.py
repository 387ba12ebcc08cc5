"""Maintenance: a day goes only when nothing points into it, and offsets outlive it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from msgdb.acts import list_acts, write_act
from msgdb.append import sql
from msgdb.days.expiry import expire_day
from msgdb.days.maintenance import Maintenance, MaintenanceConfig
from msgdb.days.rounds import MaintenanceReport
from msgdb.dead_letters.reading import list_dead_letters
from msgdb.figures.usage import UsageOf, list_usage
from msgdb.lanes.leases import claim, load_redeliveries
from msgdb.lanes.records import ClaimedLane, LaneCheckpoint, RedeliveryUpsert
from msgdb.locks import MAINTENANCE_LOCK_CLASS
from msgdb.log.partitions import ensure_for, list_partitions, today
from msgdb.log.queues import ensure_queues
from msgdb.log.reads import first_offsets, next_offsets
from msgdb.names import MESSAGE, PUBLISHER_FRAME, TRACE_EVENT, USAGE_MINUTE, partition_name
from msgdb.postgres.binary_rows import datetime_of
from msgdb.postgres.connections import Connection
from msgdb.reports.alarms import list_alarms
from msgdb.reports.expression_failures import ExpressionFailure, list_expression_failures, write_expression_failures
from msgdb.store import MessageStore
from tests.support.rows import (
    GROUP,
    GROUP_NAMES,
    OWNER,
    lanes_to_claim,
    make_queue,
    persist,
    put_messages,
)

DEFAULTS = MaintenanceConfig()
_BURIED_BEFORE = """
INSERT INTO dead_letter (group_id, group_name, attempts, reason, queue_id, queue_offset, stored_at, message_id,
                         namespace, topic, event_code, body, born_at, stress)
SELECT %s, '', 1, 'REJECTED', queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, body,
       born_at, stress
FROM message WHERE queue_offset = 0
"""


def maintenance(store: MessageStore, config: MaintenanceConfig = DEFAULTS, **clocks: Any) -> Maintenance:
    return Maintenance(store, config, group_names=lambda: GROUP_NAMES, **clocks)


async def maintain(store: MessageStore, config: MaintenanceConfig = DEFAULTS) -> MaintenanceReport:
    report = await maintenance(store, config).maintain_once()
    assert report is not None
    return report


async def claim_one(conn: Connection, queue_id: int) -> ClaimedLane:
    (lane,) = await claim(conn, OWNER, lanes_to_claim([queue_id]), 60)
    return lane


async def test_days_are_made_three_ahead(store: MessageStore, conn: Connection) -> None:
    for partition in (await list_partitions(conn, MESSAGE))[2:]:
        await conn.execute(f"DROP TABLE {partition.name}".encode())

    report = await maintain(store)

    day = await today(conn)
    assert report.created == [f"message_p{day + timedelta(days=days):%Y%m%d}" for days in (1, 2, 3)]
    assert report.dropped == []


async def test_a_second_round_finds_nothing_to_do(store: MessageStore) -> None:
    await maintain(store)

    assert (await maintain(store)).is_empty


async def test_a_day_is_kept_until_all_of_it_is_older_than_the_retention(store: MessageStore, conn: Connection) -> None:
    day = await today(conn)
    for days in (7, 8, 9):
        await ensure_for(conn, day - timedelta(days=days))

    report = await maintain(store)

    gone = [day - timedelta(days=days) for days in (9, 8)]
    assert report.dropped == [f"{table}_p{d:%Y%m%d}" for table in (MESSAGE, PUBLISHER_FRAME, TRACE_EVENT) for d in gone]
    assert (await list_partitions(conn, MESSAGE))[0].day == day - timedelta(days=7)


async def test_failures_of_expressions_are_forgotten_weeks_after_the_last_one(
    store: MessageStore, conn: Connection
) -> None:
    await write_expression_failures(
        conn, [ExpressionFailure(1, subscription_id, 1, None, "") for subscription_id in (1, 2)]
    )
    await conn.execute(
        "UPDATE expression_failure SET last_failed_at = last_failed_at - interval '31 days' WHERE subscription_id = 1"
    )

    await maintain(store)

    assert [row.subscription_id for row in await list_expression_failures(conn)] == [2]


async def test_acts_are_forgotten_after_a_year(store: MessageStore, conn: Connection) -> None:
    for thing in ("old", "new"):
        await write_act(conn, actor="ada", action="archive.waive", namespace=None, thing=thing, reason="a test's")
    await conn.execute("UPDATE act SET at = at - interval '367 days' WHERE thing = 'old'")

    await maintain(store)

    assert [act.thing for act in await list_acts(conn)] == ["new"]


async def test_retention_may_be_shorter(store: MessageStore, conn: Connection) -> None:
    day = await today(conn)
    await ensure_for(conn, day - timedelta(days=2))

    config = MaintenanceConfig(retention_days={MESSAGE: 1, PUBLISHER_FRAME: 1, TRACE_EVENT: 1})
    assert (await maintain(store, config)).dropped == [
        f"{table}_p{day - timedelta(days=2):%Y%m%d}" for table in (MESSAGE, PUBLISHER_FRAME, TRACE_EVENT)
    ]


@pytest.mark.parametrize("days_off", [-30, 30])
async def test_no_day_is_dropped_while_the_clocks_of_database_and_broker_differ(
    store: MessageStore, conn: Connection, days_off: int
) -> None:
    day = await today(conn)
    await ensure_for(conn, day - timedelta(days=20))
    (last,) = [partition.name for partition in await list_partitions(conn, MESSAGE)][-1:]
    await conn.execute(f"DROP TABLE {last}")
    theirs = datetime.combine(day, datetime.min.time(), UTC)
    keeper = maintenance(store, utc_now=lambda: theirs + timedelta(days=days_off))

    report = await keeper.maintain_once()

    assert report is not None
    assert (report.dropped, report.created) == ([], [last])
    (alarm,) = await list_alarms(conn)
    assert (alarm.kind, alarm.thing, alarm.broker) == ("PARTITION_SET_ASIDE", "dropping days", "")
    assert str(day) in alarm.detail
    assert str(day + timedelta(days=days_off)) in alarm.detail
    assert len((await maintain(store)).dropped) == 3
    assert await list_alarms(conn) == []


async def test_a_day_is_dropped_when_both_clocks_have_passed_it(store: MessageStore, conn: Connection) -> None:
    day = await today(conn)
    for days in (8, 9):
        await ensure_for(conn, day - timedelta(days=days))
    a_moment_behind = datetime.combine(day, datetime.min.time(), UTC) - timedelta(seconds=1)

    report = await maintenance(store, utc_now=lambda: a_moment_behind).maintain_once()

    assert report is not None
    assert report.dropped == [
        f"{table}_p{day - timedelta(days=9):%Y%m%d}" for table in (MESSAGE, PUBLISHER_FRAME, TRACE_EVENT)
    ]


async def test_what_is_named_like_a_day_and_is_none_is_left_alone_and_the_days_are_dropped(
    store: MessageStore, conn: Connection
) -> None:
    await ensure_for(conn, await today(conn) - timedelta(days=8))
    await conn.execute("CREATE TABLE message_p20261131 (LIKE message)")

    report = await maintain(store)

    assert (len(report.dropped), report.failed) == (3, ["message_p20261131"])
    (alarm,) = await list_alarms(conn)
    assert (alarm.kind, alarm.thing) == ("PARTITION_SET_ASIDE", "message_p20261131")
    await conn.execute("DROP TABLE message_p20261131")
    await maintain(store)
    assert await list_alarms(conn) == []


async def test_a_day_that_somebody_has_detached_is_an_alarm_until_it_is_attached_again(
    store: MessageStore, conn: Connection
) -> None:
    (first, *_) = await list_partitions(conn, MESSAGE)
    bounds = [f"'{first.day + timedelta(days=days)} 00:00+00'" for days in (0, 1)]
    await conn.execute(f"ALTER TABLE message DETACH PARTITION {first.name}")

    report = await maintain(store)

    assert report.failed == [first.name]
    (alarm,) = await list_alarms(conn)
    assert (alarm.kind, alarm.thing) == ("PARTITION_SET_ASIDE", first.name)
    assert "detached" in alarm.detail
    await conn.execute(
        f"ALTER TABLE message ATTACH PARTITION {first.name} FOR VALUES FROM ({bounds[0]}) TO ({bounds[1]})"
    )
    await maintain(store)
    assert await list_alarms(conn) == []


async def test_offsets_go_on_where_they_were_when_all_messages_are_gone(store: MessageStore, conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(42), days_ago=8)

    await maintain(store)

    assert await next_offsets(conn, [queue_id]) == {queue_id: 42}
    assert await first_offsets(conn, [queue_id]) == {queue_id: 42}


@asynccontextmanager
async def appending(store: MessageStore, queue_id: int) -> AsyncIterator[Connection]:
    """Stop in the middle of an append: it has its lock and its snapshot, and has not locked the log yet."""
    async with store.dedicated_connection() as appender:
        # A snapshot for all its statements stands for the one of the statement that will look at the tails.
        locked = sql.begin("", (), [queue_id]).replace("READ COMMITTED", "REPEATABLE READ")
        await appender.execute(locked.encode())
        yield appender
        await appender.execute("COMMIT")


async def next_offset_of(appender: Connection, queue_id: int) -> int:
    """Return what an append would give to its first message."""
    select = sql.tails([queue_id], datetime_of(0), (), datetime_of(0), prepared=False)
    row = await (await appender.execute(select.encode())).fetchone()
    assert row is not None
    return int(row[2])


async def test_a_day_that_a_queue_ends_in_stays_while_somebody_appends_to_it(
    store: MessageStore, conn: Connection
) -> None:
    queue_id, other = [queue.queue_id for queue in await ensure_queues(conn, 1, 1, 2)]
    await put_messages(conn, queue_id, range(42), days_ago=8)
    await put_messages(conn, other, range(7), days_ago=8)
    async with appending(store, queue_id) as appender:
        held_up = await maintain(store)

        assert await next_offset_of(appender, queue_id) == 42
        assert [name.partition("_p")[0] for name in held_up.postponed] == [MESSAGE]
        assert await first_offsets(conn, [queue_id, other]) == {queue_id: 0, other: 7}

    report = await maintain(store)

    assert [name.partition("_p")[0] for name in report.dropped] == [MESSAGE]
    async with appending(store, queue_id) as appender:
        assert await next_offset_of(appender, queue_id) == 42


async def test_a_day_goes_while_somebody_appends_behind_newer_messages(store: MessageStore, conn: Connection) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(42), days_ago=8)
    await put_messages(conn, queue_id, range(42, 45))
    async with appending(store, queue_id) as appender:
        report = await maintain(store)

        assert report.postponed == []
        assert await first_offsets(conn, [queue_id]) == {queue_id: 42}
        assert await next_offset_of(appender, queue_id) == 45


async def test_the_starts_of_many_queues_are_raised(store: MessageStore, conn: Connection) -> None:
    queue_ids = [queue.queue_id for topic_id in (1, 2, 3) for queue in await ensure_queues(conn, topic_id, 1, 256)]
    await put_messages(conn, queue_ids[0], range(2), days_ago=8)
    await conn.execute(
        "INSERT INTO message SELECT (jsonb_populate_record(m, jsonb_build_object('queue_id', q))).*"
        " FROM message m, unnest(%s::bigint[]) AS q",
        (queue_ids[1:],),
    )

    await maintain(store)

    assert set((await first_offsets(conn, queue_ids)).values()) == {2}


async def test_a_redelivery_into_a_dropped_day_becomes_a_dead_letter(store: MessageStore, conn: Connection) -> None:
    queue_id = await make_queue(conn)
    old = await put_messages(conn, queue_id, range(2), days_ago=8)
    new = await put_messages(conn, queue_id, range(2, 4))
    lane = await claim_one(conn, queue_id)
    upserts = [RedeliveryUpsert(row.queue_offset, row.stored_at_us, 3, 60.0, None, "boom") for row in (old[1], new[1])]
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 4, [], upserts)], GROUP_NAMES)

    report = await maintain(store)

    assert (report.expired_redelivery_count, report.skipped_message_count) == (1, 0)
    (dead,) = (await list_dead_letters(conn)).items
    assert (dead.message_id, dead.reason, dead.attempts, dead.last_error) == (old[1].message_id, "EXPIRED", 2, "boom")
    assert dead.group_name == "SG_POINTS"
    assert [row.queue_offset for row in (await load_redeliveries(conn, [lane.key]))[lane.key]] == [3]


async def test_dead_letters_of_a_day_that_goes_are_counted_in_the_minute_they_became_so(
    store: MessageStore, conn: Connection
) -> None:
    queue_id = await make_queue(conn, 5)
    old = await put_messages(conn, queue_id, range(3), days_ago=8)
    lane = await claim_one(conn, queue_id)
    upserts = [RedeliveryUpsert(row.queue_offset, row.stored_at_us, 3, 60.0, None, "boom") for row in old]
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 3, [], upserts)], GROUP_NAMES)
    # One of them is a dead letter already, from before the group was put back.
    await conn.execute(_BURIED_BEFORE, (GROUP,))
    began_at = datetime.now(UTC)

    report = await maintain(store)

    assert report.expired_redelivery_count == 3
    assert report.failed == []
    since = began_at - timedelta(minutes=2)
    (usage,) = await list_usage(conn, UsageOf(since, since + timedelta(minutes=5), 60))
    assert (usage.topic_id, usage.group_id, usage.event_code, usage.stress) == (5, GROUP, old[0].event_code, False)
    assert (usage.dead_lettered, usage.delivered, usage.published) == (2, 0, 0)
    assert began_at.replace(second=0, microsecond=0) <= usage.begins_at <= datetime.now(UTC)


async def test_a_day_goes_though_what_it_leaves_cannot_be_counted(store: MessageStore, conn: Connection) -> None:
    queue_id = await make_queue(conn)
    (old,) = await put_messages(conn, queue_id, range(1), days_ago=8)
    lane = await claim_one(conn, queue_id)
    upsert = RedeliveryUpsert(0, old.stored_at_us, 3, 60.0, None, "boom")
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 1, [], [upsert])], GROUP_NAMES)
    (partition, *_) = await list_partitions(conn, MESSAGE)
    await conn.execute(f"DROP TABLE {partition_name(USAGE_MINUTE, f'{await today(conn):%Y%m%d}')}")

    assert (await expire_day(conn, partition, GROUP_NAMES)).redelivery_count == 1


async def test_a_day_goes_though_the_table_of_its_figures_was_detached(store: MessageStore, conn: Connection) -> None:
    queue_id = await make_queue(conn)
    (old,) = await put_messages(conn, queue_id, range(1), days_ago=8)
    lane = await claim_one(conn, queue_id)
    upsert = RedeliveryUpsert(0, old.stored_at_us, 3, 60.0, None, "boom")
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 1, [], [upsert])], GROUP_NAMES)
    (partition, *_) = await list_partitions(conn, MESSAGE)
    day = partition_name(USAGE_MINUTE, f"{await today(conn):%Y%m%d}")
    await conn.execute(f"ALTER TABLE {USAGE_MINUTE} DETACH PARTITION {day}".encode())

    assert (await expire_day(conn, partition, GROUP_NAMES)).redelivery_count == 1


async def test_a_cursor_that_never_got_there_is_moved_and_what_it_skipped_is_counted(
    store: MessageStore, conn: Connection
) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(20), days_ago=8)
    await put_messages(conn, queue_id, range(20, 30))
    lane = await claim_one(conn, queue_id)
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 4, [(6, 10), (18, 25), (27, 28)])], GROUP_NAMES)

    report = await maintain(store)

    # 4, 5 and 10 to 17.
    assert report.skipped_message_count == 10
    moved = await claim_one(conn, queue_id)
    assert (moved.acked_offset, moved.acked_ranges) == (20, [(20, 25), (27, 28)])


async def test_a_day_whose_cursor_is_being_written_waits_for_the_next_round(
    store: MessageStore, conn: Connection
) -> None:
    queue_id = await make_queue(conn)
    await put_messages(conn, queue_id, range(5), days_ago=8)
    lane = await claim_one(conn, queue_id)
    async with store.transaction() as checkpointing:
        await persist(checkpointing, OWNER, [LaneCheckpoint(lane.key, 1, 2, [])], GROUP_NAMES)

        held_up = await maintain(store)
        assert (len(held_up.postponed), held_up.skipped_message_count) == (1, 0)
        assert MESSAGE not in {name.split("_p2")[0] for name in held_up.dropped}

    report = await maintain(store)
    assert (len(report.dropped), report.skipped_message_count) == (1, 3)


async def test_a_day_that_is_being_read_is_dropped_in_a_later_round(store: MessageStore, conn: Connection) -> None:
    await ensure_for(conn, await today(conn) - timedelta(days=8))
    async with store.transaction() as reader:
        await reader.execute("SELECT count(*) FROM message")
        held_up = await maintain(store, MaintenanceConfig(detach_timeout_seconds=0.2))
        assert len(held_up.postponed) == 1

    report = await maintain(store)

    assert [name[:9] for name in report.dropped] == ["message_p"]
    assert not any(partition.is_detach_pending for partition in await list_partitions(conn, MESSAGE))


async def test_leases_from_before_the_clock_was_set_back_are_cut_down(store: MessageStore, conn: Connection) -> None:
    await claim_one(conn, await make_queue(conn))
    await conn.execute("UPDATE cursor SET lease_until = lease_until + interval '1 hour'")

    assert (await maintain(store)).cut_lease_count == 1
    assert (await maintain(store)).is_empty


async def test_one_broker_at_a_time_does_it(store: MessageStore) -> None:
    async with store.transaction() as other_broker:
        await other_broker.execute("SELECT pg_advisory_xact_lock(%s, 0)", (MAINTENANCE_LOCK_CLASS,))

        assert await maintenance(store).maintain_once() is None

    assert await maintenance(store).maintain_once() is not None


async def test_the_parents_are_analyzed_now_and_then(store: MessageStore, conn: Connection) -> None:
    now = 0.0
    keeper = Maintenance(store, MaintenanceConfig(analyze_interval_seconds=100), group_names=dict, clock=lambda: now)
    first = await keeper.maintain_once()
    now = 101.0
    second = await keeper.maintain_once()
    third = await keeper.maintain_once()

    assert [report is not None and report.is_analyzed for report in (first, second, third)] == [False, True, False]
    analyzed = await conn.execute("SELECT last_analyze IS NOT NULL FROM pg_stat_all_tables WHERE relname = 'message'")
    assert await analyzed.fetchone() == (True,)


async def test_the_loop_survives_an_outage(database_url: str) -> None:
    stop = asyncio.Event()
    rounds: list[str] = []

    async with MessageStore.open("postgresql://postgres@127.0.0.1:1/none") as away:
        keeper = maintenance(away, MaintenanceConfig(interval_seconds=0.01))
        original = keeper.maintain_once

        async def counted() -> MaintenanceReport | None:
            rounds.append("round")
            if len(rounds) == 2:
                stop.set()
            return await original()

        keeper.maintain_once = counted  # type: ignore[method-assign]
        await keeper.run(stop)

    assert rounds == ["round", "round"]


async def test_a_day_that_cannot_be_dropped_is_set_aside_and_the_others_are_dropped(
    store: MessageStore, conn: Connection
) -> None:
    queue_id = await make_queue(conn)
    for days_ago in (9, 10):
        await put_messages(conn, queue_id, range(10 * (10 - days_ago), 10 * (11 - days_ago)), days_ago=days_ago)
    oldest, older, *_ = [partition.name for partition in await list_partitions(conn, MESSAGE)]
    await conn.execute(f"CREATE VIEW somebody_reads_it AS SELECT * FROM {oldest}")

    for _ in range(2):
        report = await maintain(store)
        assert report.failed == [oldest]
    assert oldest in {partition.name for partition in await list_partitions(conn, MESSAGE)}
    assert older not in {partition.name for partition in await list_partitions(conn, MESSAGE)}
    (alarm,) = await list_alarms(conn)
    assert (alarm.kind, alarm.thing, alarm.broker) == ("PARTITION_SET_ASIDE", oldest, "")
    assert "somebody_reads_it" in alarm.detail

    await conn.execute("DROP VIEW somebody_reads_it")
    assert oldest in (await maintain(store)).dropped
    assert await list_alarms(conn) == []


async def test_a_day_that_cannot_be_read_is_set_aside_and_the_others_are_dropped(
    store: MessageStore, conn: Connection
) -> None:
    queue_id = await make_queue(conn)
    old = await put_messages(conn, queue_id, range(2), days_ago=9)
    lane = await claim_one(conn, queue_id)
    upserts = [RedeliveryUpsert(old[0].queue_offset, old[0].stored_at_us, 2, 60.0, None, "boom")]
    await persist(conn, OWNER, [LaneCheckpoint(lane.key, 1, 2, [], upserts)], GROUP_NAMES)
    oldest, *_ = [partition.name for partition in await list_partitions(conn, MESSAGE)]
    # What the server says where the file with its large bodies is gone.
    await conn.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$"
        " BEGIN RAISE EXCEPTION 'could not open file' USING ERRCODE = '58P01'; END $$"
    )
    await conn.execute("CREATE TRIGGER odd BEFORE INSERT ON dead_letter FOR EACH ROW EXECUTE FUNCTION fail()")

    report = await maintain(store)

    assert report.failed == [oldest]
    assert report.dropped == [oldest.replace(MESSAGE, other) for other in (PUBLISHER_FRAME, TRACE_EVENT)]
    (alarm,) = await list_alarms(conn)
    assert (alarm.kind, alarm.thing) == ("PARTITION_SET_ASIDE", oldest)


async def test_a_day_that_cannot_be_made_is_set_aside_and_the_others_are_made(
    store: MessageStore, conn: Connection
) -> None:
    (last,) = [partition.name for partition in await list_partitions(conn, MESSAGE)][-1:]
    for table in (last, last.replace("message", "publisher_frame")):
        await conn.execute(f"DROP TABLE {table}")
    # Something else has its name.
    await conn.execute(f"CREATE TYPE {last} AS ENUM ('taken')")
    (before,) = [partition.name for partition in await list_partitions(conn, MESSAGE)][-1:]
    await conn.execute(f"DROP TABLE {before}")

    report = await maintain(store)
    assert len(report.failed) == 1
    assert before in report.created
    (alarm,) = await list_alarms(conn)
    assert alarm.kind == "PARTITION_SET_ASIDE"

    await conn.execute(f"DROP TYPE {last}")
    assert last in (await maintain(store)).created
    assert await list_alarms(conn) == []
