"""A stream gives way to delivery: for as long as it had gone on, and only while a group is behind."""

from __future__ import annotations

import pytest

from msgbroker.server.publish.give_way import GivingWay

TOPICS = {1}


class Clock:
    """Time that passes when somebody sleeps, or says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        monkeypatch.setattr("msgbroker.server.publish.give_way.time.monotonic", lambda: self.now)
        monkeypatch.setattr("msgbroker.server.publish.give_way.asyncio.sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds


async def test_where_nobody_is_behind_nothing_slows_down(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    stream = GivingWay(lambda topic_ids: 1 not in topic_ids)
    clock.now += 0.01
    await stream.pause(TOPICS)

    assert clock.slept == []


async def test_while_a_group_is_behind_a_stream_pauses_every_other_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    stream = GivingWay(lambda topic_ids: 1 in topic_ids)
    for seconds in (0.01, 0.002, 0.0):
        clock.now += seconds
        await stream.pause(TOPICS)

    assert clock.slept == [0.01, 0.002, 0.0]


async def test_a_stream_that_was_quiet_does_not_wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    stream = GivingWay(lambda topic_ids: 1 in topic_ids)
    clock.now += 60
    await stream.pause(TOPICS)

    assert clock.slept == [0.03]
