"""What became of a message with each group of its namespace: asked of both databases and of the brokers, and decided.

The configuration is read last: whatever a lane has done went by something that is in the audit trail by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from confdb.brokers import BrokerRegistry
from confdb.past import UNCERTAIN_SECONDS, Past, PastGroup, TopicPast
from msgbroker.client.connect.inspection import MessagePlace, MessageStand
from msgbroker.contract.whereabouts import Stand
from msgconsole.operations.brokers.asking import find_in_flight
from msgconsole.operations.status.answers import GroupStatus, MessageStatus, PlaceStatus
from msgconsole.operations.status.deciding import decide
from msgconsole.operations.status.facts import GroupFacts
from msgconsole.operations.status.gone import find_gone
from msgconsole.operations.status.moments import MOMENTS_MAX, moments_of_group
from msgconsole.operations.status.purged import may_have_purged
from msgconsole.operations.status.reading import Readable
from msgconsole.operations.status.wanted import WantedStatus, groups_of
from msgconsole.operations.stores import Stores
from msgdb.jobs.purge_jobs import PurgeJob, list_purge_jobs
from msgdb.lanes.reset_acts import ResetActs, list_reset_acts
from msgdb.lanes.skip_acts import SkipAct, list_skip_acts
from msgdb.lanes.standing import Standing, find_standings
from msgdb.log.copies import COPIES_MAX, Copies, find_copies, find_copy_at
from msgdb.log.found import FoundMessage
from msgdb.log.queues import QueueRow, find_queue
from msgdb.postgres.binary_rows import datetime_of, micros_of
from msgdb.postgres.connections import Connection


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the message store has of one place."""

    place: FoundMessage
    queue: QueueRow
    """As it is by now: of a topic that was deleted and made again there is another one."""
    standings: Mapping[int, Standing]
    resets: ResetActs
    skips: Sequence[SkipAct]
    purges: Sequence[PurgeJob]


@dataclass(frozen=True, slots=True)
class _Said:
    """What brokers say."""

    stands: Mapping[MessagePlace, MessageStand] = field(default_factory=dict)
    unanswered: tuple[str, ...] = ()


async def find_status(stores: Stores, wanted: WantedStatus) -> MessageStatus:
    """Return what became of a message with each group of its namespace, or with one.

    Raises ThingNotFoundError where no live day has it, and GroupNotFoundError.
    """
    found, has_more = await _find_places(stores, wanted)
    if not found:
        return await find_gone(stores, wanted)
    places = sorted(found, key=lambda each: each.position)
    first = places[0]
    past = await _read_past(stores, first)
    groups = groups_of(past.moments[-1].groups, wanted)
    stored = await _read_stored(stores, places, groups)
    said = _Said()
    if wanted.asks_brokers and (asked := _to_ask(stored)):
        said = await _ask(stores, asked)
        # Once more: what was handed out, settled and written down meanwhile is not told as in flight.
        stored = await _read_stored(stores, places, groups)
    past = await _read_past(stores, first)
    return MessageStatus(
        message_id=UUID(bytes=first.message_id),
        namespace=first.namespace,
        topic=first.topic,
        event_code=first.event_code,
        key=first.key,
        stress=first.stress,
        places=tuple(_place_status(each, groups, past, said) for each in stored),
        has_more_places=has_more,
        unanswered=said.unanswered,
    )


async def _find_places(stores: Stores, wanted: WantedStatus) -> Copies:
    async with stores.messages.looking() as conn:
        if wanted.message_id is not None:
            return await find_copies(conn, wanted.message_id, wanted.namespace, limit=COPIES_MAX)
        assert wanted.queue_id is not None, "a message is named by its id or its place"
        assert wanted.queue_offset is not None, "a place is a queue and an offset"
        at = await find_copy_at(conn, wanted.queue_id, wanted.queue_offset)
    return Copies([] if at is None or at.namespace != wanted.namespace else [at], is_cut=False)


async def _read_past(stores: Stores, first: FoundMessage) -> TopicPast:
    since = datetime_of(first.stored_at_us) - timedelta(seconds=UNCERTAIN_SECONDS)
    return await Past(stores.config).of_topic(first.namespace, first.topic, since)


