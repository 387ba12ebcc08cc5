"""What a group has begun and not settled: asked of the brokers, and then of the store, and joined.

The store is asked last: who owns a lane is known then, and whoever has lost one is not believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from confdb.brokers import BrokerRegistry
from confdb.routes import GroupRoute, TopicRoute
from confdb.snapshot import load_snapshot
from msgbroker.client.connect.inspection import UnsettledPage, WhichUnsettled
from msgbroker.contract.errors import ThingNotFoundError
from msgbroker.contract.limits import INSPECTED_PLACES_MAX
from msgbroker.contract.whereabouts import Stand
from msgconsole.operations.brokers.asking import ASK_SECONDS_MAX, Asked, ask_brokers
from msgconsole.operations.status.answers import State
from msgconsole.operations.stores import Stores
from msgconsole.operations.subscribed import get_group, start_of, subscribed_topics
from msgconsole.operations.unsettled.answers import BEGUN_STATES, UnsettledReport, UnsettledRow, WantedUnsettled
from msgconsole.operations.unsettled.joining import STATES, Heard, Said, hear, join, where_next, why_unheard
from msgconsole.operations.unsettled.telling import next_row, row_of
from msgdb.log.found import FoundMessage
from msgdb.log.queues import list_topic_queues
from msgdb.looking.unsettled import (
    LaneStanding,
    WaitingMessage,
    find_known,
    list_next,
    list_standings,
    list_waiting,
)
from msgdb.postgres.connections import Connection

_STATES_OF_ROWS: Final = {State.RETRYING: False, State.SHELVED: True}
"""Whether such messages have rows that are shelved."""


class _Meant(NamedTuple):
    """The group, and its queues, with their topics."""

    group: GroupRoute
    topics: Mapping[int, TopicRoute]

    @property
    def initial_offsets(self) -> dict[int, int]:
        """Where lanes begin that nobody ever served."""
        return {queue_id: start_of(self.group, topic, queue_id) for queue_id, topic in self.topics.items()}


class _Read(NamedTuple):
    """What both have said."""

    lanes: Mapping[int, LaneStanding]
    heard: Mapping[int, Heard]
    rows: Sequence[UnsettledRow]
    has_more: bool
    next: Sequence[FoundMessage]


async def list_unsettled(
    stores: Stores, wanted: WantedUnsettled, *, seconds_max: float = ASK_SECONDS_MAX
) -> UnsettledReport:
    """Return what a group has begun and not settled, the oldest first, and what comes next where nothing is in flight.

    Raises a NotFoundError for what is not registered, or not subscribed to.
    """
    meant = await _find_meant(stores, wanted)
    asked = await ask_brokers(
        stores,
        lambda inspector: inspector.list_unsettled(_which(meant, wanted), wanted.limit),
        seconds_max=seconds_max,
    )
    async with stores.messages.looking() as conn:
        read = await _read(conn, meant, wanted, asked)
    live = {broker.broker_id: broker.address for broker in await BrokerRegistry(stores.config).list_live()}
    next_rows = [
        next_row(each, read.lanes[each.queue_id], read.heard.get(each.queue_id), _read_at(read.lanes))
        for each in read.next
    ]
    return UnsettledReport(
        namespace=meant.group.namespace,
        group=meant.group.name,
        paused=meant.group.paused,
        messages=read.rows,
        has_more=read.has_more,
        ready=sum(each.lane.ready for each in read.heard.values()),
        next=next_rows[: wanted.limit],
        has_more_next=len(next_rows) > wanted.limit,
        why_not=why_unheard(read.lanes, read.heard, live, {each.broker: each.why for each in asked.unanswered}),
    )


async def _find_meant(stores: Stores, wanted: WantedUnsettled) -> _Meant:
    snapshot = await load_snapshot(stores.config)
    group = get_group(snapshot, wanted.namespace, wanted.group)
    async with stores.messages.looking() as conn:
        topics = {
            queue.queue_id: topic
            for topic in subscribed_topics(snapshot, group, wanted.topic)
            for queue in await list_topic_queues(conn, topic.topic_id)
        }
    if wanted.queue_id is not None:
        if wanted.queue_id not in topics:
            raise ThingNotFoundError("queue", f"{wanted.queue_id} of what {wanted.group} subscribes to")
        topics = {wanted.queue_id: topics[wanted.queue_id]}
    return _Meant(group, topics)


def _which(meant: _Meant, wanted: WantedUnsettled) -> WhichUnsettled:
    is_narrower = wanted.topic is not None or wanted.queue_id is not None
    # Of more queues than one request may name all lanes are told: those that are not meant are passed over.
    queue_ids = tuple(meant.topics) if is_narrower and len(meant.topics) <= INSPECTED_PLACES_MAX else ()
    state = State.IN_FLIGHT if wanted.instance_id is not None else wanted.state
    states = BEGUN_STATES if state is None else (state,)
    stands: tuple[Stand, ...] = tuple(stand for stand, each in STATES.items() if each in states)
    return WhichUnsettled(meant.group.group_id, queue_ids, stands, wanted.instance_id or "")


async def _read(conn: Connection, meant: _Meant, wanted: WantedUnsettled, asked: Asked[list[UnsettledPage]]) -> _Read:
    group_id = meant.group.group_id
    lanes = await list_standings(conn, group_id, meant.initial_offsets)
    said = [Said(each.broker.address, each.said) for each in asked.answers]
    heard = hear(lanes, said)
    rows = await _waiting(conn, group_id, [queue_id for queue_id in lanes if queue_id not in heard], wanted)
    joined = join(said, heard, rows[: wanted.limit], wanted.limit, has_more_rows=len(rows) > wanted.limit)
    known = await find_known(conn, group_id, [line.position for line in joined.lines])
    told = [
        row_of(
            line,
            known.get((line.position.queue_id, line.position.queue_offset)),
            meant.topics[line.position.queue_id].name,
            _read_at(lanes),
            is_served=lanes[line.position.queue_id].owner is not None,
            handle_seconds_max=meant.group.handle_seconds_max,
        )
        for line in joined.lines
    ]
    next_ones = await list_next(conn, where_next(lanes, heard)) if wanted.is_all else []
    return _Read(lanes, heard, told, joined.has_more, next_ones)


async def _waiting(
    conn: Connection, group_id: int, queue_ids: Sequence[int], wanted: WantedUnsettled
) -> list[WaitingMessage]:
    """Return what has a row, of lanes that nobody told of, and one more than is asked for where there are more."""
    if wanted.instance_id is not None or (wanted.state is not None and wanted.state not in _STATES_OF_ROWS):
        return []
    is_shelved = None if wanted.state is None else _STATES_OF_ROWS[wanted.state]
    return await list_waiting(conn, group_id, queue_ids, wanted.limit + 1, is_shelved=is_shelved)


def _read_at(lanes: Mapping[int, LaneStanding]) -> int:
    return max((lane.read_at_us for lane in lanes.values()), default=0)
