"""Recovery: from a claim to a lane that is served: what was persisted of it is put right, loaded and handed to the hub.

Lane by lane where there is much to load: ten thousand redeliveries take some milliseconds of the event loop, and many
lanes may have as many. What cannot be opened in time is claimed again with the next step; what cannot be opened for an
unknown reason is set aside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import structlog

from msgbroker.server import clock
from msgbroker.server.alarms.set_aside import divided
from msgbroker.server.cluster.placement import LanesByGroup
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.lanes.work import LaneWork, Work
from msgdb.lanes.leases import have_redeliveries, load_redeliveries, release
from msgdb.lanes.lost_log import clamp_to_ends
from msgdb.lanes.records import ClaimedLane, LaneEpoch, LaneKey, RedeliveryRow
from msgdb.postgres.failures import whole_tables
from msgdb.postgres.history import History
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

_SECONDS_MAX: Final = 1.5
"""How long opening lanes may take in one step: the leases of all other lanes wait for its end."""


class LaneRecovery:
    """Brings lanes that were just claimed into service: within their logs, and with all that was persisted of them."""

    def __init__(self, *, store: MessageStore, broker_id: UUID, hub: DeliveryHub) -> None:
        self._store = store
        self._broker_id = broker_id
        self._hub = hub

    async def open(
        self, claimed: Sequence[ClaimedLane], wanted: LanesByGroup, lease_until: float, history: History
    ) -> int:
        """Serve lanes that were just claimed in *history*, until *lease_until*; return how many.

        What is not *wanted* any more, or cannot be opened, is given up. Raises StoreUnavailableError.
        """
        deadline = clock.now() + _SECONDS_MAX
        put_right, have_rows = await self._put_right(claimed)
        known = {lane.key for lane in put_right}
        left = [LaneEpoch(lane.key, lane.epoch) for lane in claimed if lane.key not in known]
        opened = 0
        # Those with nothing to load first.
        for lane in sorted(put_right, key=lambda lane: lane.key in have_rows):
            is_open = False
            if clock.now() < deadline:
                with self._hub.aside.contained(LaneWork(lane.key, Work.CLAIMING)):
                    rows = await self._load(lane.key) if lane.key in have_rows else ()
                    if self._store.history is not history:
                        # Claimed in a former one: this one may know nothing of it.
                        return opened
                    is_open = self._open(lane, rows, wanted, lease_until)
            if is_open:
                opened += 1
            else:
                left.append(LaneEpoch(lane.key, lane.epoch))

        async def release_some(lanes: Sequence[LaneEpoch]) -> None:
            async with self._store.transaction_in(history) as connection:
                await release(connection, self._broker_id, lanes)

        await divided(left, release_some, self._not_released)
        return opened

    def _not_released(self, lane: LaneEpoch, error: Exception) -> None:
        # Others have it when its lease passes.
        self._hub.aside.failed_unless_held(LaneWork(lane.key, Work.RELEASING), error)

    async def _put_right(self, claimed: Sequence[ClaimedLane]) -> tuple[list[ClaimedLane], set[LaneKey]]:
        """Return the lanes within their logs, of which the ends are known, and those of them with something to load.

        Each question is asked for all at once, and where that fails for some of them: a damaged page must not end the
        broker that claims its lane, nor keep the others from being opened.
        """
        good = {lane.key: lane for lane in claimed}
        have_rows: set[LaneKey] = set()

        async def cut_back(lanes: Sequence[ClaimedLane]) -> None:
            good.update((lane.key, lane) for lane in await self._within_log(lanes))

        async def find_ends(lanes: Sequence[ClaimedLane]) -> None:
            await self._hub.cache.refresh_ends([lane.key.queue_id for lane in lanes])

        async def look_for_rows(lanes: Sequence[ClaimedLane]) -> None:
            with whole_tables():
                async with self._store.connection() as connection:
                    have_rows.update(await have_redeliveries(connection, [lane.key for lane in lanes]))

        def failed(lane: ClaimedLane, error: Exception) -> None:
            del good[lane.key]
            self._hub.aside.failed_unless_held(LaneWork(lane.key, Work.CLAIMING), error)

        # First what says at once that a whole table is held: that is an outage, and not asked for lane by lane.
        for step in (find_ends, cut_back, look_for_rows):
            await divided(list(good.values()), step, failed)
        return list(good.values()), have_rows

    async def _load(self, key: LaneKey) -> Sequence[RedeliveryRow]:
        async with self._store.connection() as connection:
            return (await load_redeliveries(connection, [key]))[key]

    def _open(self, lane: ClaimedLane, rows: Sequence[RedeliveryRow], wanted: LanesByGroup, lease_until: float) -> bool:
        group = self._hub.groups.get(lane.key.group_id)
        topic = wanted.get(group, {}).get(lane.key.queue_id) if group is not None else None
        if group is None or topic is None or not group.serves(topic.topic_id):
            # Its last instance went away meanwhile, and the group with it; or the configuration has changed, and is not
            # understood any more.
            return False
        self._hub.open_lane(group, topic, lane, rows, lease_until)
        return True

    async def _within_log(self, claimed: Sequence[ClaimedLane]) -> list[ClaimedLane]:
        """Return *claimed*, none of it beyond the end of its queue: a log that lost its end is read again from before.

        Before the redeliveries of the lanes are loaded.
        """
        lanes = [LaneEpoch(lane.key, lane.epoch) for lane in claimed]
        to_recheck = self._hub.lanes_to_recheck
        async with self._store.connection() as connection:
            ends = await clamp_to_ends(connection, self._broker_id, lanes, to_recheck.keys())
        to_recheck.checked(lane.key for lane in claimed)
        return [lane if lane.key not in ends else self._cut_back(lane, ends[lane.key]) for lane in claimed]

    def _cut_back(self, lane: ClaimedLane, end: int) -> ClaimedLane:
        known_end = max([lane.acked_offset, *(last for _, last in lane.acked_ranges)])
        log.error("lanes.clamped", lane=lane.key, from_offset=known_end, to_offset=end)
        self._hub.counters.lanes_clamped += 1
        ranges = [(first, min(last, end)) for first, last in lane.acked_ranges if first < end]
        return dataclasses.replace(lane, acked_offset=min(lane.acked_offset, end), acked_ranges=ranges)
