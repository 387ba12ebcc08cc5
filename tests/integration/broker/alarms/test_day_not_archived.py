"""Every broker says that a day is kept because it is not archived, and serves all the same."""

from __future__ import annotations

import pytest

from msgbroker.server.edge import archive_watch
from msgdb.names import MESSAGE
from msgdb.reports.alarms import STORE_ITSELF, list_alarms, write_alarms
from msgdb.store import MessageStore
from tests.support.archive_rows import require_archive
from tests.support.broker_fixtures import StartBroker
from tests.support.eventually import eventually
from tests.support.health import NOT_SERVING, SERVING, health
from tests.support.rows import make_queue, put_messages


async def test_health_tells_that_a_day_waits_until_it_does_no_longer(
    message_store: MessageStore, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_watch, "_LOOK_SECONDS", 0.0)
    async with message_store.connection() as conn:
        await put_messages(conn, await make_queue(conn), range(3), days_ago=8)
        await require_archive(conn, MESSAGE)
    brokers = [await start_broker() for _ in range(2)]

    async def all_say(status: int) -> bool:
        return {await health(broker.address, "archive") for broker in brokers} == {status}

    await eventually(lambda: all_say(NOT_SERVING))
    assert [await health(broker.address) for broker in brokers] == [SERVING, SERVING]
    async with message_store.connection() as conn:
        (alarm,) = await list_alarms(conn)
        assert alarm.kind == "DAY_NOT_ARCHIVED"
        # As the next round would, once it is waived.
        await write_alarms(conn, STORE_ITSELF, "", ())
    await eventually(lambda: all_say(SERVING))
