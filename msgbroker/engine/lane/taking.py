"""Handing out: which of a lane's ready messages an instance gets at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgbroker.engine.lane.begun import Begun
from msgbroker.engine.lane.config import Again, Handout
from msgbroker.engine.lane.flights import Flight
from msgbroker.engine.lane.reading import settle_between
from msgbroker.engine.lane.state import LaneState
from msgbroker.engine.messages import MessageT
from msgbroker.engine.tally import counted_of

MayHandOut = Callable[[MessageT], bool]
"""Asked for stress messages only, at every hand-out: False settles the message without delivery."""


def take(
    state: LaneState[MessageT],
    instance_id: str,
    count_max: int,
    bytes_max: int,
    now: float,
    *,
    may_hand_out: MayHandOut[MessageT] | None,
    begun: Begun,
    place: int,
) -> Handout[MessageT]:
    """Hand out to *instance_id* what comes again, then what is new; at least one message if there is any.

    All of it in the order of the queue: where something that comes again lies behind what is new (an earlier owner had
    read further), what is new is left for the next time.
    """
    deadline = now + state.config.ack_timeout_seconds
    handout: Handout[MessageT] = Handout(deadline=deadline)
    if state.again.ready:
        bytes_max -= _take_again(state, handout, count_max, bytes_max, may_hand_out)
        handout.is_suspect = bool(handout.again) and handout.is_suspect
        handout.again.sort(key=_offset_of)
        for index, again in enumerate(handout.again):
            record = state.again.by_offset[again.message.queue_offset]
            record.counted_among, record.counted_at = counted_of((again.message,)), 0
            state.again.hand_out(
                record, instance_id, handed_at=now, deadline=deadline, begun=begun, place=place + index
            )
    count_max -= len(handout.again)
    while count_max > 0 and state.ready and not (handout.fresh or handout.is_suspect):
        first = state.ready.first
        if handout.again and (first.size_bytes > bytes_max or first.queue_offset < _offset_of(handout.again[-1])):
            break
        # Empty where all of a batch was denied: then there may be more.
        handout.fresh = _take_fresh(state, count_max, bytes_max, may_hand_out)
    if handout.fresh:
        place += len(handout.again)
        times = (now, deadline)
        state.flights.add(_flight_of(handout.fresh, instance_id, times, begun=begun, place=place))
    count = handout.count
    if count:
        state.unsettled_by_instance[instance_id] += count
        state.counters.handed_out += count
        state.counters.redelivered += len(handout.again)
    return handout


def _take_again(
    state: LaneState[MessageT],
    handout: Handout[MessageT],
    count_max: int,
    bytes_max: int,
    may_hand_out: MayHandOut[MessageT] | None,
) -> int:
    """Move what comes again into *handout*, either suspects or others; return its bytes."""
    ready, taken_bytes = state.again.ready, 0
    handout.is_suspect = ready[0][0].is_suspect
    while ready and len(handout.again) < count_max:
        record, message = ready[0]
        if record.is_suspect != handout.is_suspect:
            if handout.again:
                break
            handout.is_suspect = record.is_suspect
        if handout.again and taken_bytes + message.size_bytes > bytes_max:
            break
        ready.popleft()
        if message.stress and may_hand_out is not None and not may_hand_out(message):
            state.counters.denied += 1
            state.settle_record(record)
            state.watcher.denied((message.queue_offset,))
        else:
            taken_bytes += message.size_bytes
            handout.again.append(Again(message, record.attempt))
    return taken_bytes


def _take_fresh(
    state: LaneState[MessageT], count_max: int, bytes_max: int, may_hand_out: MayHandOut[MessageT] | None
) -> list[MessageT]:
    batch = state.ready.take(count_max, bytes_max)
    if may_hand_out is None:
        return batch
    allowed = [message for message in batch if not message.stress or may_hand_out(message)]
    if len(allowed) < len(batch):
        state.counters.denied += len(batch) - len(allowed)
        settle_between(state, batch[0].queue_offset, batch[-1].queue_offset + 1, allowed)
        seen = {message.queue_offset for message in allowed}
        state.watcher.denied([message.queue_offset for message in batch if message.queue_offset not in seen])
    return allowed


def _offset_of(again: Again[MessageT]) -> int:
    return again.message.queue_offset


def _flight_of(
    batch: Sequence[MessageT], instance_id: str, times: tuple[float, float], *, begun: Begun, place: int
) -> Flight:
    first, last = batch[0].queue_offset, batch[-1].queue_offset
    # Most batches have no holes: then a range says it all.
    is_dense = last - first + 1 == len(batch)
    handed_at, deadline = times
    offsets = range(first, last + 1) if is_dense else [message.queue_offset for message in batch]
    return Flight(
        instance_id,
        offsets,
        [message.stored_at_us for message in batch],
        [message.ordering_key for message in batch],
        handed_at=handed_at,
        deadline=deadline,
        begun=begun,
        place=place,
        counted=counted_of(batch),
    )
