"""What a commit decided is filled in: each message gets its id and time, and the form in which subscribers get it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from msgbroker.contract import limits
from msgbroker.engine.tracing import ALWAYS_TRACED, draws_below, threshold_of
from msgbroker.server.log.encoding import stamp
from msgbroker.server.log.message import LogMessage, TargetedMessage
from msgdb.append.outcome import FrameOutcome
from msgdb.append.plan import AppendFrame

_CHEAP_THRESHOLD: Final = threshold_of(limits.TRACE_RATE_DEFAULT)


def stamped_by_queue(
    stored: Iterable[tuple[AppendFrame, FrameOutcome]], trace_threshold: int = 0
) -> dict[int, list[LogMessage]]:
    """Seal the messages of all frames that one transaction stored, and return them by queue, in their order.

    *trace_threshold*: below which draw a message may be traced; whether it is, its topic's rate says.
    """
    by_queue: dict[int, list[LogMessage]] = {}
    for frame, outcome in stored:
        messages: Sequence[LogMessage] = frame.messages  # type: ignore[assignment]
        if trace_threshold:
            _draw(frame, messages, outcome, trace_threshold)
        _stamp(frame, messages, outcome)
        for message in messages:
            in_queue = by_queue.get(message.queue_id)
            if in_queue is None:
                by_queue[message.queue_id] = [message]
            else:
                in_queue.append(message)
    return by_queue


def _stamp(frame: AppendFrame, messages: Sequence[LogMessage], outcome: FrameOutcome) -> None:
    """Fill in what the commit decided of a frame's messages."""
    if frame.keeps_ids:
        message_ids = [cast("TargetedMessage", message).message_id for message in messages]
    else:
        message_ids = _minted(outcome, len(messages))
    if not outcome.ahead_us:
        stamp(messages, message_ids, outcome.stored_at_us)
        return
    for message, message_id in zip(messages, message_ids, strict=True):
        stamp((message,), (message_id,), outcome.stored_at_us_in(message.queue_id))


def _draw(frame: AppendFrame, messages: Sequence[LogMessage], outcome: FrameOutcome, threshold: int) -> None:
    """Give those messages of a frame their draws that may be traced: of most of them nothing is looked at."""
    if frame.keeps_ids:
        for message in messages:
            message.trace_draw = ALWAYS_TRACED
        return
    if threshold > _CHEAP_THRESHOLD:
        # Another topic's rate may be so high: then a look at the frame's own topics is less than all their draws.
        rates = {message.route.trace_rate for message in messages if message.route is not None}
        threshold = threshold_of(max(rates, default=0.0))
    first = int.from_bytes(outcome.first_message_id, "big")
    if outcome.refusals:
        places = [place for place, queue_id in enumerate(outcome.queue_ids) if queue_id]
        by_place = dict(zip(places, messages, strict=True))
        for place, draw in draws_below(threshold, first, len(outcome.queue_ids)):
            if place in by_place:
                by_place[place].trace_draw = draw
        return
    for place, draw in draws_below(threshold, first, len(messages)):
        messages[place].trace_draw = draw


def _minted(outcome: FrameOutcome, count: int) -> list[bytes]:
    """Return the ids that the commit gave a frame's messages, those of refused ones left out."""
    first = int.from_bytes(outcome.first_message_id, "big")
    numbers: Sequence[int] = range(first, first + count)
    if outcome.refusals:
        numbers = [first + i for i, queue_id in enumerate(outcome.queue_ids) if queue_id]
    return [number.to_bytes(16, "big") for number in numbers]
