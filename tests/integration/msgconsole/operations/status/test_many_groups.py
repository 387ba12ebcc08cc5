"""A namespace of two thousand groups: as many statements as for one, and no more work than there are changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from confdb.services import ConfigService
from msgconsole.operations.status import moments
from msgconsole.operations.status.answers import State
from msgconsole.operations.status.message_status import find_status
from msgconsole.operations.status.wanted import WantedStatus
from msgconsole.operations.stores import Stores
from tests.support.collecting import PAID, TOPIC
from tests.support.rows import put_messages

GROUPS = 2_000

# After the message was stored: each group, its subscription, and both in the audit trail.
_REGISTER = """
INSERT INTO subscriber_group (namespace_id, name, ack_timeout_seconds, retry_schedule_seconds, attempts_max,
                              unsettled_max, requires)
SELECT t.namespace_id, 'SG_' || n, 60, '{{1}}', 2, 100, '{{}}' FROM topic t, generate_series(1, {count}) n;
INSERT INTO subscription (group_id, topic_id, event_code, mode, start_offsets, requires)
SELECT g.group_id, t.topic_id, 'EC_PAID', 'DIRECT', '{{}}', '{{}}' FROM subscriber_group g, topic t;
INSERT INTO audit_entry (at, actor, action, kind, namespace, name, after, config_version)
SELECT clock_timestamp(), 'ada', 'subscriber_group.create', 'subscriber_group', 'default', g.name,
       jsonb_build_object('group_id', g.group_id, 'name', g.name, 'paused', false), 1000000 + g.group_id
FROM subscriber_group g ORDER BY g.group_id;
INSERT INTO audit_entry (at, actor, action, kind, namespace, name, after, config_version)
SELECT clock_timestamp(), 'ada', 'subscription.create', 'subscription', 'default', g.name || ' TP_TRADE/EC_PAID',
       jsonb_build_object('subscription_id', s.subscription_id, 'group', g.name, 'topic', 'TP_TRADE', 'event_code',
           s.event_code, 'mode', s.mode, 'expression', NULL, 'start_offsets', '{{}}'::jsonb, 'paused', false),
       2000000 + g.group_id
FROM subscriber_group g JOIN subscription s USING (group_id) ORDER BY g.group_id;
"""
# All but the last ten groups have settled it.
_SETTLE = (
    "INSERT INTO cursor (group_id, member, queue_id, acked_offset) SELECT g, '', %s, 1 FROM unnest(%s::bigint[]) g"
)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the statements that are sent, by either way to a database."""
    sent: list[str] = []
    execute: Callable[..., Any] = psycopg.AsyncCursor.execute

    async def noted(cursor: Any, query: Any, *arguments: Any, **more: Any) -> Any:
        sent.append(str(query))
        return await execute(cursor, query, *arguments, **more)

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", noted)
    return sent


async def test_two_thousand_groups_cost_as_many_statements_as_one(
    stores: Stores, config: ConfigService, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await config.topics.create("default", TOPIC, queue_count=1)
    await config.event_codes.add("default", TOPIC, PAID)
    await config.subscriber_groups.create("default", "SG_FIRST")
    queue_id = await first_queue(stores, config)
    async with stores.messages.connection() as conn:
        (row,) = await put_messages(conn, queue_id, range(1))
    wanted = WantedStatus(namespace="default", message_id=UUID(bytes=row.message_id))
    statements.clear()
    assert len((await find_status(stores, wanted)).places[0].groups) == 1
    with_one = len(statements)

    async with stores.messages.connection() as conn:
        await conn.execute(_REGISTER.format(count=GROUPS))
        ids = [each[0] for each in await (await conn.execute("SELECT group_id FROM subscriber_group")).fetchall()]
        await conn.execute(_SETTLE, (queue_id, sorted(ids)[:-10]))
    made = 0
    of_group = moments._OfTopic.of_group

    def counted(*arguments: Any) -> Any:
        nonlocal made
        made += 1
        return of_group(*arguments)

    monkeypatch.setattr(moments._OfTopic, "of_group", counted)
    statements.clear()
    found = await find_status(stores, wanted)

    # With those that look for the trace of what is not certain.
    assert len(statements) <= with_one + 6
    told = found.places[0].groups
    assert len(told) == GROUPS + 1
    states = [each.state for each in told]
    assert (states.count(State.DELIVERED), states.count(State.PENDING)) == (GROUPS - 9, 10)
    # What each group was at first, and what each of its two changes made of it; twice, with the trace.
    assert made <= 2 * 3 * (GROUPS + 1)


async def first_queue(stores: Stores, config: ConfigService) -> int:
    await config.subscriptions.create("default", "SG_FIRST", TOPIC, PAID)
    await config.subscriptions.delete("default", "SG_FIRST", TOPIC, PAID)
    async with stores.messages.connection() as conn:
        row = await (await conn.execute("SELECT queue_id FROM queue")).fetchone()
    assert row is not None
    queue_id: int = row[0]
    return queue_id
