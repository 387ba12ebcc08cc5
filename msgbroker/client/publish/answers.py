"""What a broker's answers to frames mean: for those who wait, for the outbox, and for the stream that they came by."""

from __future__ import annotations

import logging
from typing import Final

from msgbroker.client.connect.failures import from_refusal
from msgbroker.client.publish.buffer import PublishBuffer, new_publisher_id
from msgbroker.client.publish.frames import Frame, Reaction
from msgbroker.client.publish.given_up import broken_by, given_up
from msgbroker.client.publish.publisher import ReceiptFuture
from msgbroker.client.values.log_lines import log_line
from msgbroker.contract.errors import FrameForgottenError, ResourceExhaustedError, SequenceGapError, UnavailableError
from msgbroker.v1 import publisher_pb2

_HINT_SECONDS_MAX: Final = 30.0


class Answers:
    """Takes the answers to the frames of one buffer, through whichever broker they come."""

    def __init__(self, buffer: PublishBuffer, *, is_patient: bool) -> None:
        """Take them; unless it *is_patient*, messages are given up where a broker has no database."""
        self._buffer = buffer
        self._outbox = buffer.outbox
        self._is_patient = is_patient

    def take(self, result: publisher_pb2.PublishResult) -> bool:
        """Take the answer to a frame; return False where nothing more can come of the stream."""
        if result.HasField("failure"):
            goes_on = self._take_failure(result)
        else:
            goes_on = True
            self._buffer.trouble = None
            frame = self._outbox.stored(result.sequence)
            if frame is not None:
                self._resolve(frame, result)
        self._buffer.after_removal()
        return goes_on

    def _resolve(self, frame: Frame[ReceiptFuture], result: publisher_pb2.PublishResult) -> None:
        try:
            self._buffer.resolve(frame, result)
        except Exception as error:
            # An answer that makes no sense. The frame is in the outbox no longer: those who wait for it hear it here.
            self._buffer.fail_frame(frame, given_up(broken_by(error), may_be_stored=True))
            raise

    def _take_failure(self, result: publisher_pb2.PublishResult) -> bool:
        failure = from_refusal(result.failure)
        if failure.retryable:
            self._buffer.trouble = failure
        reaction, frame = self._outbox.failed(
            result.sequence,
            failure.reason,
            retryable=failure.retryable or result.failure.retryable,
            expected=(failure.expected or None) if isinstance(failure, SequenceGapError) else None,
        )
        if frame is not None:
            self._buffer.fail_frame(frame, failure)
            log_line(logging.ERROR, "publisher.frame_given_up", failure.message, reason=failure.reason)
        if reaction is Reaction.RESTART:
            self._outbox.restart(new_publisher_id())
            return False
        is_outage = failure.reason not in {SequenceGapError.reason, FrameForgottenError.reason}
        if reaction is Reaction.WAIT and is_outage and not self._is_patient:
            self._buffer.fail_all(failure)
            return False
        return True


def hint_seconds(result: publisher_pb2.PublishResult) -> float:
    """Return how long the broker asks to wait before the next try; 0 if it does not say."""
    failure = from_refusal(result.failure)
    seconds = failure.retry_after_seconds if isinstance(failure, ResourceExhaustedError | UnavailableError) else None
    return min(max(seconds or 0.0, 0.0), _HINT_SECONDS_MAX)
