"""What is stored once more for one group: the same message under its id, in memory as in the store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from msgbroker.server.log.encoding import delivery_of
from msgbroker.server.log.message import LogMessage
from msgbroker.server.log.stored_rows import messages_of_rows
from msgbroker.server.publish.stamping import stamped_by_queue
from msgbroker.server.publish.stored_again import REDRIVES_MAX, stored_again
from msgbroker.v1 import subscriber_pb2
from msgdb.append.appender import Appender
from msgdb.append.copy_rows import Target
from msgdb.append.outcome import Refused
from msgdb.append.plan import AppendFrame, Stored
from msgdb.log.reads import MessageRow
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.appending import REFUSED, new_publisher, open_appender, rows_of
from tests.support.broker_builders import route
from tests.support.rows import make_queue

BORN_AT_US = 1_700_000_000_000_000
GROUP_ID = 7


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[MessageStore]:
    async with MessageStore.open(database_url, pool_size=2) as opened:
        yield opened


@pytest.fixture
async def conn(store: MessageStore) -> AsyncIterator[Connection]:
    async with store.connection() as conn:
        yield conn


@pytest.fixture
async def appender(store: MessageStore) -> AsyncIterator[Appender]:
    async with open_appender(store) as appender:
        yield appender


def row(number: int, **said: object) -> MessageRow:
    plain: dict[str, object] = {
        "queue_id": 99,
        "queue_offset": number,
        "stored_at_us": BORN_AT_US,
        "message_id": bytes([number]) * 16,
        "namespace": "default",
        "topic": "TP_TRADE",
        "event_code": "EC_PAID",
        "key": None,
        "ordering_key": None,
        "headers": None,
        "body": b"",
        "born_at_us": BORN_AT_US + number,
        "born_host": None,
        "publisher_group": None,
        "stress": False,
        "target_group": None,
        "redrives": 0,
    }
    return MessageRow(**{**plain, **said})  # type: ignore[arg-type]


ROWS = [
    row(1),
    row(2, key="order-1", headers={"region": "hz", "名": "值"}, body=bytes(range(256)), born_host="shop-1"),
    row(3, key="a", ordering_key="b", publisher_group="PG_SHOP", stress=True, body=b"x" * 100_000),
    row(4, ordering_key="b", target_group=3, redrives=2),
]


async def append(appender: Appender, queue_id: int, redrives: int, *refusals: Refused) -> list[LogMessage]:
    """Store ROWS once more, and return what is handed on from memory."""
    messages = [stored_again(each, route(), Target(GROUP_ID, redrives)) for each in ROWS]
    for message in messages:
        message.queue_id = queue_id
    frame = AppendFrame(new_publisher(), 1, messages, refusals, keeps_ids=True)
    (stored,) = await appender.append([frame])
    assert isinstance(stored, Stored)
    return stamped_by_queue([(frame, stored.outcome)])[queue_id]


def delivery(message: LogMessage) -> subscriber_pb2.Delivery:
    return subscriber_pb2.Delivery.FromString(delivery_of(message.wire))


@pytest.mark.parametrize("redrives", [0, 1, REDRIVES_MAX])
async def test_it_is_the_same_message_for_that_group_alone(appender: Appender, conn: Connection, redrives: int) -> None:
    queue_id = await make_queue(conn)
    await append(appender, queue_id, redrives)

    stored = await rows_of(conn, queue_id)
    assert [(each.queue_offset, each.target_group, each.redrives) for each in stored] == [
        (offset, GROUP_ID, redrives) for offset in range(len(ROWS))
    ]
    for again, before in zip(stored, ROWS, strict=True):
        place = {name: getattr(before, name) for name in ("queue_id", "queue_offset", "stored_at_us")}
        assert again._replace(**place, target_group=before.target_group, redrives=before.redrives) == before


async def test_what_is_handed_on_from_memory_is_what_is_read_back(appender: Appender, conn: Connection) -> None:
    queue_id = await make_queue(conn)
    for redrives in (0, 5):
        in_memory = await append(appender, queue_id, redrives)
        read = messages_of_rows((await rows_of(conn, queue_id))[-len(ROWS) :])

        for ours, theirs in zip(in_memory, read, strict=True):
            # Headers have no order: PostgreSQL keeps them in one of its own.
            assert delivery(ours) == delivery(theirs)
            assert (delivery(ours).redrives, delivery(ours).replayed) == (redrives, redrives == 0)
            assert (ours.target_group, ours.queue_offset) == (theirs.target_group, theirs.queue_offset)
            assert (ours.headers, ours.ordering_key, ours.stress) == (
                theirs.headers,
                theirs.ordering_key,
                theirs.stress,
            )
            assert ours.held_bytes == theirs.held_bytes


async def test_ids_stay_with_their_messages_where_others_of_the_frame_are_refused(
    appender: Appender, conn: Connection
) -> None:
    queue_id = await make_queue(conn)
    await append(appender, queue_id, 1, Refused(0, *REFUSED), Refused(2, *REFUSED))

    assert [each.message_id for each in await rows_of(conn, queue_id)] == [each.message_id for each in ROWS]
