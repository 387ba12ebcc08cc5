"""What the oldest unsettled messages of a lane must be: found one by one, in the plainest way."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from msgbroker.contract.whereabouts import Stand
from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.lane.whereabouts import Unsettled, WantedUnsettled, Whereabouts
from tests.support.lane_builders import FakeMessage, stored_at_us

UNSETTLED = (Stand.READY, Stand.IN_FLIGHT, Stand.WAITING, Stand.SHELVED)
ALL = WantedUnsettled(frozenset(UNSETTLED))


def unsettled_of(lane: Lane[FakeMessage], end: int) -> list[Unsettled]:
    """Return all that is unsettled below *end*, by looking at each offset."""
    found = ((offset, _waits_for_room(lane, offset, lane.find(offset))) for offset in range(end))
    return [Unsettled(offset, stored_at_us(offset), where) for offset, where in found if where.stand in UNSETTLED]


def _waits_for_room(lane: Lane[FakeMessage], offset: int, found: Whereabouts) -> Whereabouts:
    record = lane._state.again.by_offset.get(offset)
    if found.stand is Stand.READY and record is not None and record.is_moved:
        return found._replace(stand=Stand.WAITING, due_at=record.due_at)
    return found


def check_oldest(lane: Lane[FakeMessage], end: int) -> None:
    """Check what the lane says of its oldest: of all, of each pair of stands and of each instance; one, some, all."""
    every_one = unsettled_of(lane, end)
    for wanted in (ALL, *_narrower(every_one)):
        meant = [each for each in every_one if _is_wanted(each, wanted)]
        for count_max in (1, 3, end + 1):
            assert lane.find_oldest(wanted, count_max) == meant[:count_max]


def _narrower(every_one: Iterable[Unsettled]) -> list[WantedUnsettled]:
    names = {each.where.flight.instance_id for each in every_one if each.where.flight is not None}
    by_stand = [WantedUnsettled(frozenset(pair)) for pair in combinations(UNSETTLED, 2)]
    return [*by_stand, *(WantedUnsettled(ALL.stands, (name,)) for name in (*sorted(names), "nobody"))]


def _is_wanted(each: Unsettled, wanted: WantedUnsettled) -> bool:
    where = each.where
    is_theirs = wanted.instances is None or (where.flight is not None and where.flight.instance_id in wanted.instances)
    return where.stand in wanted.stands and is_theirs
