"""Telling instances what is theirs no longer, though they are at it: they shall stop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.verdicts import Held
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.instances.notices import TakenBack


def tell_taken_back(instances: Mapping[str, Instance], lane: Lane[Any], now: float) -> None:
    """Tell those who have begun what the lane is about to take back. Who pulls has no way to be told."""
    late_by_instance: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for late in lane.late_and_begun(now):
        late_by_instance[late.instance_id].append((late.attempt, late.queue_offset))
    for name, late_of_one in late_by_instance.items():
        instance = instances.get(name)
        if instance is not None and not instance.pulls:
            by_attempt = groupby(sorted(late_of_one), key=lambda each: each[0])
            instance.notice(
                TakenBack(
                    [
                        Held(lane.key.queue_id, lane.epoch, attempt, [(offset, offset + 1) for _, offset in of_attempt])
                        for attempt, of_attempt in by_attempt
                    ]
                )
            )
