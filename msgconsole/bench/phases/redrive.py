"""A redrive beside the load: dead letters of another group are stored once more, and delivered to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

import psycopg

from confdb.store import ConfigStore
from msgbroker.contract.errors import BenchFailedError, ThingAlreadyExistsError
from msgconsole.bench.phases.center import BenchCenter
from msgconsole.bench.phases.registration import NAMESPACE, configuring
from msgconsole.bench.phases.worker_process import WorkerProcess
from msgconsole.bench.workers.load import EVENT_CODE
from msgconsole.operations.dead_letters.redrive import redrive
from msgconsole.operations.stores import Stores
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs.listing import get_job
from msgdb.jobs.records import JobState
from msgdb.jobs.steering import set_state
from msgdb.store import MessageStore

_TOPIC: Final = "TP_REDRIVEN"
_GROUP: Final = "SG_REDRIVEN"
_WANTED: Final = WantedDeadLetters(namespace=NAMESPACE, group_name=_GROUP)
_BURY: Final = f"""
INSERT INTO dead_letter (group_id, group_name, attempts, reason, last_error, queue_id, queue_offset, stored_at,
                         message_id, namespace, topic, event_code, body, born_at, stress)
SELECT %(group_id)s, '{_GROUP}', 16, 'ATTEMPTS_EXHAUSTED', 'the bank does not answer', 1, o, now(),
       gen_random_uuid(), '{NAMESPACE}', '{_TOPIC}', '{EVENT_CODE}', %(body)s, now(), false
FROM generate_series(1, %(letters)s) o
"""
_FORGET: Final = f"DELETE FROM dead_letter WHERE group_name = '{_GROUP}'"


@contextlib.contextmanager
def redriving(center: BenchCenter, letters: int, body_bytes: int) -> Iterator[WorkerProcess]:
    """Redrive so many dead letters while the block lasts, to an instance whose process is given.

    Raises BenchFailedError where they were not enough for all of it.
    """
    group_id = asyncio.run(_register(center))
    with psycopg.connect(center.msgdb_url, autocommit=True) as store:
        store.execute(_BURY, {"group_id": group_id, "letters": letters, "body": bytes(body_bytes)})
        task = {"addresses": center.address, "namespace": NAMESPACE, "groups": {_GROUP: [_TOPIC]}}
        with WorkerProcess("listen", task) as listener:
            listener.wait_until_ready()
            job_id = asyncio.run(_begin(center))
            yield listener
            asyncio.run(_end(center, job_id))
        store.execute(_FORGET)


async def _register(center: BenchCenter) -> int:
    async with configuring(center) as service:
        with contextlib.suppress(ThingAlreadyExistsError):
            await service.topics.create(NAMESPACE, _TOPIC)
            await service.event_codes.add(NAMESPACE, _TOPIC, EVENT_CODE)
            await service.subscriber_groups.create(NAMESPACE, _GROUP)
            changed = await service.subscriptions.create(NAMESPACE, _GROUP, _TOPIC, EVENT_CODE)
            await service.wait_until_active(changed.version)
        return (await service.subscriber_groups.get(NAMESPACE, _GROUP)).group_id


async def _begin(center: BenchCenter) -> int:
    async with ConfigStore.open(center.confdb_url) as config, MessageStore.open(center.msgdb_url) as messages:
        return (await redrive(Stores(config, messages), _WANTED, actor="bench", reason="beside a load")).job_id


async def _end(center: BenchCenter, job_id: int) -> None:
    async with MessageStore.open(center.msgdb_url) as messages, messages.transaction() as conn:
        job = await get_job(conn, job_id, namespace=NAMESPACE)
        if job.state != JobState.RUNNING or not job.done:
            raise BenchFailedError(f"the redrive beside the load is {job.state} after {job.done} of {job.total}")
        await set_state(
            conn, job_id, JobState.CANCELLED, namespace=NAMESPACE, actor="bench", reason="the load has ended"
        )
