"""What brokers' memories have of a group, and what the store has, joined: each message once, the oldest first. Pure.

A lane is told of by its owner, where that has answered: it has all that the lane has read and not settled. Of other
lanes the redelivery rows are told. Where a broker tells only of the oldest messages of its lanes, nothing that lies
behind the last of them is told of any lane: so whatever is told is the beginning of all there is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from msgbroker.client.connect.inspection import LaneUnsettled, MessageStand, UnsettledMessage, UnsettledPage
from msgbroker.contract.whereabouts import Stand
from msgconsole.operations.status.answers import State
from msgdb.log.found import Position
from msgdb.looking.unsettled import LaneStanding, WaitingMessage

STATES: Final[Mapping[Stand, State]] = {
    Stand.IN_FLIGHT: State.IN_FLIGHT,
    Stand.WAITING: State.RETRYING,
    Stand.SHELVED: State.SHELVED,
    Stand.READY: State.PENDING,
}
"""What a message is in the words of its status, by where its lane has it."""

_QUEUES_SHOWN: Final = 8


class Said(NamedTuple):
    """What one broker has said of its lanes."""

    address: str
    pages: Sequence[UnsettledPage]


class Heard(NamedTuple):
    """A lane, by the word of its owner."""

    address: str
    lane: LaneUnsettled


class Line(NamedTuple):
    """A message that is not settled: by its owner's word, or else by its redelivery row."""

    position: Position
    state: State
    attempt: int
    stand: MessageStand | None = None
    broker: str | None = None
    row: WaitingMessage | None = None


class Joined(NamedTuple):
    """The oldest of what is not settled."""

    lines: list[Line]
    has_more: bool


def hear(lanes: Mapping[int, LaneStanding], said: Sequence[Said]) -> dict[int, Heard]:
    """Return the lanes that are told of by their owners: by the highest epoch, and none that has passed."""
    heard: dict[int, Heard] = {}
    for address, told in ((each.address, lane) for each in said for page in each.pages for lane in page.lanes):
        standing, former = lanes.get(told.queue_id), heard.get(told.queue_id)
        if standing is None or told.epoch < standing.epoch:
            continue
        if former is None or told.epoch > former.lane.epoch:
            heard[told.queue_id] = Heard(address, told)
    return heard


def join(
    said: Sequence[Said],
    heard: Mapping[int, Heard],
    rows: Sequence[WaitingMessage],
    count_max: int,
    *,
    has_more_rows: bool = False,
) -> Joined:
    """Return the oldest *count_max* messages; *rows* come with the oldest first, and count for lanes nobody told of."""
    pages = [(each.address, page) for each in said for page in each.pages]
    lines = [
        _told(address, message)
        for address, page in pages
        for message in page.oldest
        if _is_owners(heard.get(message.queue_id), message)
    ]
    lines += [_stored(row) for row in rows if row.queue_id not in heard]
    lines.sort(key=_position)
    # Where each source ends that has more: what lies behind the first of these ends may not be all.
    ends = [_position_of(page.oldest[-1]) for _, page in pages if page.has_more and page.oldest]
    if has_more_rows and rows:
        ends.append(rows[-1].position)
    if ends:
        lines = [line for line in lines if line.position <= min(ends)]
    return Joined(lines[:count_max], bool(ends) or len(lines) > count_max)


def where_next(lanes: Mapping[int, LaneStanding], heard: Mapping[int, Heard]) -> dict[int, int]:
    """Return where to look for what comes next, of the queues of which nothing is in flight, or ready before it."""
    first = {queue_id: lane.first_offset for queue_id, lane in lanes.items() if queue_id not in heard}
    for queue_id, (_, lane) in heard.items():
        if not lane.in_flight and not lane.ready:
            first[queue_id] = lane.next_offset
    return first


def why_unheard(
    lanes: Mapping[int, LaneStanding],
    heard: Collection[int],
    live: Mapping[UUID, str],
    unanswered: Mapping[str, str],
) -> list[str]:
    """Return what the answer lacks: which brokers that serve lanes have told nothing of them, and why.

    *live*: the addresses of live brokers; *unanswered*: why those have not answered, by their addresses.
    """
    silent: dict[UUID, list[int]] = {}
    for lane in lanes.values():
        if lane.owner is not None and lane.queue_id not in heard:
            silent.setdefault(lane.owner, []).append(lane.queue_id)
    return sorted(_unheard(owner, sorted(queues), live.get(owner), unanswered) for owner, queues in silent.items())


def why_partial(heard: Mapping[int, Heard]) -> list[str]:
    """Return what the answer lacks of lanes that are told of: those that go elsewhere have let go of some."""
    leaving: dict[str, list[int]] = {}
    for queue_id, (address, lane) in heard.items():
        if lane.gives_up:
            leaving.setdefault(address, []).append(queue_id)
    return sorted(
        f"broker {address} gives its lane up; {_of_queues(sorted(queue_ids))} only what an instance has, or what waits "
        "for another attempt, is told"
        for address, queue_ids in leaving.items()
    )


def _of_queues(queue_ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, queue_ids[:_QUEUES_SHOWN])) + (", ..." if len(queue_ids) > _QUEUES_SHOWN else "")
    return f"of queue{'s' if len(queue_ids) > 1 else ''} {shown}"


def _unheard(owner: UUID, queue_ids: Sequence[int], address: str | None, unanswered: Mapping[str, str]) -> str:
    of_queues = f"{_of_queues(queue_ids)} only what is written down is told"
    if address is None:
        return f"broker {owner} has not been heard of; {of_queues}"
    if address in unanswered:
        return f"broker {address} has not answered: {unanswered[address]}; {of_queues}"
    return f"broker {address} gives its lane up, or has just claimed it; {of_queues}"


def _is_owners(heard: Heard | None, message: UnsettledMessage) -> bool:
    """Return whether a message is told of by the owner of its lane: no two of them have one epoch."""
    return heard is not None and heard.lane.epoch == message.stand.epoch


def _told(address: str, message: UnsettledMessage) -> Line:
    stand = message.stand
    # What a later version has words for is not settled, either.
    return Line(_position_of(message), STATES.get(stand.stand, State.PENDING), stand.attempt, stand, address)


def _position_of(message: UnsettledMessage) -> Position:
    return Position(message.stored_at_us, message.queue_id, message.queue_offset)


def _stored(row: WaitingMessage) -> Line:
    state = State.RETRYING if row.shelved_by is None else State.SHELVED
    return Line(row.position, state, row.attempt, row=row)


def _position(line: Line) -> Position:
    return line.position
