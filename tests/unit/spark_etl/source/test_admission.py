"""How far a stream goes in one batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_etl.source.admission import Waiting, admit

WAITING = st.dictionaries(
    st.integers(1, 30),
    st.builds(
        lambda first, rows, row_bytes: Waiting(first, first + rows, row_bytes),
        st.integers(0, 1 << 40),
        st.integers(0, 1_000),
        st.floats(1, 5_000_000),
    ),
)
BOUND = st.none() | st.integers(1, 10_000)


@given(WAITING, BOUND, BOUND)
def test_no_more_is_read_than_may_be_and_something_where_anything_waits(
    waiting: dict[int, Waiting], messages_max: int | None, bytes_max: int | None
) -> None:
    ends = admit(waiting, messages_max, bytes_max)

    taken = {queue_id: ends[queue_id] - each.first for queue_id, each in waiting.items()}
    assert all(0 <= count <= waiting[queue_id].messages for queue_id, count in taken.items())
    count = sum(taken.values())
    assert messages_max is None or count <= messages_max
    taken_bytes = sum(count * waiting[queue_id].row_bytes for queue_id, count in taken.items())
    assert bytes_max is None or count == 1 or taken_bytes <= bytes_max * 1.001
    assert (count > 0) == any(each.messages for each in waiting.values())


@given(WAITING)
def test_without_a_bound_all_of_it_is_read(waiting: dict[int, Waiting]) -> None:
    assert admit(waiting, None, None) == {queue_id: each.end for queue_id, each in waiting.items()}


def test_queues_reach_their_ends_together() -> None:
    waiting = {1: Waiting(0, 1_000_000), 2: Waiting(50, 1_050), 3: Waiting(0, 5)}

    assert admit(waiting, 100_000, None) == {1: 99_899, 2: 150, 3: 1}


def test_a_large_message_is_read_alone() -> None:
    assert admit({1: Waiting(0, 3, 4_000_000.0)}, None, 1_000) == {1: 1}
