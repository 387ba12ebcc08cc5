"""An unsettled message, and what comes next, in words."""

from __future__ import annotations

from uuid import UUID

import pytest

from msgbroker.client.connect.inspection import LaneUnsettled, MessageStand
from msgbroker.contract.whereabouts import Stand
from msgconsole.operations.status.answers import State
from msgconsole.operations.unsettled.answers import UnsettledRow
from msgconsole.operations.unsettled.joining import Heard, Line
from msgconsole.operations.unsettled.telling import next_row, row_of
from msgdb.log.found import FoundMessage, Position
from msgdb.looking.unsettled import Known, LaneStanding, WaitingMessage
from msgdb.postgres.binary_rows import datetime_of

STORED, NOW, DUE = 1_000_000, 61_000_000, 90_000_000
PLACE = Position(STORED, 1, 5)
MESSAGE = FoundMessage(
    1, 5, STORED, UUID(int=7).bytes, "default", "TP", "EC", "order-1", None, None, 1, STORED, None, None, False, None, 0
)
FLYING = MessageStand(
    Stand.IN_FLIGHT, 1, 2, None, "shop-1", "host-1", handed_at_us=30_000_000, deadline_at_us=DUE, has_begun=True
)


def waiting(due_at_us: int = DUE, attempt: int = 2) -> Line:
    return Line(PLACE, State.RETRYING, attempt, MessageStand(Stand.WAITING, 1, attempt, due_at_us), "here:1")


def told(
    line: Line, known: Known | None = None, *, is_served: bool = True, handle_seconds_max: float = 0.0
) -> UnsettledRow:
    return row_of(line, known, "TP", NOW, is_served=is_served, handle_seconds_max=handle_seconds_max)


def test_who_has_it_is_told_with_the_times() -> None:
    row = told(Line(PLACE, State.IN_FLIGHT, 2, FLYING, "here:1"), Known(MESSAGE, 2, DUE, "boom"))

    said = "instance shop-1 (on host-1) at broker here:1 has it, as attempt 2, since 00:00:30, until 00:01:30"
    assert (row.detail, row.age_seconds, row.last_error) == (said, 60.0, "boom")
    assert (row.instance_id, row.host, row.has_begun, row.due_at) == ("shop-1", "host-1", True, None)
    assert (row.since, row.until) == (datetime_of(30_000_000), datetime_of(DUE))
    assert (row.message_id, row.event_code, row.key) == (UUID(int=7), "EC", "order-1")
    assert (row.held_seconds, row.latest) == (NOW / 1_000_000 - 30, None)


def test_that_an_instance_may_ask_for_more_time_is_told_with_how_long_at_most() -> None:
    line = Line(PLACE, State.IN_FLIGHT, 2, FLYING, "here:1")
    may, may_no_longer = told(line, handle_seconds_max=600), told(line, handle_seconds_max=60)

    assert may.detail.endswith(", until 00:01:30, or as long as it asks for more time, 00:10:30 at the latest")
    assert may.latest == datetime_of(630_000_000)
    assert (may_no_longer.detail[-8:], may_no_longer.latest) == ("00:01:30", None)


def test_an_instance_that_goes_in_that_moment_has_no_name() -> None:
    gone = MessageStand(Stand.IN_FLIGHT, 1, 1)

    assert told(Line(PLACE, State.IN_FLIGHT, 1, gone, "here:1")).detail.startswith("an instance that goes at broker")


def test_when_an_attempt_is_due_is_told_by_the_row_where_it_is_of_that_attempt() -> None:
    by_broker = told(waiting(), Known(MESSAGE, 1, 70_000_000, "of an earlier one"))
    by_row = told(waiting(), Known(MESSAGE, 2, 70_000_000, "boom"))
    due = told(waiting(due_at_us=NOW - 1))

    assert (by_broker.due_at, by_broker.last_error) == (datetime_of(DUE), None)
    assert (by_row.due_at, by_row.last_error) == (datetime_of(70_000_000), "boom")
    assert by_row.detail == "attempt 2 is due at 00:01:10"
    assert due.detail == "attempt 2 is due: it is ready for the next instance that has room"


@pytest.mark.parametrize(
    "is_served, says",
    [(True, "or an instance has it: its broker was not asked"), (False, "no broker serves its lane")],
)
def test_by_the_row_alone_nobody_knows_whether_an_instance_has_it(says: str, *, is_served: bool) -> None:
    line = Line(PLACE, State.RETRYING, 2, row=WaitingMessage(1, 5, STORED, 2, DUE, None))
    row = told(line, Known(None, 2, DUE, "boom"), is_served=is_served)

    assert row.detail.startswith("attempt 2 is due at 00:01:30")
    assert says in row.detail
    assert (row.broker, row.message_id, row.last_error, row.is_served) == (None, None, "boom", is_served)


def test_what_waits_for_a_subscription_or_for_room_says_so() -> None:
    shelved = told(Line(PLACE, State.SHELVED, 1, MessageStand(Stand.SHELVED, 1, 1), "here:1"))
    ready = told(Line(PLACE, State.PENDING, 1, MessageStand(Stand.READY, 1, 1), "here:1"))

    assert shelved.detail == "only paused subscriptions want it: it waits for them"
    assert ready.detail == "it is ready for the next instance that has room"


def test_what_comes_next_says_why_nobody_has_it() -> None:
    def why(owner: UUID | None, heard: Heard | None) -> str:
        row = next_row(MESSAGE, LaneStanding(1, 1, owner, 5, NOW), heard, NOW)
        assert (row.topic, row.is_served) == ("TP", owner is not None)
        assert row.broker == (None if heard is None else "here:1")
        return row.detail

    heard = Heard("here:1", LaneUnsettled(1, 1, 5, 0, 0))
    assert why(UUID(int=1), heard).startswith("broker here:1 has not read it yet")
    assert why(None, None).startswith("no broker serves its lane")
    assert "an instance may have it" in why(UUID(int=1), None)
