"""How ranges become tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_etl.source.planning import OffsetRange, ReadTask, scaled, tasks_of

RANGES = st.lists(
    st.builds(
        lambda queue_id, first, rows, row_bytes: OffsetRange(queue_id, first, first + rows, row_bytes),
        st.integers(1, 5),
        st.integers(0, 1 << 40),
        st.integers(0, 300),
        st.floats(1, 5_000_000),
    )
)


def ranges_in(tasks: list[ReadTask]) -> list[OffsetRange]:
    """Return the ranges of all tasks, in their order."""
    return [each for task in tasks for each in task.ranges or ()]


@given(RANGES, st.integers(1_000, 10_000_000))
def test_each_offset_is_read_once_and_in_order(ranges: list[OffsetRange], partition_bytes: int) -> None:
    read = ranges_in(tasks_of(ranges, partition_bytes))

    offsets = [(each.queue_id, offset) for each in read for offset in range(each.first, each.end)]
    assert offsets == [(each.queue_id, offset) for each in ranges for offset in range(each.first, each.end)]


@given(RANGES, st.integers(1_000, 10_000_000))
def test_a_task_is_of_about_the_bytes_that_it_may_be(ranges: list[OffsetRange], partition_bytes: int) -> None:
    for task in tasks_of(ranges, partition_bytes):
        read = ranges_in([task])
        rows = sum(each.end - each.first for each in read)
        assert rows == 1 or sum(each.bytes for each in read) <= partition_bytes * 1.001


def test_small_queues_share_a_task() -> None:
    thousand = [OffsetRange(queue_id, 0, 3, 1_000.0) for queue_id in range(1_000)]

    assert len(tasks_of(thousand, 128 << 20)) == 1


def test_of_nothing_there_is_no_task() -> None:
    assert tasks_of([OffsetRange(1, 5, 5, 10.0)], 1_000) == []


def test_a_sample_that_made_rows_out_too_small_is_put_right_by_the_tables_size() -> None:
    (larger, other) = scaled([OffsetRange(1, 0, 10, 100.0), OffsetRange(2, 0, 10, 300.0)], 8_000)

    assert (larger.row_bytes, other.row_bytes) == (200.0, 600.0)


def test_what_is_compressed_in_the_table_is_not_made_out_to_be_smaller() -> None:
    assert scaled([OffsetRange(1, 0, 10, 100.0)], 50) == [OffsetRange(1, 0, 10, 100.0)]


def test_a_range_is_cut_to_what_is_within() -> None:
    whole = OffsetRange(1, 10, 20, 1.0)

    assert [(each.first, each.end) for each in (whole.cut(5, 15), whole.cut(12, None), whole.cut(30, 40))] == [
        (10, 15),
        (12, 20),
        (30, 30),
    ]
