"""Storing a step's messages once more, as one frame: whoever repeats the step stores it once, and learns the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgbroker.contract.errors import MessageCenterError
from msgbroker.server.log.message import TargetedMessage
from msgbroker.server.publish.admission import refused
from msgbroker.server.publish.committer import Committer
from msgdb.append.outcome import FrameOutcome
from msgdb.append.plan import AppendFrame, Stored

STEP_BYTES_MAX: Final = 1024 * 1024
"""How large the bodies of a step are in all, unless it is a single one."""


@dataclass(frozen=True, slots=True)
class StoredAgain:
    """What became of a message that was to be stored once more."""

    queue_id: int | None = None
    """Where it is; None: it is stored, and where is not known any more, or it is not, and `error` says why."""
    queue_offset: int | None = None
    error: str | None = None
    """Why it is not stored."""


class Republisher:
    """Stores messages once more through this broker's committer, beside what publishers send."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    async def store(
        self, publisher_id: bytes, items: Sequence[TargetedMessage | MessageCenterError]
    ) -> list[StoredAgain]:
        """Store *items*, the only frame of that publisher, and return what became of each.

        Instead of a message there may be why it cannot be stored. Where the frame was stored before, by whomever, all
        of it is as it was then. Raises what keeps the frame from being stored now; then it may be stored all the same.
        """
        messages = [item for item in items if isinstance(item, TargetedMessage)]
        refusals = tuple(
            refused(index, item) for index, item in enumerate(items) if isinstance(item, MessageCenterError)
        )
        frame = AppendFrame(
            publisher_id,
            1,
            messages,
            refusals,
            size_bytes=sum(message.size_bytes for message in messages),
            keeps_ids=True,
        )
        hold = await self._committer.budget.hold(sum(message.held_bytes for message in messages))
        with hold:
            result = await self._committer.submit(frame, hold)
        if isinstance(result, Stored):
            return _by_item(result.outcome)
        # Its number is taken, and what became of it is forgotten.
        return [StoredAgain() for _ in items]


def _by_item(outcome: FrameOutcome) -> list[StoredAgain]:
    errors = {refusal.index: refusal.message for refusal in outcome.refusals}
    return [
        StoredAgain(error=errors.get(index, "it was refused")) if not queue_id else StoredAgain(queue_id, queue_offset)
        for index, (queue_id, queue_offset) in enumerate(zip(outcome.queue_ids, outcome.queue_offsets, strict=True))
    ]
