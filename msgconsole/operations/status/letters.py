"""A dead letter, as the status of its message tells it; and whether a purge can have deleted one. Pure."""

from __future__ import annotations

from confdb.past import PastGroup
from msgbroker.engine.verdicts import DeadLetterReason
from msgconsole.operations.status.answers import DeadLetterOf, State
from msgconsole.operations.status.reading import Readable
from msgdb.jobs.purge_jobs import PurgeJob
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


def may_have_purged(job: PurgeJob, message: Readable, group: PastGroup, namespace: str) -> bool:
    """Return whether what a job was to delete may have had a dead letter of this message and group among it.

    Why and with which error it died, and its id, nobody knows any more: any may have been meant.
    """
    wanted = job.wanted
    if wanted.died_before is not None and wanted.died_before <= datetime_of(message.stored_at_us):
        return False
    if wanted.not_group_id == group.group_id:
        return False
    return all(
        said in {None, is_}
        for said, is_ in (
            (wanted.namespace, namespace),
            (wanted.group_id, group.group_id),
            (wanted.group_name, group.name),
            (wanted.topic, message.topic),
            (wanted.event_code, message.event_code),
            (wanted.key, message.key),
        )
    )
