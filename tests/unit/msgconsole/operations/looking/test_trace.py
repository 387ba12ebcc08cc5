"""The story of a message: what happened in its order, and what may be missing of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgconsole.operations.looking.trace import (
    NOT_WRITTEN_YET,
    TracedCopy,
    TraceLine,
    lines_of,
    untraced_deaths,
    what_is_missing,
)
from msgdb.log.found import FoundMessage
from msgdb.looking.deaths import Death
from msgdb.trace.reading import LeftOut
from msgdb.trace.records import TraceEvent

SECOND = 1_000_000
STORED_AT = 1_800_000_000 * SECOND
COPY = FoundMessage(
    queue_id=3,
    queue_offset=9,
    stored_at_us=STORED_AT,
    message_id=UUID(int=5).bytes,
    namespace="default",
    topic="TP_TRADE",
    event_code="EC_PAID",
    key="order-1",
    ordering_key=None,
    headers=None,
    body_bytes=0,
    born_at_us=STORED_AT + SECOND,
    born_host="host",
    publisher_group="PG_SHOP",
    stress=False,
    target_group=None,
    redrives=0,
)
GROUPS = {7: "SG_POINTS"}


def event(kind: str, at: int, handed_at: int | None = None, attempt: int = 1, **said: object) -> TraceEvent:
    values = {"group_id": 7, "instance": "a", **said}
    handed_at_us = None if handed_at is None else STORED_AT + handed_at
    return TraceEvent(STORED_AT + at, kind, "host:1", 3, 9, 9, attempt=attempt, handed_at_us=handed_at_us, **values)  # type: ignore[arg-type]


def whats(lines: tuple[TraceLine, ...]) -> list[str]:
    return [line.what for line in lines]


def test_what_its_row_says_stands_first_whatever_the_publishers_clock_says() -> None:
    lines = lines_of(COPY, [], GROUPS)

    assert whats(lines) == ["PUBLISHED", "STORED"]
    assert (lines[0].detail, lines[1].broker) == ("PG_SHOP host", None)
    assert lines[0].at > lines[1].at


def test_an_end_tells_its_hand_out_unless_that_is_told_already() -> None:
    told_by_end = lines_of(COPY, [event("ACKED", 30, 10)], GROUPS)
    told_by_itself = lines_of(COPY, [event("HANDED_OUT", 12, 12), event("ACKED", 30, 10)], GROUPS)

    assert whats(told_by_end) == whats(told_by_itself) == ["PUBLISHED", "STORED", "HANDED_OUT", "ACKED"]
    acked = told_by_end[-1]
    assert (acked.group, acked.instance, acked.attempt, acked.seconds) == ("SG_POINTS", "a", 1, 0.000_02)
    assert told_by_end[2].seconds is None
    assert told_by_end[2].at == told_by_end[0].at + timedelta(microseconds=10 - SECOND)


def test_two_hand_outs_of_one_attempt_are_two() -> None:
    released = event("RELEASED", 20, 10)
    again = event("ACKED", 5 * SECOND, 4 * SECOND)

    lines = lines_of(COPY, [event("HANDED_OUT", 10, 10), released, again], GROUPS)

    assert whats(lines)[2:] == ["HANDED_OUT", "RELEASED", "HANDED_OUT", "ACKED"]


def test_what_is_of_one_moment_stands_in_the_order_in_which_it_can_have_happened() -> None:
    events = [event("DEAD_LETTERED", 10), event("REJECTED", 10, 0), event("STORED", 0), event("HANDED_OUT", 0, 0)]

    assert whats(lines_of(COPY, events, GROUPS)) == ["PUBLISHED", "STORED", "HANDED_OUT", "REJECTED", "DEAD_LETTERED"]


def test_a_redriven_message_is_not_published_again_and_a_group_that_is_gone_is_told_by_its_id() -> None:
    redriven = COPY._replace(target_group=8, redrives=1)

    lines = lines_of(redriven, [event("ACKED", 5, 5, group_id=8)], GROUPS)

    assert whats(lines) == ["STORED", "HANDED_OUT", "ACKED"]
    assert lines[-1].group == "group 8 (deleted)"


TRACED = TracedCopy(
    UUID(int=5), "default", "TP_TRADE", "EC_PAID", None, 3, 9, datetime(2026, 11, 20, tzinfo=UTC), stress=False,
    only_for=None, redrives=0, trace_rate=0.5, is_traced=True, lines=(),
)  # fmt: skip


def test_the_last_moment_may_always_be_missing() -> None:
    assert what_is_missing([TRACED], None, [])[0] == NOT_WRITTEN_YET


def test_each_reason_why_something_may_be_missing_is_a_sentence() -> None:
    untraced = replace(TRACED, is_traced=False)
    gone = replace(TRACED, is_traced=False, trace_rate=None)
    left_out = LeftOut("host:1", 1_200, STORED_AT, STORED_AT + SECOND)
    day = TRACED.stored_at.date()

    def said(*copies: TracedCopy, first_day: int = 0) -> str:
        return "\n".join(what_is_missing(copies, day + timedelta(days=first_day), [left_out])[1:])

    assert "At trace rate 0.5 of TP_TRADE this message is not among those" in said(untraced, untraced)
    assert said(untraced, untraced).count("trace rate") == 1
    assert "TP_TRADE is not registered any more" in said(gone)
    assert "lower trace rate" in said(TRACED)
    assert "What happened before 2026-11-21 is not kept." in said(TRACED, first_day=1)
    assert "not kept" not in said(TRACED)
    assert "host:1 left out up to 1,200 events, of any messages, from 2027-01-15 08:00:00 to" in said(TRACED)


def test_a_dead_letter_that_a_broker_has_noted_is_told_once() -> None:
    noted = event("DEAD_LETTERED", 10, detail="REJECTED")
    died = Death(1, 7, "SG_POINTS", STORED_AT + 12, 1, "REJECTED", None, None)
    by_hand = died._replace(group_id=8, reason="SKIPPED", attempts=0)

    (only,) = untraced_deaths(COPY, [noted], [died, by_hand])

    assert (only.group_id, only.detail, only.at_us) == (8, "SKIPPED", STORED_AT + 12)
    assert lines_of(COPY, [noted, only], GROUPS)[-1].broker is None
