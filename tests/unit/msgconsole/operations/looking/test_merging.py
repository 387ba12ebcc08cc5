"""Several queues looked through as one log: by random logs, held against sorting them all."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from msgconsole.operations.looking.merging import LogMerge
from msgdb.log.found import FoundMessage, Position
from msgdb.looking.spans import Span
from msgdb.looking.stretches import ReadStretch

Log = dict[int, list[tuple[int, bool]]]
"""Of each queue, for each offset: when it was stored, and whether it is wanted."""


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log: Log = {}
    for queue_id in range(1, draw(st.integers(1, 4)) + 1):
        at, rows = 0, []
        for step, wanted in draw(st.lists(st.tuples(st.sampled_from([0, 0, 1, 50]), st.booleans()), max_size=80)):
            at += step
            rows.append((at, wanted))
        log[queue_id] = rows
    return log


def message(queue_id: int, offset: int, at: int) -> FoundMessage:
    return FoundMessage(queue_id, offset, at, b"", "", "", "", None, None, None, 0, at, None, None, False, None, 0)


def in_order(log: Log, *, newest_first: bool) -> list[Position]:
    wanted = (
        Position(at, queue_id, offset)
        for queue_id, rows in log.items()
        for offset, (at, is_wanted) in enumerate(rows)
        if is_wanted
    )
    return sorted(wanted, reverse=newest_first)


def read(log: Log, span: Span, limit: int, *, newest_first: bool) -> ReadStretch:
    """Do what `read_stretches` does."""
    rows = log[span.queue_id]
    offsets = range(span.first, span.end)
    found = [message(span.queue_id, at, rows[at][0]) for at in offsets if rows[at][1]]
    edge = rows[span.first if newest_first else span.end - 1][0]
    return ReadStretch(span, edge, (found[::-1] if newest_first else found)[:limit])


def spans_behind(log: Log, after: Position | None, *, newest_first: bool) -> list[Span]:
    """Do what `find_spans` does."""
    spans = []
    for queue_id, rows in log.items():
        kept = [
            offset
            for offset, (at, _) in enumerate(rows)
            if after is None or (Position(at, queue_id, offset) < after) == newest_first
            if after != Position(at, queue_id, offset)
        ]
        if kept:
            spans.append(Span(queue_id, kept[0], kept[-1] + 1))
    return spans


def page(log: Log, after: Position | None, limit: int, scanned_max: int, *, newest_first: bool) -> LogMerge:
    spans = spans_behind(log, after, newest_first=newest_first)
    merge = LogMerge(spans, wanted=limit, newest_first=newest_first, scanned_max=scanned_max, stretch_min=1)
    while stretches := merge.next_spans():
        missing = merge.missing
        merge.take_in([read(log, span, missing, newest_first=newest_first) for span in stretches])
        assert len(merge.found) <= limit
    return merge


@given(logs(), st.integers(1, 30), st.integers(1, 60), st.booleans())
def test_page_by_page_every_wanted_message_comes_once_and_in_order(
    log: Log, limit: int, scanned_max: int, newest_first: bool
) -> None:
    found: list[Position] = []
    after: Position | None = None
    for _ in range(1_000):
        merge = page(log, after, limit, scanned_max, newest_first=newest_first)
        found += [each.position for each in merge.found]
        if merge.is_end or merge.position is None:
            break
        assert after is None or (merge.position < after if newest_first else merge.position > after)
        after = merge.position

    assert found == in_order(log, newest_first=newest_first)


@given(logs(), st.integers(1, 30), st.booleans())
def test_what_a_page_gives_is_all_that_comes_up_to_where_it_ends(log: Log, limit: int, newest_first: bool) -> None:
    merge = page(log, None, limit, 40, newest_first=newest_first)

    expected = in_order(log, newest_first=newest_first)
    if (position := merge.position) is not None and not merge.is_end:
        reached: Callable[[Position], bool] = (lambda p: p >= position) if newest_first else (lambda p: p <= position)
        expected = [each for each in expected if reached(each)][:limit]
    assert [each.position for each in merge.found] == expected[:limit]


def test_no_more_is_looked_at_than_it_may_and_a_stretch_of_each_queue() -> None:
    log: Log = {queue_id: [(at, False) for at in range(50_000)] for queue_id in (1, 2)}

    merge = page(log, None, 10, 10_000, newest_first=True)

    assert merge.found == []
    assert 10_000 <= merge.looked_at <= 15_000
    assert merge.position is not None
    # Both queues are as far: who goes on behind it looks at little twice.
    assert merge.looked_at - 2 * (50_000 - merge.position.stored_at_us) < 5_000


def test_stretches_grow_as_long_as_they_are_read_quickly() -> None:
    merge = LogMerge([Span(1, 0, 90_000)], wanted=5)
    sizes = []
    for may_grow in (True, False, True, True, True):
        (span,) = merge.next_spans()
        sizes.append(span.end - span.first)
        merge.take_in([ReadStretch(span, 1, [])], may_grow=may_grow)

    assert sizes == [500, 2_000, 2_000, 8_000, 20_000]


def test_what_has_gone_meanwhile_ends_a_queue_from_its_end_and_is_passed_from_its_start() -> None:
    back = LogMerge([Span(1, 0, 999), Span(2, 0, 10)], wanted=5, newest_first=True)
    assert back.next_spans() == [Span(1, 499, 999), Span(2, 0, 10)]
    back.take_in([ReadStretch(Span(1, 499, 999), None, []), ReadStretch(Span(2, 0, 10), 7, [message(2, 9, 9)])])
    on = LogMerge([Span(1, 0, 600)], wanted=5)
    on.take_in([ReadStretch(Span(1, 0, 500), None, [])])

    assert ([each.queue_id for each in back.found], back.is_end) == ([2], True)
    assert on.next_spans() == [Span(1, 500, 600)]


def test_without_a_queue_there_is_nothing() -> None:
    merge = LogMerge([], wanted=5)

    assert (merge.next_spans(), merge.found, merge.is_end, merge.position) == ([], [], True, None)
