"""Rows that the services of this version would not write: those of a newer version, or of somebody's own hand."""

from __future__ import annotations

from typing import Final, NamedTuple

import psycopg

from confdb.models import CONFIG_CHANNEL
from confdb.routes import Snapshot
from msgbroker.server.app import Broker
from msgdb.reports.alarms import AlarmRow, list_alarms
from msgdb.store import MessageStore
from tests.support.collecting import GROUP, TOPIC
from tests.support.eventually import eventually

LEASE_SECONDS: Final = 60
"""A lane that is lost because the machine is busy would come with duplicates, and nothing here waits for a lease."""

_NEXT_VERSION: Final = "UPDATE config_version SET version = version + 1 RETURNING version"


class ByHand(NamedTuple):
    """A change that this version does not understand, and what takes it back."""

    change: tuple[str, ...]
    mending: tuple[str, ...]
    says: str
    """What the refusal and the alarm name."""


def _of_group(change: str, mending: str, says: str, constraint: str = "") -> ByHand:
    return _made("subscriber_group", f"WHERE name = '{GROUP}'", change, mending, says, constraint)


def _of_topic(change: str, mending: str, says: str, constraint: str = "") -> ByHand:
    return _made("topic", f"WHERE name = '{TOPIC}'", change, mending, says, constraint)


def _of_subscription(change: str, mending: str, says: str, *constraints: str) -> ByHand:
    where = (
        f"WHERE group_id = (SELECT group_id FROM subscriber_group WHERE name = '{GROUP}')"
        f" AND topic_id = (SELECT topic_id FROM topic WHERE name = '{TOPIC}')"
    )
    return _made("subscription", where, change, mending, says, *constraints)


def _made(table: str, where: str, change: str, mending: str, says: str, *constraints: str) -> ByHand:
    dropped = [f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name}" for name in constraints if name]
    return ByHand((*dropped, f"UPDATE {table} SET {change} {where}"), (f"UPDATE {table} SET {mending} {where}",), says)


OF_GROUP: Final = {
    "order KEY": _of_group("group_order = 'KEY'", "group_order = 'NONE'", "group-order-key"),
    "order GLOBAL": _of_group("group_order = 'GLOBAL'", "group_order = 'NONE'", "group-order-global"),
    "unknown order": _of_group(
        "group_order = 'REGION'", "group_order = 'NONE'", "group-order-region", "subscriber_group_group_order_check"
    ),
    "mode BROADCAST": _of_group("mode = 'BROADCAST'", "mode = 'SHARED'", "group-mode-broadcast"),
    "unknown mode": _of_group("mode = 'STICKY'", "mode = 'SHARED'", "group-mode-sticky", "subscriber_group_mode_check"),
    "required feature": _of_group("requires = '{group-colour}'", "requires = '{}'", "group-colour"),
    "broken schedule": _of_group(
        "retry_schedule_seconds = '{1,NULL}'", "retry_schedule_seconds = '{10}'", "retry_schedule_seconds"
    ),
    "endless wait": _of_group(
        "retry_schedule_seconds = '{Infinity}'", "retry_schedule_seconds = '{10}'", "retry_schedule_seconds"
    ),
    "timeout that is no number": _of_group(
        "ack_timeout_seconds = 'NaN'", "ack_timeout_seconds = 60", "ack_timeout_seconds"
    ),
    "no credit": _of_group("unsettled_max = -1", "unsettled_max = 100", "unsettled_max"),
}
"""The whole group is not served."""

OF_TOPIC: Final = {
    "topic kind ORDERED": _of_topic("kind = 'ORDERED'", "kind = 'NORMAL'", "topic-kind-ordered"),
    "unknown topic kind": _of_topic("kind = 'SPARSE'", "kind = 'NORMAL'", "topic-kind-sparse", "topic_kind_check"),
    "required feature of the topic": _of_topic("requires = '{topic-colour}'", "requires = '{}'", "topic-colour"),
    "no room for bodies": _of_topic("body_bytes_max = 0", "body_bytes_max = 8192", "body_bytes_max"),
    "far too many queues": _of_topic("queue_count = 2000000000", "queue_count = 4", "queue_count"),
}
"""Nothing is published to the topic, and nothing of it is served."""

OF_SUBSCRIPTION: Final = {
    "expression that does not compile": _of_subscription(
        "mode = 'HEADER', expression = 'nonsense('", "mode = 'DIRECT', expression = NULL", "expression"
    ),
    "unknown subscription mode": _of_subscription(
        "mode = 'SAMPLE', expression = '0.1'",
        "mode = 'DIRECT', expression = NULL",
        "subscription-mode-sample",
        "subscription_mode_check",
        "subscription_expression_check",
    ),
    "HEADER without an expression": _of_subscription(
        "mode = 'HEADER'", "mode = 'DIRECT'", "expression", "subscription_expression_check"
    ),
    "DIRECT with an expression": _of_subscription(
        "expression = 'true'", "expression = NULL", "expression", "subscription_expression_check"
    ),
    "pattern of event codes": _of_subscription("event_code = 'EC_P*'", "event_code = 'EC_PAID'", "event_code"),
    "offsets that are a list": _of_subscription("start_offsets = '[1]'", "start_offsets = '{}'", "start_offsets"),
    "offset that is a word": _of_subscription(
        """start_offsets = '{"1": "end"}'""", "start_offsets = '{}'", "start_offsets"
    ),
    "offset beyond all bounds": _of_subscription(
        """start_offsets = '{"1": 1e300}'""", "start_offsets = '{}'", "start_offsets"
    ),
    "required feature of the subscription": _of_subscription(
        "requires = '{subscription-colour}'", "requires = '{}'", "subscription-colour"
    ),
}
"""Of the group nothing of that topic is served."""


async def by_hand(url: str, *statements: str) -> int:
    """Carry out *statements* as one change of the configuration; return its version."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        for statement in statements:
            await connection.execute(statement.encode())
        await connection.execute("SELECT pg_notify(%s, '')", (CONFIG_CHANNEL,))
        row = await (await connection.execute(_NEXT_VERSION)).fetchone()
    assert row is not None
    version: int = row[0]
    return version


async def routed(version: int, *brokers: Broker) -> None:
    """Wait until the brokers route by *version*."""

    def snapshots() -> list[Snapshot]:
        return [broker.feed.current for broker in brokers]

    await eventually(lambda: all(snapshot.version >= version for snapshot in snapshots()), what=f"version {version}")


async def standing(store: MessageStore) -> list[AlarmRow]:
    """Return the alarms that stand, as everybody reads them."""
    async with store.connection() as connection:
        return [alarm for alarm in await list_alarms(connection) if alarm.kind == "NOT_UNDERSTOOD"]


async def alarmed(store: MessageStore, says: str) -> AlarmRow:
    """Return the one alarm once it stands."""

    async def find() -> list[AlarmRow]:
        return [alarm for alarm in await standing(store) if says in alarm.detail]

    (alarm,) = await eventually(find, what=f"an alarm that says {says}")
    return alarm


async def not_alarmed(store: MessageStore) -> None:
    """Wait until nothing is said to be not understood."""

    async def is_quiet() -> bool:
        return not await standing(store)

    await eventually(is_quiet, what="no alarm")
