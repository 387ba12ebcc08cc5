"""Whether a purge can have deleted the dead letter of a message. Pure."""

from __future__ import annotations

from confdb.past import PastGroup
from msgconsole.operations.status.reading import Readable
from msgdb.jobs.purge_jobs import PurgeJob
from msgdb.postgres.binary_rows import datetime_of


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
