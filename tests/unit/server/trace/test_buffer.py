"""What waits to be written is bounded, and what is left out is counted."""

from __future__ import annotations

from dataclasses import replace

from msgbroker.server.trace.buffer import BUFFER_FULL, NOT_WRITTEN, STORM, Noted, TraceBuffer
from msgdb.trace.records import TraceKind

AT = 1_000.0


def event(offset: int, kind: TraceKind = TraceKind.ACKED, *, at: float = AT, last: int | None = None) -> Noted:
    return Noted(kind, 3, offset, offset if last is None else last, at, group_id=7)


def test_what_does_not_fit_is_left_out_and_counted_message_by_message() -> None:
    buffer = TraceBuffer(events_max=2, now=lambda: AT)
    for offset in (0, 10, 20):
        buffer.note(event(offset, last=offset + 4))

    noted, left_out = buffer.take()

    assert [each.first for each in noted] == [0, 10]
    assert left_out is not None
    assert (left_out.counts, left_out.since) == ({BUFFER_FULL: 5}, AT)
    assert buffer.take() == ([], None)


def test_a_storm_of_one_kind_hides_no_other_and_passes() -> None:
    buffer = TraceBuffer(failures_per_second_max=3, now=lambda: AT)
    for offset in range(0, 20, 2):
        buffer.note_failure(event(offset, TraceKind.DENIED))
    buffer.note_failure(event(100, TraceKind.TIMED_OUT))
    buffer.note_failure(event(200, TraceKind.DENIED, at=AT + 1))

    noted, left_out = buffer.take()

    assert [(each.kind, each.first) for each in noted] == [
        (TraceKind.DENIED, 0),
        (TraceKind.DENIED, 2),
        (TraceKind.DENIED, 4),
        (TraceKind.TIMED_OUT, 100),
        (TraceKind.DENIED, 200),
    ]
    assert left_out is not None
    assert left_out.counts == {STORM: 7}


def test_a_hand_out_that_has_ended_is_not_told_by_itself() -> None:
    buffer = TraceBuffer(now=lambda: AT)
    ended, lasts = (buffer.hand_out(event(offset, TraceKind.HANDED_OUT)) for offset in (0, 5))
    ended.open_count -= 1

    noted, _ = buffer.take()

    assert noted == [lasts.noted]


def test_the_same_of_the_next_message_is_the_same_event_and_nothing_else_is() -> None:
    first = event(0)
    other = {
        "kind": TraceKind.RETRIED,
        "queue_id": 4,
        "at": AT + 1,
        "stored_at_us": 5,
        "attempt": 2,
        "detail": "boom",
        "instance": "a",
    }
    others = [replace(event(1), **{name: value}) for name, value in other.items()]  # type: ignore[arg-type]

    assert event(1).joins(first)
    assert [each for each in others if each.joins(first)] == []
    assert not event(2).joins(first)
    assert not event(1_000).joins(event(0, last=999))


def test_what_could_not_be_told_is_told_with_what_comes() -> None:
    buffer = TraceBuffer(now=lambda: AT)
    buffer.leave_out(3, NOT_WRITTEN)
    _, left_out = buffer.take()
    assert left_out is not None
    assert len(buffer) == 0

    buffer.leave_out_again(left_out)
    buffer.leave_out(2, NOT_WRITTEN)

    _, again = buffer.take()
    assert again is not None
    assert (again.counts, again.since) == ({NOT_WRITTEN: 5}, AT)


def test_what_is_forgotten_is_counted() -> None:
    buffer = TraceBuffer(now=lambda: AT)
    buffer.note(event(0, last=9))

    buffer.forget()

    noted, left_out = buffer.take()
    assert noted == []
    assert left_out is not None
    assert left_out.counts == {NOT_WRITTEN: 10}
