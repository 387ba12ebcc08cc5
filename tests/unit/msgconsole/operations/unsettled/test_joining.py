"""What brokers and the store say of a group, joined: held against what there is, over random groups.

Of each queue it is made up where each message is, and who tells what of it; what is to be told follows from that in the
plainest way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.client.connect.inspection import LaneUnsettled, MessageStand, UnsettledMessage, UnsettledPage
from msgbroker.contract.whereabouts import Stand
from msgconsole.operations.status.answers import State
from msgconsole.operations.unsettled.joining import Heard, Said, hear, join, where_next, why_partial, why_unheard
from msgdb.log.found import Position
from msgdb.looking.unsettled import LaneStanding, WaitingMessage

OWNERS = {"east:1": UUID(int=1), "west:1": UUID(int=2), "silent:1": UUID(int=3), "unknown": UUID(int=4)}
LIVE = {OWNERS[address]: address for address in ("east:1", "west:1", "silent:1")}
SILENT = {"silent:1": "no answer within 3 s"}
STATES = {
    "flying": State.IN_FLIGHT,
    "flying with a row": State.IN_FLIGHT,
    "waiting": State.RETRYING,
    "shelved": State.SHELVED,
    "ready": State.PENDING,
}
STANDS = {
    State.IN_FLIGHT: Stand.IN_FLIGHT,
    State.RETRYING: Stand.WAITING,
    State.SHELVED: Stand.SHELVED,
    State.PENDING: Stand.READY,
}


@dataclass(frozen=True)
class Made:
    """A queue: where each of its messages is with the group, and who serves its lane."""

    queue_id: int
    steps: list[tuple[str, int]]
    """Of each message where it is, and how much later than the one before it was stored."""
    owner: str | None
    is_moving: bool
    """The owner had not claimed it yet when it was asked."""
    is_claimed_elsewhere: bool
    """Another broker believes that it still owns the lane."""

    @property
    def messages(self) -> list[tuple[Position, str]]:
        at, made = 0, []
        for offset, (where, later) in enumerate(self.steps):
            at += later
            made.append((Position(at, self.queue_id, offset), where))
        return made

    @property
    def is_heard(self) -> bool:
        return self.owner in {"east:1", "west:1"} and not self.is_moving

    @property
    def rows(self) -> list[WaitingMessage]:
        with_rows = {"waiting", "shelved", "flying with a row"}
        return [
            WaitingMessage(at.queue_id, at.queue_offset, at.stored_at_us, 2, 5, "1" if where == "shelved" else None)
            for at, where in self.messages
            if where in with_rows
        ]

    @property
    def truth(self) -> list[tuple[Position, State]]:
        """What is to be told, if all of it is."""
        if self.is_heard:
            return [(at, STATES[where]) for at, where in self.messages if where in STATES]
        return [(row.position, State.SHELVED if row.shelved_by else State.RETRYING) for row in self.rows]

    def lane(self, epoch: int) -> LaneUnsettled:
        """Return what a broker says of it, of that epoch."""
        flying = sum(STATES.get(where) is State.IN_FLIGHT for where, _ in self.steps)
        return LaneUnsettled(self.queue_id, epoch, len(self.steps), flying, 0)

    def unsettled(self, epoch: int) -> list[UnsettledMessage]:
        """Return all of it that the broker has."""
        return [
            UnsettledMessage(
                self.queue_id, at.queue_offset, at.stored_at_us, MessageStand(STANDS[STATES[where]], epoch, 2)
            )
            for at, where in self.messages
            if where in STATES
        ]


EPOCH = 7
STEPS = st.lists(st.tuples(st.sampled_from([*STATES, "settled", "unread"]), st.integers(0, 2)), max_size=8)


@st.composite
def queues(draw: st.DrawFn) -> list[Made]:
    return [
        Made(
            queue_id,
            draw(STEPS),
            draw(st.sampled_from([None, *OWNERS, "east:1", "west:1"])),
            is_moving=draw(st.sampled_from([False, False, False, True])),
            is_claimed_elsewhere=draw(st.booleans()),
        )
        for queue_id in range(1, draw(st.integers(0, 5)) + 1)
    ]


def lanes_of(made: Sequence[Made]) -> dict[int, LaneStanding]:
    return {
        each.queue_id: LaneStanding(
            each.queue_id, EPOCH, None if each.owner is None else OWNERS[each.owner], first_offset=0, read_at_us=100
        )
        for each in made
    }


def said_of(made: Sequence[Made], limit: int, pages: int = 1) -> list[Said]:
    """Return what the brokers say that answer: each also of lanes that it has lost, or that are not asked for."""
    stranger = Made(999, [("flying", 0)], None, is_moving=False, is_claimed_elsewhere=False)
    said = []
    for address in ("east:1", "west:1"):
        told = [(each, EPOCH) for each in made if each.is_heard and each.owner == address]
        told += [(each, EPOCH - 1) for each in made if each.is_claimed_elsewhere and (each, EPOCH) not in told]
        told.append((stranger, EPOCH))
        said.append(Said(address, [page_of(told[number::pages], limit) for number in range(pages)]))
    return said


def page_of(told: Sequence[tuple[Made, int]], limit: int) -> UnsettledPage:
    found = [message for each, epoch in told for message in each.unsettled(epoch)]
    found.sort(key=lambda message: (message.stored_at_us, message.queue_id, message.queue_offset))
    return UnsettledPage([each.lane(epoch) for each, epoch in told], found[:limit], len(found) > limit)


@given(
    made=queues(),
    limit=st.integers(1, 8),
    told=st.integers(1, 8),
    pages=st.integers(1, 3),
    has_first_word=st.booleans(),
)
def test_what_is_told_is_the_beginning_of_all_there_is(
    made: list[Made], limit: int, told: int, pages: int, *, has_first_word: bool
) -> None:
    # Brokers may tell fewer than they are asked for.
    said = said_of(made, min(told, limit), pages)
    said = said if has_first_word else said[::-1]
    heard = hear(lanes_of(made), said)
    rows = sorted((row for each in made if not each.is_heard for row in each.rows), key=lambda row: row.position)
    has_more_rows = len(rows) > limit
    # Rows of lanes that are told of may be among them: those are messages that are told of.
    beside = [] if has_more_rows else [row for each in made if each.is_heard for row in each.rows]
    joined = join(said, heard, [*rows[:limit], *beside], limit, has_more_rows=has_more_rows)

    everything = sorted(each for queue in made for each in queue.truth)
    found = [(line.position, line.state) for line in joined.lines]
    assert set(heard) == {each.queue_id for each in made if each.is_heard}
    assert found == everything[: len(found)], "each once, in order, and what it is"
    assert len(found) <= limit
    if len(found) < len(everything):
        assert joined.has_more
    if not any(page.has_more for each in said for page in each.pages):
        assert len(found) == min(limit, len(everything))
        assert joined.has_more == (len(found) < len(everything))


@given(made=queues(), limit=st.integers(1, 8))
def test_as_many_as_asked_for_are_told_where_brokers_tell_as_many_of_their_own(made: list[Made], limit: int) -> None:
    own = [replace(each, is_claimed_elsewhere=False) for each in made]
    said = said_of(own, limit + 1)
    rows = sorted((row for each in own if not each.is_heard for row in each.rows), key=lambda row: row.position)
    joined = join(said, hear(lanes_of(own), said), rows[:limit], limit, has_more_rows=len(rows) > limit)

    assert len(joined.lines) == min(limit, sum(len(each.truth) for each in own))


@given(made=queues())
def test_each_broker_that_serves_lanes_and_told_nothing_of_them_is_named_once(made: list[Made]) -> None:
    lanes = lanes_of(made)
    why = why_unheard(lanes, hear(lanes, said_of(made, 5)), LIVE, SILENT)

    silent = {each.owner for each in made if each.owner is not None and not each.is_heard}
    assert len(why) == len(silent)
    for owner in silent:
        (text,) = [text for text in why if (str(OWNERS["unknown"]) if owner == "unknown" else owner) in text]
        queue_ids = [each.queue_id for each in made if each.owner == owner and not each.is_heard]
        assert ", ".join(map(str, queue_ids)) in text
        assert (SILENT["silent:1"] in text) == (owner == "silent:1")


def test_a_message_is_by_its_owners_word_though_it_has_a_row() -> None:
    made = Made(1, [("flying with a row", 1)], "east:1", is_moving=False, is_claimed_elsewhere=False)
    said = said_of([made], 5)
    joined = join(said, hear(lanes_of([made]), said), made.rows, 5)

    (line,) = joined.lines
    assert (line.state, line.broker, line.row) == (State.IN_FLIGHT, "east:1", None)


@pytest.mark.parametrize("is_turned", [False, True])
def test_of_two_that_own_a_lane_the_higher_epoch_is_right(*, is_turned: bool) -> None:
    stale = Made(1, [("flying", 0), ("waiting", 1)], "east:1", is_moving=False, is_claimed_elsewhere=False)
    owner = Made(1, [("settled", 0), ("ready", 1)], "west:1", is_moving=False, is_claimed_elsewhere=False)
    said = [Said("east:1", [page_of([(stale, 7)], 5)]), Said("west:1", [page_of([(owner, 8)], 5)])]
    said = said[::-1] if is_turned else said
    heard = hear({1: LaneStanding(1, 7, None, 0, 100)}, said)

    (line,) = join(said, heard, [], 5).lines
    assert (heard[1].address, line.state, line.broker) == ("west:1", State.PENDING, "west:1")


def test_what_a_lane_has_let_go_of_that_goes_elsewhere_is_said_to_be_missing() -> None:
    heard = {
        queue_id: Heard(address, LaneUnsettled(queue_id, 1, 9, in_flight=1, ready=0, gives_up=gives_up))
        for queue_id, address, gives_up in [(3, "east:1", True), (1, "east:1", True), (2, "west:1", False)]
    }

    (why,) = why_partial(heard)

    assert "east:1 gives its lane up; of queues 1, 3 only what an instance has" in why


def test_what_comes_next_is_looked_for_only_where_nothing_is_in_flight_or_ready_before_it() -> None:
    lanes = {queue_id: LaneStanding(queue_id, 1, None, first_offset=5, read_at_us=0) for queue_id in range(1, 5)}
    heard = {
        1: Heard("east:1", LaneUnsettled(1, 1, next_offset=9, in_flight=0, ready=0)),
        2: Heard("east:1", LaneUnsettled(2, 1, next_offset=9, in_flight=1, ready=0)),
        3: Heard("east:1", LaneUnsettled(3, 1, next_offset=9, in_flight=0, ready=1)),
    }

    assert where_next(lanes, heard) == {1: 9, 4: 5}
