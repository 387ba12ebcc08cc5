"""What became of a message with each group of its namespace: asked of both databases and of the brokers, and decided.

The configuration is read last: whatever a lane has done went by something that is in the audit trail by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final
from uuid import UUID

from confdb.brokers import BrokerRegistry
from confdb.past import UNCERTAIN_SECONDS, Past, PastGroup, TopicPast
from msgbroker.client.connect.inspection import MessagePlace
from msgbroker.contract.errors import LookTooLongError
from msgbroker.contract.whereabouts import Stand
from msgconsole.operations.brokers.asking import Unanswered, find_in_flight
from msgconsole.operations.status.answers import MessageStatus, PlaceStatus
from msgconsole.operations.status.deleted import asked_groups
from msgconsole.operations.status.gone import find_gone
from msgconsole.operations.status.joining import Joined, Said, Stored, may_know_more
from msgconsole.operations.status.wanted import WantedStatus
from msgconsole.operations.stores import Stores
from msgdb.jobs.purge_jobs import list_purge_jobs
from msgdb.lanes.reset_acts import list_put_back_acts, list_reset_acts
from msgdb.lanes.skip_acts import list_skip_acts
from msgdb.lanes.standing import find_lane_rows
from msgdb.log.copies import COPIES_MAX, Copies, find_copies, find_copy_at
from msgdb.log.found import FoundMessage
from msgdb.log.queues import QueueRow, find_queue
from msgdb.postgres.binary_rows import datetime_of
from msgdb.postgres.connections import Connection
from msgdb.trace.reading import list_acked

_TRACE_SECONDS_MAX: Final = 1.0


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
    groups, has_more_groups = asked_groups(past.moments, wanted)
    stored = await _read_stored(stores, places, groups)
    said = Said()
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
        places=tuple([await _decided(stores, Joined(each, groups, past, said)) for each in stored]),
        has_more_places=has_more,
        unanswered=said.unanswered,
        has_more_groups=has_more_groups or not past.is_whole,
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


async def _read_stored(stores: Stores, places: Sequence[FoundMessage], groups: Sequence[PastGroup]) -> list[Stored]:
    group_ids = [group.group_id for group in groups]
    async with stores.messages.looking() as conn:
        return [
            Stored(
                place,
                await _get_queue(conn, place.queue_id),
                # Before the acts and the jobs: what these did to it is there by then.
                await find_lane_rows(conn, group_ids, place.queue_id, place.queue_offset, place.stored_at_us),
                await list_reset_acts(conn, place.queue_id, place.queue_offset, datetime_of(place.stored_at_us)),
                await list_skip_acts(conn, place.queue_id, place.queue_offset, datetime_of(place.stored_at_us)),
                await list_purge_jobs(conn, datetime_of(place.stored_at_us)),
                await list_put_back_acts(conn, place.queue_id),
            )
            for place in places
        ]


async def _decided(stores: Stores, joined: Joined) -> PlaceStatus:
    told = joined.decided()
    if not may_know_more(told.groups):
        return told
    place = joined.stored.place
    try:
        async with stores.messages.looking(_TRACE_SECONDS_MAX) as conn:
            acked = await list_acked(conn, place.queue_id, place.queue_offset, place.stored_at_us)
    except LookTooLongError:
        # A sample of what happened: without it, more is uncertain, and nothing is wrong.
        return told
    return replace(joined, acked=acked).decided() if acked else told


async def _get_queue(conn: Connection, queue_id: int) -> QueueRow:
    queue = await find_queue(conn, queue_id)
    assert queue is not None, "what has messages is not deleted"
    return queue


def _to_ask(stored: Sequence[Stored]) -> dict[MessagePlace, UUID]:
    """Return what is not settled, with the broker that serves its lane."""
    return {
        MessagePlace(group_id, each.place.queue_id, each.place.queue_offset): rows.owner
        for each in stored
        for group_id, rows in each.rows.items()
        if rows.owner is not None
        and (rows.waiting is not None or not rows.is_settled)
        and each.place.target_group in {None, group_id}
    }


async def _ask(stores: Stores, asked: Mapping[MessagePlace, UUID]) -> Said:
    report = await find_in_flight(stores, list(asked))
    stands = {
        place: found.stand
        for place, found in report.found.items()
        if found.stand.stand not in {Stand.NOT_OWNED, Stand.UNKNOWN}
    }
    live = {broker.broker_id: broker.address for broker in await BrokerRegistry(stores.config).list_live()}
    reasons = {each.broker: each.why for each in report.unanswered}
    silent = {owner for place, owner in asked.items() if place not in stands}
    unanswered = (_silence_of(owner, live, reasons) for owner in silent)
    return Said(stands, tuple(sorted(unanswered, key=lambda each: each.broker)))


def _silence_of(owner: UUID, live: Mapping[UUID, str], reasons: Mapping[str, str]) -> Unanswered:
    address = live.get(owner)
    if address is None:
        return Unanswered(str(owner), "it has not been heard of")
    return Unanswered(address, reasons.get(address, "it gives its lane up, or has just claimed it"))
