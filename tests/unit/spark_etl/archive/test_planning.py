"""What goes into which file: all of it, once, in order, and cut where digests are."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from msgdb.archive.records import ArchiveRange
from msgdb.archive.sizes import MeasuredRange
from spark_etl.archive.planning import plan_parts
from spark_etl.files.digest import PAGE_OFFSETS


def measured(queue_id: int, first: int, count: int, row_bytes: float) -> MeasuredRange:
    return MeasuredRange(ArchiveRange(queue_id, first, first + count - 1, UUID(int=0)), "", "", row_bytes)


RANGES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 20_000), st.floats(1, 4_000_000)), max_size=12).map(
    lambda each: [measured(queue_id, *values) for queue_id, values in enumerate(each, 1)]
)


@given(RANGES, st.integers(1 << 20, 1 << 28))
def test_each_offset_is_in_one_file_and_all_are_in_order(ranges: list[MeasuredRange], file_bytes: int) -> None:
    parts = plan_parts(ranges, file_bytes)

    joined: list[list[int]] = []
    for queue_id, first, end in (piece for part in parts for piece in part.pieces):
        if joined and joined[-1][0] == queue_id:
            assert joined[-1][2] == first
            joined[-1][2] = end
        else:
            joined.append([queue_id, first, end])
    wanted = [[each.range.queue_id, each.range.first_offset, each.range.last_offset + 1] for each in ranges]
    assert joined == wanted
    assert [part.number for part in parts] == list(range(len(parts)))


@given(RANGES, st.integers(1 << 20, 1 << 28))
def test_a_queue_is_cut_between_two_pages_only(ranges: list[MeasuredRange], file_bytes: int) -> None:
    ends = {each.range.queue_id: each.range.last_offset + 1 for each in ranges}

    pieces = [piece for part in plan_parts(ranges, file_bytes) for piece in part.pieces]

    assert all(piece.end % PAGE_OFFSETS == 0 or piece.end == ends[piece.queue_id] for piece in pieces)


@given(RANGES, st.integers(1 << 20, 1 << 28))
def test_a_file_has_no_more_than_its_bytes_or_one_page(ranges: list[MeasuredRange], file_bytes: int) -> None:
    row_bytes = {each.range.queue_id: each.row_bytes for each in ranges}

    for part in plan_parts(ranges, file_bytes):
        part_bytes = sum((end - first) * row_bytes[queue_id] for queue_id, first, end in part.pieces)
        assert part_bytes <= file_bytes * 1.000_001 or part.rows_about <= PAGE_OFFSETS


def test_files_are_filled_though_a_queue_is_cut_for_it() -> None:
    # Seven tenths of a file each.
    row_bytes = 0.7 * (1 << 28) / (200 * PAGE_OFFSETS)

    parts = plan_parts([measured(queue_id, 0, 200 * PAGE_OFFSETS, row_bytes) for queue_id in range(1, 11)], 1 << 28)

    assert len(parts) == 8


def test_a_queue_is_not_cut_for_a_crumb() -> None:
    parts = plan_parts(
        [measured(1, 0, 97 * PAGE_OFFSETS, 1_000), measured(2, 0, 50 * PAGE_OFFSETS, 1_000)], 102_400_000
    )

    assert [[piece.queue_id for piece in part.pieces] for part in parts] == [[1], [2]]


def test_small_queues_share_a_file() -> None:
    (part,) = plan_parts([measured(queue_id, 0, 100, 1_000) for queue_id in range(1, 9)], 1 << 20)

    assert len(part.pieces) == 8
    assert part.rows_about == 800


def test_a_day_without_messages_has_no_file() -> None:
    assert plan_parts([], 1 << 20) == []
