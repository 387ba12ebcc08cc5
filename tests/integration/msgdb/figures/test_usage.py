"""What brokers counted, in the store: each in rows of its own, added up for whoever asks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgdb.days.maintenance import Maintenance, MaintenanceConfig
from msgdb.figures.latency import CLASSES
from msgdb.figures.usage import (
    MINUTE_US,
    UsageBroker,
    UsageOf,
    UsageRow,
    forget_usage_brokers,
    list_lacking,
    list_usage,
    list_usage_brokers,
    write_usage,
)
from msgdb.log.partitions import list_partitions
from msgdb.names import BACKLOG_MINUTE, USAGE_MINUTE
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore

NOW = datetime.now(UTC).replace(second=0, microsecond=0)
MINUTE_OF_NOW_US = round(NOW.timestamp()) * 1_000_000
LATENCY = [*range(1, CLASSES), 5]


def broker(number: int, *, at: datetime = NOW, has_ended: bool = False) -> UsageBroker:
    return UsageBroker(UUID(int=number), f"broker-{number}:7400", at, has_ended)


def row(minutes_ago: int = 0, **fields: object) -> UsageRow:
    given = UsageRow(MINUTE_OF_NOW_US - minutes_ago * MINUTE_US, 1, 0, "EC_PAID", stress=False)
    return given._replace(**fields)  # type: ignore[arg-type]


def wanted(*, minutes: int = 60, step_seconds: int = 60, **fields: object) -> UsageOf:
    since = NOW - timedelta(minutes=minutes)
    return UsageOf(since, NOW + timedelta(minutes=1), step_seconds)._replace(**fields)  # type: ignore[arg-type]


async def test_rows_of_all_brokers_are_added_up(conn: Connection) -> None:
    delivered = row(group_id=7, delivered=4, retried=3, dead_lettered=2, size_bytes=100, latency=LATENCY)
    await write_usage(conn, [row(published=5, size_bytes=50), delivered], broker(1))
    await write_usage(conn, [row(published=2, size_bytes=1), delivered], broker(2))

    published, both = await list_usage(conn, wanted())

    assert (published.begins_at, published.published, published.size_bytes) == (NOW, 7, 51)
    assert sum(published.latency) == 0
    assert both[1:3] == (1, 7)
    assert (both.delivered, both.retried, both.dead_lettered, both.size_bytes) == (8, 6, 4, 200)
    assert list(both.latency) == [2 * count for count in LATENCY]


async def test_totals_that_are_written_again_replace_those_of_before(conn: Connection) -> None:
    await write_usage(conn, [row(published=5)], broker(1))
    await write_usage(conn, [row(published=5)], broker(1))
    await write_usage(conn, [row(published=9)], broker(1, at=NOW + timedelta(seconds=10)))

    assert [usage.published for usage in await list_usage(conn, wanted())] == [9]
    assert [each.counted_until for each in await list_usage_brokers(conn)] == [NOW + timedelta(seconds=10)]


async def test_it_is_asked_for_by_topic_and_group_and_for_as_long_as_one_likes(conn: Connection) -> None:
    rows = [
        row(minutes, topic_id=topic_id, group_id=group_id, published=1, stress=stress)
        for minutes in (0, 1, 59)
        for topic_id in (1, 2)
        for group_id in (0, 7)
        for stress in (False, True)
    ]
    await write_usage(conn, rows, broker(1))

    assert len(await list_usage(conn, wanted())) == 24
    assert len(await list_usage(conn, wanted(minutes=10))) == 16
    assert {each.topic_id for each in await list_usage(conn, wanted(topic_ids=[2]))} == {2}
    assert {each.group_id for each in await list_usage(conn, wanted(group_ids=[7]))} == {7}
    assert {each.published for each in await list_usage(conn, wanted(step_seconds=86_400 * 365))} == {3}
    assert len(await list_usage(conn, wanted(), limit=5)) == 5


async def test_a_minute_that_may_lack_something_is_told_and_is_no_row_of_anybody(conn: Connection) -> None:
    await write_usage(conn, [row(2, topic_id=0, event_code="", lacks=True), row(1)], broker(1))

    assert await list_lacking(conn, NOW - timedelta(hours=1), NOW) == [NOW - timedelta(minutes=2)]
    assert [each.topic_id for each in await list_usage(conn, wanted())] == [1]


async def test_a_broker_that_has_nothing_to_count_says_how_far_it_is(conn: Connection) -> None:
    await write_usage(conn, [], broker(1))
    await write_usage(conn, [], broker(1, at=NOW - timedelta(seconds=5)))
    await write_usage(conn, [], broker(2, at=NOW + timedelta(seconds=5), has_ended=True))

    assert await list_usage_brokers(conn) == [broker(1), broker(2, at=NOW + timedelta(seconds=5), has_ended=True)]


async def test_brokers_that_write_at_once_do_not_wait_for_each_other(store: MessageStore) -> None:
    async with store.connection() as one, store.connection() as other:
        async with one.transaction():
            await write_usage(one, [row(published=1)], broker(1))
            async with asyncio.timeout(5):
                await write_usage(other, [row(published=2)], broker(2))

        assert [usage.published for usage in await list_usage(one, wanted())] == [3]


async def test_a_day_that_is_missing_is_made(conn: Connection) -> None:
    far = datetime(2031, 5, 17, 12, tzinfo=UTC)
    at_us = round(far.timestamp()) * 1_000_000

    await write_usage(conn, [row()._replace(minute_us=at_us, published=1)], broker(1))

    assert [each.day.isoformat() for each in await list_partitions(conn, USAGE_MINUTE)][-1] == "2031-05-17"


async def test_figures_are_dropped_by_days_after_a_month_and_so_is_who_counted_them(
    store: MessageStore, conn: Connection
) -> None:
    long_ago = NOW - timedelta(days=31)
    old_us = round(long_ago.timestamp()) // 60 * MINUTE_US
    await write_usage(conn, [row(published=1)._replace(minute_us=old_us)], broker(1, at=long_ago))
    await write_usage(conn, [row(published=1)], broker(2))

    report = await Maintenance(store, MaintenanceConfig(), group_names=dict).maintain_once()

    assert report is not None
    assert sorted(report.dropped) == [
        f"{table}_p{long_ago:%Y%m%d}"
        for table in (BACKLOG_MINUTE, "message", "publisher_frame", "trace_event", USAGE_MINUTE)
    ]
    await forget_usage_brokers(conn)
    assert [each.broker_id for each in await list_usage_brokers(conn)] == [UUID(int=2)]
