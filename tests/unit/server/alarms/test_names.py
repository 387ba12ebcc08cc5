"""Alarms of namespaces that use the same names are alarms of their own."""

from __future__ import annotations

import dataclasses

from msgbroker.server.alarms.names import lane_alarm, reading_alarm, topic_alarm
from msgbroker.server.alarms.set_aside import SetAside
from msgdb.reports.alarms import Alarm, AlarmKind
from tests.support.broker_builders import board, group_route, route

OTHER = "other"


def test_what_has_the_same_name_in_another_namespace_is_another_thing() -> None:
    topic, group = route(), group_route()
    other_topic = dataclasses.replace(topic, namespace=OTHER, topic_id=2)
    other_group = dataclasses.replace(group, namespace=OTHER, group_id=2)
    kind = AlarmKind.LANE_SET_ASIDE
    here = [topic_alarm(kind, topic), reading_alarm(kind, group, topic), lane_alarm(kind, group, topic, 1)]
    there = [
        topic_alarm(kind, other_topic),
        reading_alarm(kind, other_group, other_topic),
        lane_alarm(kind, other_group, other_topic, 1),
    ]

    assert len({alarm.thing for alarm in here + there}) == 6
    assert [alarm.topic_id for alarm in there] == [2, 2, 2]


def test_one_that_works_again_leaves_the_other_ones_alarm_standing() -> None:
    topics = {1: route(), 2: dataclasses.replace(route(), namespace=OTHER, topic_id=2)}
    alarms = board()
    aside: SetAside[int] = SetAside(alarms, lambda topic_id: topic_alarm(AlarmKind.TOPIC_SET_ASIDE, topics[topic_id]))
    for topic_id in topics:
        aside.failed(topic_id, RuntimeError("broken"))
    aside.worked(1)

    standing: list[Alarm] = alarms.standing
    assert [alarm.topic_id for alarm in standing] == [2]
