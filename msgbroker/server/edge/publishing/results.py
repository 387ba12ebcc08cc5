"""What a publisher is told of a frame: where its messages are, or why they are not stored."""

from __future__ import annotations

import asyncio

from msgbroker.contract.errors import FrameForgottenError, MessageCenterError, SequenceGapError
from msgbroker.server.edge.refusals import refusal_of, refusal_of_stored
from msgbroker.v1 import publisher_pb2
from msgdb.append.plan import FrameResult, Gap, Stored, StoredBefore


def result_of(sequence: int, result: FrameResult) -> publisher_pb2.PublishResult:
    """Return the answer for what became of a frame."""
    if not isinstance(result, Stored):
        return publisher_pb2.PublishResult(sequence=sequence, failure=refusal_of(failure_of(sequence, result)))
    outcome = result.outcome
    return publisher_pb2.PublishResult(
        sequence=sequence,
        first_message_id=outcome.first_message_id,
        stored_at_us=outcome.stored_at_us,
        queue_ids=outcome.queue_ids,
        queue_offsets=outcome.queue_offsets,
        refusals=[
            publisher_pb2.MessageRefusal(index=refused.index, refusal=refusal_of_stored(refused))
            for refused in outcome.refusals
        ],
        duplicate=result.duplicate,
        ahead=[
            publisher_pb2.QueueTime(queue_id=queue_id, stored_at_us=stored_at_us)
            for queue_id, stored_at_us in outcome.ahead_us.items()
        ],
    )


def failure_of(sequence: int, result: FrameResult) -> MessageCenterError:
    """Return the error for a frame that was not stored."""
    if isinstance(result, Gap):
        return SequenceGapError(sequence, result.expected)
    assert isinstance(result, StoredBefore)
    return FrameForgottenError(sequence, result.last_sequence + 1)


def encoded_answer(sequence: int, answer: asyncio.Future[FrameResult]) -> bytes:
    """Return what the publisher of a stream is told, encoded; raises what is none of our errors."""
    error = answer.exception()
    if error is None:
        return result_of(sequence, answer.result()).SerializeToString()
    if isinstance(error, MessageCenterError):
        return publisher_pb2.PublishResult(sequence=sequence, failure=refusal_of(error)).SerializeToString()
    raise error
