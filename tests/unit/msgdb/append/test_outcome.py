"""What became of a frame survives its packing, and takes little room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msgdb.append.outcome import FrameOutcome, Refused, decode, encode

_TEXT = st.text('aé文"\\ ', max_size=5)


@st.composite
def outcomes(draw: st.DrawFn, messages_max: int = 20) -> FrameOutcome:
    """Return an outcome as the plan makes it: in each queue, offsets go up by one."""
    wanted = draw(st.lists(st.integers(0, 5), max_size=messages_max))
    queues = {index: draw(st.integers(1, 2**62)) + index for index in set(wanted) if index}
    next_offsets = {queue_id: draw(st.integers(0, 2**62)) for queue_id in queues.values()}
    queue_ids, queue_offsets = [], []
    refusals = []
    for place, index in enumerate(wanted):
        queue_id = queues.get(index, 0)
        queue_ids.append(queue_id)
        queue_offsets.append(next_offsets.get(queue_id, 0))
        if queue_id:
            next_offsets[queue_id] += 1
        else:
            refusals.append(
                Refused(place, draw(_TEXT), draw(_TEXT), draw(_TEXT), draw(st.dictionaries(_TEXT, _TEXT, max_size=2)))
            )
    message_id = draw(st.binary(min_size=16, max_size=16))
    sequence, stored_at_us = draw(st.integers(1, 2**63)), draw(st.integers(0, 2**62))
    ahead = draw(st.dictionaries(st.sampled_from([0, *queues.values()]), st.integers(0, 2**62), max_size=3))
    return FrameOutcome(sequence, message_id, stored_at_us, queue_ids, queue_offsets, tuple(refusals), ahead)


@given(st.lists(outcomes(), max_size=3))
def test_outcomes_read_as_they_were_written(frames: list[FrameOutcome]) -> None:
    assert decode(encode(frames)) == frames


def test_a_frame_over_more_queues_than_a_byte_can_tell_apart_reads_as_it_was_written() -> None:
    for queue_count in (254, 255, 256, 300):
        queue_ids = [1 + place % queue_count for place in range(1_000)]
        offsets = [place // queue_count for place in range(1_000)]
        queue_ids[500] = offsets[500] = 0
        for place in range(500 + queue_count, 1_000, queue_count):
            # What was refused took no offset.
            offsets[place] -= 1
        frame = FrameOutcome(1, b"i" * 16, 1, queue_ids, offsets, (Refused(500, "R", "S", "m", {}),))

        assert decode(encode([frame])) == [frame]


def test_a_message_takes_about_a_byte() -> None:
    frame = FrameOutcome(1, b"i" * 16, 1, [7] * 1_000, list(range(1_000)))

    assert len(encode([frame])) < 1_100
