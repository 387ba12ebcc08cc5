"""Telling instances what is theirs no longer, though they are at it: they shall stop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from msgbroker.engine.lane.lane import Lane
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.v1 import subscriber_pb2


def tell_taken_back(instances: Mapping[str, Instance], lane: Lane[Any], now: float) -> None:
    """Tell those who have begun what the lane is about to take back. Who pulls has no way to be told."""
    late_by_instance: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for late in lane.late_and_begun(now):
        late_by_instance[late.instance_id].append((late.attempt, late.queue_offset))
    for name, late_of_one in late_by_instance.items():
        instance = instances.get(name)
        if instance is not None and not instance.pulls:
            instance.notice(_notice(lane, sorted(late_of_one)))


def _notice(lane: Lane[Any], late: list[tuple[int, int]]) -> subscriber_pb2.SubscribeResponse:
    return subscriber_pb2.SubscribeResponse(
        taken_back=[
            subscriber_pb2.TakenBack(
                queue_id=lane.key.queue_id,
                epoch=lane.epoch,
                attempt=attempt,
                ranges=[bound for _, offset in of_attempt for bound in (offset, offset)],
            )
            for attempt, of_attempt in groupby(late, key=lambda each: each[0])
        ]
    )
