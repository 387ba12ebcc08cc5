"""A dead letter, as the status of its message tells it."""

from __future__ import annotations

from msgbroker.engine.verdicts import DeadLetterReason
from msgconsole.operations.status.answers import DeadLetterOf, State
from msgdb.lanes.standing import Buried
from msgdb.postgres.binary_rows import datetime_of


def dead_letter_of(buried: Buried) -> DeadLetterOf:
    """Return a dead letter as it is told."""
    jobs = tuple(each.job_id for each in buried.redriven)
    died_at = datetime_of(buried.died_at_us)
    return DeadLetterOf(buried.dead_letter_id, died_at, buried.attempts, buried.reason, buried.last_error, jobs)


def state_of_letter(letter: DeadLetterOf) -> State:
    """Return what a message is that is this dead letter."""
    return State.EXPIRED if letter.reason == DeadLetterReason.EXPIRED else State.DEAD_LETTER


def said_of_letter(letter: DeadLetterOf) -> str:
    """Say it to people."""
    attempts = "attempt" if letter.attempts == 1 else "attempts"
    detail = f"dead letter {letter.dead_letter_id}, {letter.reason} after {letter.attempts} {attempts}"
    return f"{detail}; redriven by job {', '.join(map(str, letter.redriven_by))}" if letter.redriven_by else detail
