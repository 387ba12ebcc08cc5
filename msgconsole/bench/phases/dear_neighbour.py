"""Another tenant beside the load: its group has an expression that takes long, and a backlog to evaluate it on."""

from __future__ import annotations

import asyncio
from typing import Final

import psycopg

from msgbroker.client import MessageCenter, OutgoingMessage
from msgconsole.bench.phases.center import BenchCenter
from msgconsole.bench.phases.registration import configuring
from msgconsole.bench.phases.worker_process import WorkerProcess
from msgconsole.bench.scenario import DearNeighbour
from msgconsole.bench.workers.load import EVENT_CODE

_NAMESPACE: Final = "tenant"
_TOPIC: Final = "TP_TENANT"
_GROUP: Final = "SG_TENANT"
_PUBLISHED_AT_ONCE: Final = 500

# A hundred comparisons for each pair of headers.
_COMPARISONS: Final = " || ".join(f'a + b == "{n}"' for n in range(100))
_EXPRESSION: Final = f"headers.exists(a, headers.exists(b, {_COMPARISONS}))"
_HEADERS: Final = {f"header-{number:02}": "v" * 50 for number in range(60)}

# Past the services, which would refuse it: as one that was registered before there was a limit.
_MAKE_DEAR: Final = """
UPDATE subscription SET mode = 'HEADER', expression = %s
WHERE topic_id = (SELECT topic_id FROM topic WHERE name = %s)
"""
_VERSION: Final = "UPDATE config_version SET version = version + 1, changed_at = now() RETURNING version"


def connect(center: BenchCenter, step: DearNeighbour) -> WorkerProcess:
    """Register it, publish its backlog, and return the process of its instance, which the caller ends."""
    asyncio.run(_prepare(center, step))
    task = {"addresses": center.address, "namespace": _NAMESPACE, "groups": {_GROUP: [_TOPIC]}}
    listener = WorkerProcess("listen", task)
    listener.wait_until_ready()
    return listener


async def _prepare(center: BenchCenter, step: DearNeighbour) -> None:
    async with configuring(center) as service:
        await service.namespaces.create(_NAMESPACE)
        await service.topics.create(_NAMESPACE, _TOPIC)
        await service.event_codes.add(_NAMESPACE, _TOPIC, EVENT_CODE)
        await service.subscriber_groups.create(_NAMESPACE, _GROUP)
        await service.subscriptions.create(_NAMESPACE, _GROUP, _TOPIC, EVENT_CODE)
        with psycopg.connect(center.confdb_url) as config:
            config.execute(_MAKE_DEAR, (_EXPRESSION, _TOPIC))
            (version,) = config.execute(_VERSION).fetchone() or (0,)
        await service.wait_until_active(version)
    async with MessageCenter(center.address, namespace=_NAMESPACE) as tenant:
        for first in range(0, step.backlog, _PUBLISHED_AT_ONCE):
            count = min(_PUBLISHED_AT_ONCE, step.backlog - first)
            await tenant.publish_many([OutgoingMessage(_TOPIC, EVENT_CODE, b"", headers=_HEADERS)] * count)
