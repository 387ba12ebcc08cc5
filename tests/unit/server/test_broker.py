"""How a broker ends: what is waited for, what is broken off, and in which order its parts leave."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from msgbroker.server.broker import Broker, BrokerLoop
from tests.support.broker_builders import board
from tests.support.eventually import eventually


class Parts:
    """Parts of a broker that note what they are told to do."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, what: str) -> Any:
        return lambda *_: self.told.append(what)

    def note_later(self, what: str) -> Any:
        async def note(*_: object) -> None:
            self.told.append(what)

        return note

    def broker(self, *loops: BrokerLoop) -> Broker:
        snapshot = SimpleNamespace(version=1)
        heartbeats = SimpleNamespace(beaten_version=1, leave=self.note_later("registry left"))
        return Broker(
            address="here:1",
            drain_seconds=0.0,
            feed=SimpleNamespace(current=snapshot),  # type: ignore[arg-type]
            hub=SimpleNamespace(tasks=SimpleNamespace(cancel_all=list)),  # type: ignore[arg-type]
            committer=SimpleNamespace(is_idle=True),  # type: ignore[arg-type]
            checkpointer=None,  # type: ignore[arg-type]
            cluster=SimpleNamespace(  # type: ignore[arg-type]
                heartbeats=heartbeats,
                ownership=SimpleNamespace(leave=self.note_later("lanes left")),
                cut_off=SimpleNamespace(look_once=self.note_later("mark seen")),
                drain=self.note("cluster drains"),
            ),
            grpc_door=SimpleNamespace(  # type: ignore[arg-type]
                open=self.note_later("door opened"),
                drain=self.note("door drains"),
                is_idle=True,
                close=self.note_later("door closed"),
            ),
            alarms=board(),
            failures=SimpleNamespace(leave=self.note_later("failures left")),  # type: ignore[arg-type]
            figures=SimpleNamespace(  # type: ignore[arg-type]
                begin=self.note_later("counting"), leave=self.note_later("figures left")
            ),
            jobs=SimpleNamespace(leave=self.note_later("jobs left")),  # type: ignore[arg-type]
            trace=SimpleNamespace(leave=self.note_later("trace left")),  # type: ignore[arg-type]
            loops=loops,
            cut_connections=self.note("connections cut"),
        )


async def test_the_doors_are_opened_after_joining_and_closed_after_the_lanes_are_given_up() -> None:
    parts = Parts()
    broker = parts.broker()
    await broker.start()
    await broker.shut_down()

    order = ("mark seen", "door opened", "cluster drains", "door drains", "lanes left", "door closed")
    assert [told for told in parts.told if told in order] == [*order]
    assert "connections cut" not in parts.told


async def test_a_round_that_would_be_missed_is_waited_for_and_the_others_are_broken_off() -> None:
    parts = Parts()

    async def finish(stop: asyncio.Event) -> None:
        await stop.wait()
        for _ in range(3):
            await asyncio.sleep(0)
        parts.told.append("round finished")

    async def hang(_: asyncio.Event) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            parts.told.append("broken off")

    broker = parts.broker(BrokerLoop("lanes", finish, finishes_its_round=True), BrokerLoop("looks", hang))
    await broker.start()
    await asyncio.sleep(0)
    await broker.shut_down()

    assert parts.told.index("broken off") < parts.told.index("round finished") < parts.told.index("lanes left")


async def test_a_loop_that_can_be_done_without_does_not_end_the_broker_and_any_other_does() -> None:
    fails = asyncio.Event()

    async def fail_at_once(_: asyncio.Event) -> None:
        raise ValueError("odd")

    async def fail_later(_: asyncio.Event) -> None:
        await fails.wait()
        raise ZeroDivisionError

    broker = Parts().broker(BrokerLoop("announcer", fail_at_once, is_dispensable=True), BrokerLoop("ticks", fail_later))
    await broker.start()
    failing = asyncio.ensure_future(broker.wait_until_failed())
    (alarm,) = await eventually(lambda: broker.alarms.standing)
    assert alarm.thing == "the broker's announcer"
    assert not failing.done()

    fails.set()
    with pytest.raises(ZeroDivisionError):
        await failing
    await broker.shut_down()
