"""What a commit decided is filled in: each message gets its id and time, and the form in which subscribers get it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from msgbroker.server.log.encoding import stamp
from msgbroker.server.log.message import LogMessage, TargetedMessage
from msgdb.append.outcome import FrameOutcome
from msgdb.append.plan import AppendFrame


def stamped_by_queue(stored: Iterable[tuple[AppendFrame, FrameOutcome]]) -> dict[int, list[LogMessage]]:
    """Seal the messages of all frames that one transaction stored, and return them by queue, in their order."""
    by_queue: dict[int, list[LogMessage]] = {}
    for frame, outcome in stored:
        messages: Sequence[LogMessage] = frame.messages  # type: ignore[assignment]
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


def _minted(outcome: FrameOutcome, count: int) -> list[bytes]:
    """Return the ids that the commit gave a frame's messages, those of refused ones left out."""
    first = int.from_bytes(outcome.first_message_id, "big")
    numbers: Sequence[int] = range(first, first + count)
    if outcome.refusals:
        numbers = [first + i for i, queue_id in enumerate(outcome.queue_ids) if queue_id]
    return [number.to_bytes(16, "big") for number in numbers]
