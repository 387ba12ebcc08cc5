"""What waits for its first hand-out keeps its order and is counted by its memory, whatever is added and taken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msgbroker.engine.lane.ready import ReadyMessages
from tests.support.lane_builders import FakeMessage

_SIZES = st.lists(st.integers(1, 50), max_size=8)
_BOUNDS = st.tuples(st.integers(1, 6), st.integers(0, 400))


@given(st.lists(st.tuples(_SIZES, _BOUNDS), max_size=12))
def test_what_is_taken_comes_in_order_and_within_the_bounds(steps: list[tuple[list[int], tuple[int, int]]]) -> None:
    ready: ReadyMessages[FakeMessage] = ReadyMessages()
    left: list[FakeMessage] = []
    for sizes, (count_max, bytes_max) in steps:
        added = [FakeMessage(0, size_bytes=size) for size in sizes]
        ready.add(added)
        left += added

        taken = ready.take(count_max, bytes_max)

        assert taken == left[: len(taken)]
        del left[: len(taken)]
        assert len(taken) <= count_max
        taken_bytes = sum(message.size_bytes for message in taken)
        assert taken_bytes <= bytes_max or len(taken) == 1
        if left:
            # As many as the bounds allow, and one at least.
            assert taken
            assert len(taken) == count_max or taken_bytes + ready.first.size_bytes > bytes_max
        assert (len(ready), ready.held_bytes) == (len(left), sum(message.held_bytes for message in left))

    ready.clear()
    assert (len(ready), ready.held_bytes, ready.take(5, 100)) == (0, 0, [])
