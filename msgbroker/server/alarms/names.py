"""What alarms about topics, groups and lanes are called: one name for one thing, in whatever namespace it is."""

from __future__ import annotations

from confdb.routes import GroupRoute, TopicRoute
from confdb.unserved import name_group, name_topic
from msgdb.reports.alarms import Alarm, AlarmKind


def topic_alarm(kind: AlarmKind, topic: TopicRoute, detail: str = "") -> Alarm:
    """Return an alarm about a topic."""
    return Alarm(kind, name_topic(topic), detail, topic_id=topic.topic_id)


def reading_alarm(kind: AlarmKind, group: GroupRoute, topic: TopicRoute, detail: str = "") -> Alarm:
    """Return an alarm about what a group gets of a topic."""
    thing = f"{name_group(group)}, topic {topic.name}"
    return Alarm(kind, thing, detail, group_id=group.group_id, topic_id=topic.topic_id)


def lane_alarm(
    kind: AlarmKind, group: GroupRoute, topic: TopicRoute | None, queue_id: int, *, work: str = "", detail: str = ""
) -> Alarm:
    """Return an alarm about a lane, or one kind of *work* on it; what is not served yet has no known *topic*."""
    of_topic = f", topic {topic.name}" if topic is not None else ""
    thing = f"{name_group(group)}{of_topic}, queue {queue_id}{f': {work}' if work else ''}"
    topic_id = topic.topic_id if topic is not None else None
    return Alarm(kind, thing, detail, group_id=group.group_id, topic_id=topic_id, queue_id=queue_id)
