"""Routes, snapshots and messages for the broker's unit tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from confdb.routes import (
    ExpressionFailedError,
    GroupMode,
    GroupOrder,
    GroupRoute,
    Snapshot,
    SubscriptionMode,
    SubscriptionRoute,
    TopicKind,
    TopicRoute,
)
from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.log.cache import LogCache
from msgbroker.server.log.encoding import stamp
from msgbroker.server.log.message import NO_HEADERS, LogMessage
from msgdb.lanes.records import ClaimedLane, LaneKey
from msgdb.reports.alarms import Alarm, AlarmKind

TOPIC = "TP_TRADE"
PAID = "EC_PAID"


def route(topic_id: int = 1, **fields: Any) -> TopicRoute:
    """Return a topic of one queue."""
    values: dict[str, Any] = {
        "namespace": "default",
        "name": TOPIC,
        "kind": TopicKind.NORMAL,
        "queue_count": 1,
        "generation": 1,
        "body_bytes_max": 8_192,
        "is_open": False,
        "is_closed": False,
        "stress_refused": False,
        "event_codes": frozenset({PAID}),
    }
    return TopicRoute(topic_id=topic_id, **{**values, **fields})


def subscription(subscription_id: int = 1, topic_id: int = 1, **fields: Any) -> SubscriptionRoute:
    """Return a DIRECT subscription to EC_PAID of the topic."""
    values: dict[str, Any] = {
        "event_code": PAID,
        "mode": SubscriptionMode.DIRECT,
        "expression": None,
        "predicate": None,
        "start_offsets": {},
    }
    return SubscriptionRoute(subscription_id, topic_id, **{**values, **fields})


def group_route(group_id: int = 1, **fields: Any) -> GroupRoute:
    """Return a group that subscribes to EC_PAID of the topic."""
    values: dict[str, Any] = {
        "namespace": "default",
        "name": "SG_POINTS",
        "ack_timeout_seconds": 60.0,
        "retry_schedule_seconds": (10.0,),
        "attempts_max": 2,
        "unsettled_max": 10_000,
        "order": GroupOrder.NONE,
        "mode": GroupMode.SHARED,
        "paused": False,
        "subscriptions": (subscription(),),
    }
    return GroupRoute(group_id, **{**values, **fields})


def snapshot(*topics: TopicRoute, version: int = 1, **fields: Any) -> Snapshot:
    """Return a snapshot of these topics."""
    return Snapshot(version, topics={(topic.namespace, topic.name): topic for topic in topics}, **fields)


def log_message(
    queue_offset: int = -1,
    *,
    queue_id: int = 1,
    body: bytes = b"body",
    key: str = "",
    topic: TopicRoute | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
) -> LogMessage:
    """Return a message as admission makes it; committed, if it has an offset."""
    message = LogMessage(topic or route(), PAID, headers, key, body, b"", b"row", body, stress=False)
    if queue_offset >= 0:
        message.queue_id = queue_id
        message.queue_offset = queue_offset
        stamp([message], [queue_offset.to_bytes(16, "big")], 1_000)
    return message


def board() -> AlarmBoard:
    """Return an alarm board that writes nowhere."""
    return AlarmBoard(None, UUID(int=1), "here")  # type: ignore[arg-type]


def topic_alarm(topic_id: int) -> Alarm:
    """Return the alarm of a topic that is set aside."""
    return Alarm(AlarmKind.TOPIC_SET_ASIDE, f"topic {topic_id}", "")


def lanes(*queue_ids: int) -> list[OwnedLane]:
    """Return lanes of one group, on these queues."""
    hub = DeliveryHub(LogCache(None), board())  # type: ignore[arg-type]
    hub.pump.mark = lambda group: None  # type: ignore[method-assign]
    hub.follow(snapshot(route()))
    group = hub.attach(group_route(), Instance("one", 100, 1_000_000))
    for queue_id in queue_ids:
        hub.open_lane(group, route(), ClaimedLane(LaneKey(1, "", queue_id), 1, 0, []), (), 1e9)
    return [group.lanes[queue_id] for queue_id in queue_ids]


def fail(_: object) -> bool:
    raise ExpressionFailedError("headers.region", "no such key: region")


def group_of_hangzhou() -> GroupRoute:
    subscription = SubscriptionRoute(1, 1, PAID, SubscriptionMode.HEADER, "headers.region == 'hz'", fail, {})
    direct = dataclasses.replace(subscription, subscription_id=2, mode=SubscriptionMode.DIRECT, predicate=None)
    return GroupRoute(
        1, "default", "SG_POINTS", 60.0, (10.0,), 2, 100, GroupOrder.NONE, GroupMode.SHARED, paused=False,
        subscriptions=(dataclasses.replace(subscription, event_code="*"), dataclasses.replace(direct, event_code="EC")),
    )  # fmt: skip
