"""A loop that the broker can do without for a while: it is started again, and the alarm stands until it goes well."""

from __future__ import annotations

import asyncio

import pytest

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server.alarms import set_aside, side_loops
from msgbroker.server.alarms.side_loops import SideLoops
from tests.support.broker_builders import board


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_aside, "WAIT_SECONDS_MIN", 0.0)
    monkeypatch.setattr(set_aside, "WAIT_SECONDS_MAX", 0.0)


async def test_one_that_fails_is_started_again_and_is_an_alarm() -> None:
    alarms = board()
    stop = asyncio.Event()
    runs = 0

    async def run(_: asyncio.Event) -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise ValueError("odd")

    await SideLoops(alarms).kept_running("listener", run)(stop)

    assert runs == 3
    (alarm,) = alarms.standing
    assert (alarm.kind, alarm.thing, alarm.detail) == ("PART_SET_ASIDE", "the broker's listener", "ValueError: odd")


async def test_one_that_goes_well_for_a_while_is_no_alarm_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_loops, "_WORKS_AFTER_SECONDS", 0.0)
    alarms = board()
    stop = asyncio.Event()
    is_first = True

    async def run(stopping: asyncio.Event) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            raise ValueError("odd")
        while alarms.standing:
            await asyncio.sleep(0)
        stopping.set()

    await SideLoops(alarms).kept_running("listener", run)(stop)

    assert stop.is_set()
    assert alarms.standing == []


async def test_what_it_should_have_survived_by_itself_ends_it() -> None:
    async def run(_: asyncio.Event) -> None:
        raise StoreUnavailableError("away")

    with pytest.raises(StoreUnavailableError):
        await SideLoops(board()).kept_running("listener", run)(asyncio.Event())