async def _read_stored(stores: Stores, places: Sequence[FoundMessage], groups: Sequence[PastGroup]) -> list[_Stored]:
    group_ids = [group.group_id for group in groups]
    async with stores.messages.looking() as conn:
        return [
            _Stored(
                place,
                await _get_queue(conn, place.queue_id),
                # Before the acts and the jobs: what these did to it is there by then.
                await find_standings(conn, group_ids, place.queue_id, place.queue_offset, place.stored_at_us),
                await list_reset_acts(conn, place.queue_id, place.queue_offset, datetime_of(place.stored_at_us)),
                await list_skip_acts(conn, place.queue_id, place.queue_offset, datetime_of(place.stored_at_us)),
                await list_purge_jobs(conn, datetime_of(place.stored_at_us)),
            )
            for place in places
        ]


async def _get_queue(conn: Connection, queue_id: int) -> QueueRow:
    queue = await find_queue(conn, queue_id)
    assert queue is not None, "what has messages is not deleted"
    return queue


def _to_ask(stored: Sequence[_Stored]) -> dict[MessagePlace, UUID]:
    """Return what is not settled, with the broker that serves its lane."""
    return {
        MessagePlace(group_id, each.place.queue_id, each.place.queue_offset): standing.owner
        for each in stored
        for group_id, standing in each.standings.items()
        if standing.owner is not None
        and (standing.waiting is not None or not standing.is_settled)
        and each.place.target_group in {None, group_id}
    }


async def _ask(stores: Stores, asked: Mapping[MessagePlace, UUID]) -> _Said:
    report = await find_in_flight(stores, list(asked))
    stands = {
        place: found.stand
        for place, found in report.found.items()
        if found.stand.stand not in {Stand.NOT_OWNED, Stand.UNKNOWN}
    }
    live = {broker.broker_id: broker.address for broker in await BrokerRegistry(stores.config).list_live()}
    reasons = {each.broker: each.why for each in report.unanswered}
    silent = {owner for place, owner in asked.items() if place not in stands}
    return _Said(stands, tuple(sorted(_silence_of(owner, live, reasons) for owner in silent)))


def _silence_of(owner: UUID, live: Mapping[UUID, str], reasons: Mapping[str, str]) -> str:
    address = live.get(owner)
    if address is None:
        return f"broker {owner}: it has not been heard of"
    return f"broker {address}: {reasons.get(address, 'it gives its lane up, or has just claimed it')}"


def _place_status(stored: _Stored, groups: Sequence[PastGroup], past: TopicPast, said: _Said) -> PlaceStatus:
    place = stored.place
    return PlaceStatus(
        queue_id=place.queue_id,
        queue_offset=place.queue_offset,
        stored_at=datetime_of(place.stored_at_us),
        target_group=place.target_group,
        redrives=place.redrives,
        groups=tuple(_group_status(stored, group, past, said) for group in groups),
    )


def _group_status(stored: _Stored, group: PastGroup, past: TopicPast, said: _Said) -> GroupStatus:
    place, standing = stored.place, stored.standings[group.group_id]
    stand = said.stands.get(MessagePlace(group.group_id, place.queue_id, place.queue_offset))
    if stand is not None and stand.epoch < standing.epoch:
        # Of an owner that has lost the lane, or before a reset.
        stand = None
    message = _readable(stored)
    moments = moments_of_group(past.moments, group, stored.queue.topic_id, place.event_code)
    now = past.moments[-1].groups.get(group.name)
    return decide(
        GroupFacts(
            message=message,
            group=group.name,
            group_id=group.group_id,
            moments=moments[-MOMENTS_MAX:],
            are_moments_whole=past.is_whole and len(moments) <= MOMENTS_MAX,
            standing=standing,
            resets=[act for act in stored.resets.acts if act.group_id == group.group_id],
            are_resets_whole=stored.resets.is_complete,
            skips=[act for act in stored.skips if act.group_id == group.group_id],
            purges=[job for job in stored.purges if may_have_purged(job, message, group, place.namespace)],
            stand=stand,
            is_paused=now is not None and now.paused,
            now_us=micros_of(past.read_at),
        )
    )


def _readable(stored: _Stored) -> Readable:
    place = stored.place
    return Readable(
        queue_id=place.queue_id,
        queue_offset=place.queue_offset,
        stored_at_us=place.stored_at_us,
        topic=place.topic,
        event_code=place.event_code,
        key=place.key,
        headers=place.headers or {},
        stress=place.stress,
        target_group=place.target_group,
        is_leaving=place.queue_offset < stored.queue.start_offset,
    )
