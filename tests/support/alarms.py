"""Alarms as tests look for them, and what makes some stand."""

from __future__ import annotations

from msgdb.reports.alarms import AlarmRow, list_alarms
from msgdb.store import MessageStore
from tests.support.eventually import eventually


async def alarm_of(store: MessageStore, kind: str) -> AlarmRow:
    """Return the only alarm of that kind, once it stands."""

    async def find() -> AlarmRow | None:
        async with store.connection() as conn:
            return next((row for row in await list_alarms(conn) if row.kind == kind), None)

    found = await eventually(find, 20, what=f"the alarm {kind}")
    assert found is not None
    return found


async def no_alarm(store: MessageStore) -> None:
    async def is_none() -> bool:
        async with store.connection() as conn:
            return not await list_alarms(conn)

    await eventually(is_none, 30, what="no alarm any more")


async def execute(store: MessageStore, *statements: str) -> None:
    async with store.connection() as conn:
        for statement in statements:
            await conn.execute(statement)


async def refuse_messages(store: MessageStore, topic: str) -> None:
    """Let no message of the topic be stored, for a reason that nobody foresaw."""
    await execute(
        store,
        REFUSE,
        f"CREATE TRIGGER odd BEFORE INSERT ON message FOR EACH ROW WHEN (NEW.topic = '{topic}')"
        " EXECUTE FUNCTION refuse()",
    )


REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'a page of this index is damaged' USING ERRCODE = 'XX002'; END $$
"""
