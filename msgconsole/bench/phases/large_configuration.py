"""A configuration of realistic size: written in bulk, then a broker is started with it and watched."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final

import grpc
import psycopg

from msgbroker.contract import limits
from msgbroker.contract.errors import BenchFailedError
from msgbroker.v1 import message_pb2, publisher_pb2, publisher_pb2_grpc
from msgconsole.bench.measures.resources import MemoryPeak, usage_of
from msgconsole.bench.measures.results import ConfigurationResult
from msgconsole.bench.phases.center import BenchCenter
from msgconsole.bench.phases.registration import NAMESPACE, configuring, ensure_topic
from msgconsole.bench.phases.worker_process import WorkerProcess
from msgconsole.bench.scenario import LargeConfiguration
from msgconsole.bench.workers.load import EVENT_CODE, TOPIC

_VISIBLE_SECONDS_MAX: Final = 10.0
_VISIBLE_POLL_SECONDS: Final = 0.005

# In bulk and past the services: one by one, through them, it would take longer than all that is measured.
_TOPICS: Final = """
INSERT INTO topic (namespace_id, name, queue_count, body_bytes_max)
SELECT namespace_id, 'TP_LARGE_' || n, %(queues)s, %(body_bytes_max)s
FROM namespace, generate_series(0, %(topics)s - 1) AS n WHERE namespace.name = %(namespace)s
"""
_EVENT_CODES: Final = """
INSERT INTO event_code (topic_id, name) SELECT topic_id, %(event_code)s FROM topic WHERE name LIKE 'TP_LARGE_%%'
"""
_GROUPS: Final = """
INSERT INTO subscriber_group
    (namespace_id, name, ack_timeout_seconds, retry_schedule_seconds, attempts_max, unsettled_max)
SELECT namespace_id, 'SG_LARGE_' || n, %(ack_timeout_seconds)s, %(retry_schedule)s, %(attempts_max)s, %(unsettled_max)s
FROM namespace, generate_series(0, %(groups)s - 1) AS n WHERE namespace.name = %(namespace)s
"""
_SUBSCRIPTIONS: Final = """
INSERT INTO subscription (group_id, topic_id, event_code)
SELECT g.group_id, t.topic_id, %(event_code)s
FROM generate_series(0, %(groups)s - 1) AS n, generate_series(0, %(per_group)s - 1) AS k,
     subscriber_group g, topic t
