"""Heartbeats: what a broker tells of itself, and for how long it relies on what it heard of others."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from confdb.brokers import BrokerBeat, LiveBroker
from confdb.routes import Snapshot
from msgbroker.server import clock
from msgbroker.server.cluster.heartbeats import BrokerIdentity, HeartbeatConfig, Heartbeats
from tests.support.eventually import eventually

GROUP = 7
OWN, OTHER = UUID(int=1), UUID(int=2)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
OTHER_BROKER = LiveBroker(
    OTHER, "host:2", "host", 1, 1, draining=False, groups={GROUP: 2}, process_version="1", started_at=NOW,
    heartbeat_at=NOW,
)  # fmt: skip


class Registry:
    """A registry with another broker in it, which answers everybody."""

    def __init__(self) -> None:
        self.beats: list[BrokerBeat] = []

    async def beat(self, beat: BrokerBeat) -> list[LiveBroker]:
        self.beats.append(beat)
        return [dataclasses.replace(OTHER_BROKER, broker_id=OWN), OTHER_BROKER]


def heartbeats_with(registry: Registry, **config: float) -> Heartbeats:
    hub: Any = SimpleNamespace(
        groups={GROUP: SimpleNamespace(instances={"one": None})},
        outgoing=SimpleNamespace(obeyed_version=lambda version: version),
    )
    misplaced: Any = SimpleNamespace(withheld_to_tell=lambda _: {})
    cut_off: Any = SimpleNamespace(beaten=lambda _: None)
    return Heartbeats(
        identity=BrokerIdentity(OWN, "here:1", "1"),
        registry=registry,  # type: ignore[arg-type]
        hub=hub,
        snapshot=lambda: Snapshot(5),
        misplaced=misplaced,
        cut_off=cut_off,
        config=HeartbeatConfig(**config),
    )


async def test_a_broker_tells_which_groups_it_has_and_that_it_has_none_when_it_stops() -> None:
    registry = Registry()
    heartbeats = heartbeats_with(registry)

    await heartbeats.beat_once()
    heartbeats.drain()
    await heartbeats.beat_once()

    assert [(beat.draining, beat.groups) for beat in registry.beats] == [(False, {GROUP: 1}), (True, {})]
    assert heartbeats.beaten_version == 5
    assert heartbeats.groups_at_others() == {GROUP}


async def test_lanes_are_shared_only_with_those_that_were_heard_of_lately(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(clock, "now", lambda: now)
    heartbeats = heartbeats_with(Registry(), trusted_seconds=10.0)
    assert [*heartbeats.rivals()] == []

    await heartbeats.beat_once()
    now += 10.0
    assert [*heartbeats.rivals()] == [OTHER_BROKER]

    now += 0.1
    assert [*heartbeats.rivals()] == []
    assert heartbeats.other_brokers() == [OTHER_BROKER]


async def test_the_next_beat_comes_at_once_when_others_are_to_hear_of_something_and_none_after_the_end() -> None:
    registry = Registry()
    heartbeats = heartbeats_with(registry, beat_seconds=3_600.0)
    stop = asyncio.Event()
    beating = asyncio.ensure_future(heartbeats.run(stop))
    await eventually(lambda: len(registry.beats) == 1)

    heartbeats.wake.set()
    await eventually(lambda: len(registry.beats) == 2)

    stop.set()
    await beating
    assert len(registry.beats) == 2
