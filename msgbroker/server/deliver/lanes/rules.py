"""What the configuration makes of a group's lanes: how long, how often, in which order, and which stress messages."""

from __future__ import annotations

from collections.abc import Callable

from confdb.routes import GroupOrder, GroupRoute, Snapshot, TopicRoute
from msgbroker.engine.lane.config import LaneConfig
from msgbroker.engine.retry import RetryPolicy
from msgbroker.engine.stress import StressGate
from msgbroker.server.log.message import LogMessage


def lane_config(route: GroupRoute) -> LaneConfig:
    """Return what a lane takes from its group."""
    return LaneConfig(
        ack_timeout_seconds=route.ack_timeout_seconds,
        handle_seconds_max=route.handle_seconds_max,
        retry=RetryPolicy(route.retry_schedule_seconds, route.attempts_max),
        # A route whose order is not known is not served.
        order=GroupOrder(route.order),
    )


def times_of(route: GroupRoute) -> tuple[float, float]:
    """Return how long an instance of the group has to answer, and how long with extensions."""
    return route.ack_timeout_seconds, route.handle_seconds_max


def stress_check(route: GroupRoute, topic: TopicRoute, snapshot: Snapshot) -> Callable[[LogMessage], bool]:
    """Return whether the group may see a stress message of the topic, by the whitelist of this snapshot."""
    gate = StressGate(snapshot)
    group_id, topic_id = route.group_id, topic.topic_id

    def may_hand_out(message: LogMessage) -> bool:
        return gate.allows(group_id, topic_id, message.event_code)

    return may_hand_out