WHERE g.name = 'SG_LARGE_' || n AND t.name = 'TP_LARGE_' || ((n * %(per_group)s + k) %% %(topics)s)
"""
_VERSION: Final = "UPDATE config_version SET version = version + 1, changed_at = now()"
_TOPIC_IDS: Final = "SELECT topic_id FROM topic WHERE name LIKE 'TP_LARGE_%%'"
_QUEUES: Final = """
INSERT INTO queue (topic_id, generation, ordinal)
SELECT topic_id, 1, ordinal
FROM unnest(%(topic_ids)s::bigint[]) AS topic_id, generate_series(0, %(queues)s - 1) AS ordinal
"""


def measure(center: BenchCenter, step: LargeConfiguration) -> tuple[WorkerProcess, ConfigurationResult]:
    """Set the configuration up and measure; return the process of the live instances, which the caller ends, too."""
    center.stop_broker()
    _write(center, step)
    start_seconds = center.start_broker()
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(WorkerProcess("listen", _live(center, step)))
        listener.wait_until_ready()
        result = _watch(center, step, start_seconds)
        listener.check()
        stack.pop_all()
    return listener, result


def _watch(center: BenchCenter, step: LargeConfiguration, start_seconds: float) -> ConfigurationResult:
    with MemoryPeak(*center.pids["broker"]) as peak:
        visible, active = asyncio.run(_change(center, step.changes))
        time.sleep(step.settling_seconds)
        idle_cpu_share = _idle_cpu_share(center, step.idle_seconds)
    return ConfigurationResult(
        topics=step.topics,
        subscriptions=step.groups * step.subscriptions_per_group,
        live_subscriptions=step.live_groups * step.subscriptions_per_group,
        start_seconds=round(start_seconds, 3),
        change_visible_seconds=[round(seconds, 3) for seconds in visible],
        change_active_seconds=[round(seconds, 3) for seconds in active],
        idle_cpu_share=round(idle_cpu_share, 4),
        broker_rss_peak_mib=round(peak.rss_bytes / 2**20, 1),
    )


def _write(center: BenchCenter, step: LargeConfiguration) -> None:
    values: dict[str, Any] = {
        "namespace": NAMESPACE,
        "event_code": EVENT_CODE,
        "topics": step.topics,
        "queues": step.queues_per_topic,
        "groups": step.groups,
        "per_group": step.subscriptions_per_group,
        "body_bytes_max": limits.BODY_BYTES_DEFAULT,
        "ack_timeout_seconds": limits.ACK_TIMEOUT_SECONDS_DEFAULT,
        "retry_schedule": [float(seconds) for seconds in limits.RETRY_SCHEDULE_SECONDS_DEFAULT],
        "attempts_max": len(limits.RETRY_SCHEDULE_SECONDS_DEFAULT) + 1,
        "unsettled_max": limits.UNSETTLED_MAX_DEFAULT,
    }
    with psycopg.connect(center.confdb_url) as config:
        for statement in (_TOPICS, _EVENT_CODES, _GROUPS, _SUBSCRIPTIONS, _VERSION):
            config.execute(statement.encode(), values)
        topic_ids = [topic_id for (topic_id,) in config.execute(_TOPIC_IDS.encode(), {}).fetchall()]
    with psycopg.connect(center.msgdb_url) as store:
        store.execute(_QUEUES.encode(), {**values, "topic_ids": topic_ids})


def _live(center: BenchCenter, step: LargeConfiguration) -> dict[str, Any]:
    groups = {
        f"SG_LARGE_{number}": [
            f"TP_LARGE_{(number * step.subscriptions_per_group + place) % step.topics}"
            for place in range(step.subscriptions_per_group)
        ]
        for number in range(step.live_groups)
    }
    return {"addresses": center.address, "namespace": NAMESPACE, "groups": groups}


async def _change(center: BenchCenter, changes: int) -> tuple[list[float], list[float]]:
    """Add event codes; return how long until each can be published to, and until each is reported active."""
    visible: list[float] = []
    active: list[float] = []
    async with configuring(center) as service, grpc.aio.insecure_channel(center.address) as channel:
        await ensure_topic(service)
        stub: Any = publisher_pb2_grpc.PublisherStub(channel)
        for number in range(changes):
            code = f"EC_NEW_{number}"
            changed = await service.event_codes.add(NAMESPACE, TOPIC, code)
            committed_at = time.perf_counter()
            for at in _tries(committed_at, code):
                result = await stub.Publish(_request(code))
                if not result.refusals:
                    visible.append(time.perf_counter() - at)
                    break
                await asyncio.sleep(_VISIBLE_POLL_SECONDS)
            await service.wait_until_active(changed.version)
            active.append(time.perf_counter() - committed_at)
    return visible, active


def _tries(committed_at: float, code: str) -> Iterator[float]:
    while time.perf_counter() < committed_at + _VISIBLE_SECONDS_MAX:
        yield committed_at
    raise BenchFailedError(f"event code {code} could not be published to within {_VISIBLE_SECONDS_MAX:g} s")


def _request(event_code: str) -> publisher_pb2.PublishRequest:
    return publisher_pb2.PublishRequest(messages=[message_pb2.Message(topic=TOPIC, event_code=event_code, body=b"new")])


def _idle_cpu_share(center: BenchCenter, seconds: float) -> float:
    pids = center.pids["broker"]
    before, began_at = usage_of(pids), time.monotonic()
    time.sleep(seconds)
    return (usage_of(pids).cpu_seconds - before.cpu_seconds) / (time.monotonic() - began_at)
