"""What was published and delivered, and how far groups were behind, as operators ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from confdb.brokers import BrokerBeat, BrokerRegistry
from confdb.features import UNDERSTOOD
from confdb.store import ConfigStore
from msgbroker.engine.matching_share import asked_of
from msgdb.figures.latency import CLASSES
from msgdb.figures.usage import MINUTE_US, UsageBroker, UsageRow, write_usage
from msgdb.postgres.connections import Connection
from tests.integration.msgconsole.cli.conftest import Do, Msgcenter
from tests.support.broker_builders import subscription
from tests.support.examples import examples_of

BROKER = UsageBroker(UUID(int=1), "broker-1:7400", datetime.now(UTC), has_ended=True)
FAST = [0, 9, *[0] * (CLASSES - 3), 1]
_BACKLOG = """
INSERT INTO backlog_minute (group_id, queue_id, minute, topic_id, behind, behind_max, redeliveries, late_since)
VALUES (%s, %s, %s, %s, %s, %s, 0, %s)
"""

_QUEUE = "SELECT queue_id FROM queue WHERE topic_id = 1 AND ordinal = %s"
_LEARNT = """
INSERT INTO cursor (group_id, member, queue_id, acked_offset, matching_asked, matching_share, matching_read)
VALUES (1, '', %s, %s, %s, %s, 1000)
"""
_MESSAGES = """
INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, body, born_at, stress)
SELECT %s, o, clock_timestamp(), gen_random_uuid(), 'default', 'TP_TRADE', 'EC_PAID', '', now(), false
FROM generate_series(%s::int, %s::int - 1) o
"""


@pytest.fixture
def registered(msgcenter: Msgcenter) -> dict[str, int]:
    """Register a topic and a group, and return their ids."""
    for arguments in (
        ("topic", "create", "TP_TRADE"),
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("group", "create", "SG_POINTS"),
        ("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID"),
    ):
        assert msgcenter(*arguments).status == 0
    return {"topic_id": 1, "group_id": 1}


@pytest.fixture
def connect(database_url: str) -> Callable[[], None]:
    """Return a function by which a live broker has two instances of the first group from then on."""
    # It routes by whatever is changed.
    beat = BrokerBeat(UUID(int=1), "here:1", "h", 1, snapshot_version=1_000, groups={1: 2}, features=UNDERSTOOD)

    def run() -> None:
        async def inner() -> None:
            async with ConfigStore.open(database_url) as store:
                await BrokerRegistry(store).beat(beat)

        asyncio.run(inner())
        with psycopg.connect(database_url) as connection:
            # Live for as long as the test takes.
            connection.execute("UPDATE broker SET heartbeat_at = now() + interval '1 hour'")

    return run


def ago(minutes: int) -> datetime:
    """Return a minute, so long ago."""
    return datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=minutes)


def row(minutes_ago: int, topic_id: int = 1, group_id: int = 0, **counts: Any) -> UsageRow:
    at_us = round(ago(0).timestamp()) * 1_000_000 - minutes_ago * MINUTE_US
    return UsageRow(at_us, topic_id, group_id, "EC_PAID", stress=False)._replace(**counts)


def write(do: Do, *rows: UsageRow, broker: UsageBroker = BROKER) -> None:
    do(lambda conn: write_usage(conn, rows, broker))


@pytest.mark.usefixtures("registered")
def test_usage_is_added_up_by_type_and_group(msgcenter: Msgcenter, do: Do) -> None:
    write(do, row(1, published=10, size_bytes=900), row(5, published=5, size_bytes=100))
    write(do, row(1, group_id=1, delivered=10, size_bytes=900, latency=FAST, retried=2))

    report = msgcenter("usage", "--json").json

    published, delivered = report["rows"]
    assert (published["topic"], published["event_code"], published["group"]) == ("TP_TRADE", "EC_PAID", None)
    assert (published["published"], published["bytes"], published["p99_seconds"]) == (15, 1000, None)
    assert (delivered["group"], delivered["delivered"], delivered["retried"]) == ("SG_POINTS", 10, 2)
    assert delivered["p50_seconds"] == 0.002
    assert (report["is_complete"], report["incomplete"]) == (True, [])
    table = msgcenter("usage").out
    assert "SG_POINTS" in table
    assert "retried" in table
    assert not {"redriven", "dead", "stress"} & set(table.split())


@pytest.mark.usefixtures("registered")
def test_usage_is_added_up_by_topic_and_says_of_when_it_is(msgcenter: Msgcenter, do: Do) -> None:
    slow = [0, 0, 2, *[0] * (CLASSES - 3)]
    write(do, row(1, published=10, size_bytes=900), row(1, published=5, size_bytes=100)._replace(event_code="EC_B"))
    write(do, row(1, group_id=1, delivered=10, size_bytes=900, latency=FAST, retried=2))
    write(do, row(1, group_id=1, delivered=2, size_bytes=50, latency=slow)._replace(event_code="EC_B"))
    write(do, row(1, published=3)._replace(stress=True))

    report = msgcenter("usage", "--by-topic", "--json").json

    usual, stress = sorted(report["rows"], key=lambda each: each["stress"])
    assert (usual["topic"], usual["published"], usual["bytes"]) == ("TP_TRADE", 15, 1000)
    assert (usual["delivered"], usual["retried"], usual["p50_seconds"]) == (12, 2, 0.002)
    assert (stress["published"], stress["delivered"], stress["p99_seconds"]) == (3, 0, None)
    assert report["is_complete"] is True
    head, _, first, *_, last = msgcenter("usage", "--by-topic", "--since", "30m").out.splitlines()
    assert not {"event", "group"} & {*head.split()}
    assert first.split()[0] == "TP_TRADE"
    assert last.startswith("From 20")
    assert last.endswith(" (UTC).")


@pytest.mark.usefixtures("registered")
def test_usage_is_shown_minute_by_minute_and_for_a_time(msgcenter: Msgcenter, do: Do) -> None:
    write(do, *(row(minutes, published=1) for minutes in (1, 2, 30, 90)))

    by_minute = msgcenter("usage", "--by", "minute", "--json").json["rows"]
    longer = msgcenter("usage", "--since", "2h", "--json").json["rows"]

    assert [each["published"] for each in by_minute] == [1, 1, 1]
    begun = [datetime.fromisoformat(each["begins_at"]) for each in by_minute]
    assert begun[2] - begun[1] == timedelta(minutes=1)
    assert [each["published"] for each in longer] == [4]
    assert msgcenter("usage", "--since", "20m", "--until", "10m").out == "Nothing was counted in that time.\n"


@pytest.mark.usefixtures("registered")
def test_minutes_that_lack_something_are_told(msgcenter: Msgcenter, do: Do) -> None:
    killed_at, doubted = ago(5), row(9, topic_id=0, lacks=True)
    write(do, row(5, published=1), broker=BROKER._replace(counted_until=killed_at, has_ended=False))
    write(do, doubted, broker=BROKER._replace(broker_id=UUID(int=2)))

    told = msgcenter("usage")
    report = msgcenter("usage", "--json").json

    assert told.status == 0
    assert "Incomplete: 2 minute(s) may lack what a broker counted" in told.err
    assert report["is_complete"] is False
    doubted_at = datetime.fromtimestamp(doubted.minute_us / 1_000_000, UTC)
    assert report["incomplete"] == [doubted_at.isoformat(), killed_at.isoformat()]


@pytest.mark.usefixtures("registered")
def test_what_was_deleted_since_is_told_by_its_id(msgcenter: Msgcenter, do: Do) -> None:
    write(do, row(1, topic_id=99, published=1))

    assert msgcenter("usage", "--json").json["rows"][0]["topic"] == "(deleted topic 99)"
    assert msgcenter("usage", "--topic", "TP_TRADE", "--json").json["rows"] == []


def make_again(msgcenter: Msgcenter) -> None:
    """Delete the topic and the group, and register others by their names."""
    for arguments in (
        ("topic", "delete", "TP_TRADE", "--force", "--reason", "made again"),
        ("group", "delete", "SG_POINTS", "--force", "--reason", "made again"),
        ("topic", "create", "TP_TRADE"),
        ("group", "create", "SG_POINTS"),
    ):
        done = msgcenter(*arguments)
        assert done.status == 0, done.err


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    "asked", [(), ("-n", "default"), ("--topic", "TP_TRADE"), ("-n", "default", "--group", "SG_POINTS")]
)
def test_figures_of_what_was_deleted_are_shown_by_its_name_then(
    msgcenter: Msgcenter, do: Do, asked: tuple[str, ...]
) -> None:
    write(do, row(2, group_id=1, delivered=3))
    write_backlog(do, (2, 1, 7, None))
    make_again(msgcenter)
    write(do, row(1, topic_id=2, group_id=2, delivered=4))
    earlier = ("default", "TP_TRADE (deleted topic 1)", "SG_POINTS (deleted group 1)")

    usage = msgcenter("usage", *asked, "--json").json["rows"]
    history = msgcenter("lag", "--history", *asked, "--json").json["rows"]

    assert [(each["namespace"], each["topic"], each["group"], each["delivered"]) for each in usage] == [
        (*earlier, 3),
        ("default", "TP_TRADE", "SG_POINTS", 4),
    ]
    assert [(each["namespace"], each["topic"], each["group"], each["behind"]) for each in history] == [(*earlier, 7)]


@pytest.mark.usefixtures("registered")
def test_figures_of_what_was_deleted_in_another_namespace_are_not_shown(msgcenter: Msgcenter, do: Do) -> None:
    write(do, row(2, group_id=1, delivered=3))
    write_backlog(do, (2, 1, 7, None))
    make_again(msgcenter)
    assert msgcenter("namespace", "create", "other").status == 0

    assert msgcenter("usage", "-n", "other", "--json").json["rows"] == []
    assert msgcenter("lag", "--history", "-n", "other", "--json").json["rows"] == []
    refused = msgcenter("usage", "-n", "other", "--topic", "TP_TRADE")
    assert (refused.status, "(TOPIC_NOT_FOUND)" in refused.err) == (1, True)


@pytest.mark.usefixtures("registered")
def test_more_deletions_than_are_looked_at_are_told(
    msgcenter: Msgcenter, do: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(do, row(2, group_id=1, delivered=3))
    make_again(msgcenter)
    monkeypatch.setattr("confdb.deleted.DELETIONS_MAX", 1)

    told = [msgcenter("usage", "-n", "default"), msgcenter("lag", "--history", "-n", "default")]

    assert [(each.status, "more topics and groups were deleted" in each.err) for each in told] == [(0, True)] * 2
    assert msgcenter("usage", "--json").json["knows_all_deleted"] is False


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    "arguments, status, said",
    [
        (("usage", "--topic", "TP_TYPO"), 1, "(TOPIC_NOT_FOUND)"),
        (("usage", "--group", "SG_TYPO"), 1, "(GROUP_NOT_FOUND)"),
        (("usage", "--since", "40d"), 1, "(INVALID_SETTING)"),
        (("usage", "--since", "1h", "--until", "2h"), 1, "(INVALID_SETTING)"),
        (("usage", "--by", "week"), 2, "week"),
        (("lag", "--history", "--group", "SG_TYPO"), 1, "(GROUP_NOT_FOUND)"),
        (("lag", "--history", "--since", "40d"), 1, "(INVALID_SETTING)"),
        (("lag", "--since", "2h"), 2, "--history"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    msgcenter: Msgcenter, arguments: tuple[str, ...], status: int, said: str
) -> None:
    refused = msgcenter(*arguments)

    assert (refused.status, refused.out) == (status, "")
    assert said in refused.err


@pytest.mark.usefixtures("registered")
def test_the_history_of_a_backlog_is_shown(msgcenter: Msgcenter, do: Do) -> None:
    write_backlog(do, (1, 2, 7, None), (2, 2, 5, None), (1, 1, 3, None), (61, 1, 9, None))

    report = msgcenter("lag", "--history", "--group", "SG_POINTS", "--json").json

    assert [(each["group"], each["topic"], each["behind"]) for each in report["rows"]] == [
        ("SG_POINTS", "TP_TRADE", 5),
        ("SG_POINTS", "TP_TRADE", 10),
    ]
    # Nobody has looked, as far as the store knows.
    assert report["not_looked_at"]
    table = msgcenter("lag", "--history", "--since", "2h", "--by", "hour")
    assert "SG_POINTS" in table.out
    assert "Nobody looked from" in table.err
    assert msgcenter("lag", "--history", "--since", "9h", "--until", "8h").out == "Nobody was behind in that time.\n"


@pytest.mark.usefixtures("registered")
def test_lag_tells_the_worst_first_and_since_when_and_when_it_is_done(
    msgcenter: Msgcenter, do: Do, connect: Callable[[], None]
) -> None:
    queue_id = do(lambda conn: store_messages(conn, 4))
    # It begins behind what is stored already.
    assert msgcenter("group", "create", "SG_LESS").status == 0
    assert msgcenter("subscription", "create", "SG_LESS", "TP_TRADE", "EC_PAID").status == 0
    late_since = ago(9)
    write_backlog(do, (3, queue_id, 24, late_since), (1, queue_id, 4, late_since), group_id=1)
    write_backlog(do, (3, 0, 24, None), (1, 0, 4, None), group_id=0, topic_id=0)
    connect()

    ours, other = msgcenter("lag", "--json").json

    assert [(lag["group"], lag["behind"]) for lag in (ours, other)] == [("SG_POINTS", 4), ("SG_LESS", 0)]
    assert (ours["since"], other["since"]) == (late_since.isoformat(), None)
    assert (ours["per_minute"], ours["drain_seconds"]) == (-10.0, 24.0)
    table = msgcenter("lag", "--group", "SG_POINTS").out
    assert f"{late_since:%H:%M:%S}" in table or f"{late_since:%m-%d %H:%M}" in table
    assert "24 s" in table
    assert msgcenter("lag", "--by-queue", "--json").json[0]["since"] == late_since.isoformat()


@pytest.mark.usefixtures("registered")
def test_a_group_that_was_never_connected_is_behind_since_the_oldest_message_it_wants(
    msgcenter: Msgcenter, do: Do
) -> None:
    queue_id = do(lambda conn: store_messages(conn, 4))
    # It begins behind what is stored already.
    assert msgcenter("group", "create", "SG_LESS").status == 0
    assert msgcenter("subscription", "create", "SG_LESS", "TP_TRADE", "EC_PAID").status == 0
    stored = do(lambda conn: store_messages(conn, 2, first=4))

    both = {lag["group"]: lag for lag in msgcenter("lag", "--json").json}
    by_queue = msgcenter("lag", "--by-queue", "--group", "SG_LESS", "--json").json

    assert stored == queue_id
    times = [row[0] for row in do(partial(fetch_all, statement="SELECT stored_at FROM message ORDER BY queue_offset"))]
    for group, offset in (("SG_POINTS", 0), ("SG_LESS", 4)):
        assert both[group]["since"] == times[offset].astimezone(UTC).isoformat()
        assert 0 <= both[group]["oldest_seconds"] < 60
    assert [lag["since"] is not None for lag in by_queue] == [lag["queue_id"] == queue_id for lag in by_queue]


@pytest.mark.usefixtures("registered")
def test_a_group_that_falls_further_behind_is_told_to(
    msgcenter: Msgcenter, do: Do, connect: Callable[[], None]
) -> None:
    queue_id = do(lambda conn: store_messages(conn, 4))
    write_backlog(do, (1, queue_id, 4, None), group_id=1)
    write_backlog(do, (3, 0, 0, None), (1, 0, 4, None), group_id=0, topic_id=0)
    connect()

    (lag,) = msgcenter("lag", "--json").json

    assert (lag["per_minute"], lag["drain_seconds"]) == (2.0, None)
    assert "it grows" in msgcenter("lag").out


@pytest.mark.usefixtures("registered")
def test_a_group_without_an_instance_is_not_told_when_it_is_done_and_a_paused_one_neither(
    msgcenter: Msgcenter, do: Do, connect: Callable[[], None]
) -> None:
    queue_id = do(lambda conn: store_messages(conn, 4))
    write_backlog(do, (3, queue_id, 24, None), (1, queue_id, 4, None), group_id=1)
    write_backlog(do, (3, 0, 24, None), (1, 0, 4, None), group_id=0, topic_id=0)
    told = ("instances", "paused", "per_minute", "drain_seconds")

    (alone,) = msgcenter("lag", "--json").json
    assert [alone[name] for name in told] == [0, False, -10.0, None]
    assert "no instance" in msgcenter("lag").out
    connect()
    (served,) = msgcenter("lag", "--json").json
    assert [served[name] for name in told] == [2, False, -10.0, 24.0]
    table = msgcenter("lag").out
    assert "24 s" in table
    assert "no instance" not in table
    for pause, resume in (
        (("group", "update", "SG_POINTS", "--pause"), ("group", "update", "SG_POINTS", "--resume")),
        (
            ("subscription", "update", "SG_POINTS", "TP_TRADE", "EC_PAID", "--pause"),
            ("subscription", "update", "SG_POINTS", "TP_TRADE", "EC_PAID", "--resume"),
        ),
    ):
        assert msgcenter(*pause).status == 0
        (paused,) = msgcenter("lag", "--json").json
        assert [paused[name] for name in told] == [2, True, -10.0, None]
        assert all(each["paused"] for each in msgcenter("lag", "--by-queue", "--json").json)
        assert "paused" in msgcenter("lag").out
        assert msgcenter(*resume).status == 0


@pytest.mark.usefixtures("registered")
def test_lag_tells_how_much_of_it_matches_and_where_that_is_not_known(msgcenter: Msgcenter, do: Do) -> None:
    queue_id = do(lambda conn: store_messages(conn, 400))
    assert msgcenter("lag", "--json").json[0]["matching"] is None
    assert "not known" in msgcenter("lag").out
    asked = asked_of([subscription()], 1)
    do(lambda conn: conn.execute(_LEARNT, (queue_id, 300, asked, 0.25)))
    (lag,) = msgcenter("lag", "--json").json
    assert (lag["behind"], lag["matching"], lag["matching_unknown"]) == (100, 25, 0)
    assert "about 25 " in msgcenter("lag").out

    # Nobody has read the other queue yet.
    do(lambda conn: store_messages(conn, 30, number=1))

    (lag,) = msgcenter("lag", "--json").json
    assert (lag["behind"], lag["matching"], lag["matching_unknown"]) == (130, 25, 30)
    assert "about 25 + ?" in " ".join(msgcenter("lag").out.split())
    by_queue = msgcenter("lag", "--by-queue", "--json").json
    assert [(row["behind"], row["matching"]) for row in by_queue[:3]] == [(100, 25), (30, None), (0, 0)]


@pytest.mark.usefixtures("registered")
def test_the_history_tells_how_much_of_it_matched(msgcenter: Msgcenter, do: Do) -> None:
    write_backlog(do, (1, 2, 7, None), (1, 1, 400, None), (2, 1, 0, None))
    do(lambda conn: conn.execute("UPDATE backlog_minute SET matching = 40 WHERE queue_id = 1"))

    rows = msgcenter("lag", "--history", "--json").json["rows"]

    assert [(row["behind"], row["matching"], row["matching_unknown"]) for row in rows] == [(0, 0, 0), (407, 40, 7)]
    table = msgcenter("lag", "--history").out
    assert "about 40 + ?" in " ".join(table.split())


@pytest.mark.usefixtures("registered")
def test_the_examples_of_the_help_can_be_typed(msgcenter: Msgcenter) -> None:
    for example in examples_of("usage", "lag"):
        assert msgcenter(*example).status == 0


def write_backlog(do: Do, *looks: tuple[int, int, int, datetime | None], group_id: int = 1, topic_id: int = 1) -> None:
    """Write looks: how many minutes ago, at which queue, how far behind, since when late."""

    async def insert(conn: Connection) -> None:
        for minutes_ago, queue_id, behind, late_since in looks:
            values = (group_id, queue_id, ago(minutes_ago), topic_id, behind, behind, late_since)
            await conn.execute(_BACKLOG, values)

    do(insert)


async def store_messages(conn: Connection, count: int, number: int = 0, first: int = 0) -> int:
    """Store messages of the topic in its first queue, or another one; return which."""
    row = await (await conn.execute(_QUEUE, (number,))).fetchone()
    assert row is not None
    await conn.execute(_MESSAGES, (row[0], first, first + count))
    return int(row[0])


async def fetch_all(conn: Connection, statement: str) -> list[Any]:
    """Return what a statement finds."""
    return await (await conn.execute(statement)).fetchall()


@pytest.mark.parametrize("command", [("usage",), ("lag", "--history")])
def test_what_ends_as_time_begins_is_refused(msgcenter: Msgcenter, command: tuple[str, ...]) -> None:
    refused = msgcenter(*command, "--until", "0001-01-01")

    assert (refused.status, refused.out) == (1, "")
    assert refused.err.endswith("(INVALID_SETTING)\n")
