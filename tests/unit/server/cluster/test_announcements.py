"""Announcements: each is said once there is somebody to say it to; what is heard may be anybody's, and is looked up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server.cluster import announcements
from msgbroker.server.cluster.announcements import Announcer, Listener
from msgbroker.server.cluster.queue_ends import QueueEnds
from msgbroker.server.log.cache import LogCache
from tests.support.eventually import eventually


class OneQueue:
    """A hub that reads queue 5, known to end at 100."""

    def __init__(self) -> None:
        self.cache = LogCache(None)  # type: ignore[arg-type]
        self.cache.learn_end(5, 100)
        self.woken: list[int] = []

    def reads(self, queue_id: int) -> bool:
        return queue_id == 5

    def queues_read(self) -> list[int]:
        return [5]

    def queue_went_on(self, queue_id: int) -> None:
        self.woken.append(queue_id)


def make_listener(hub: Any) -> Listener:
    ends = QueueEnds(hub=hub, poll_seconds=lambda: 1.0)
    return Listener(store=None, hub=hub, ends=ends)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "payload",
    ["", "²:1", "5:²", "5", "5:", ":5", "5:1,", "a:b", "-5:7", "5:-7", "5: 7", "5:+7", "5_0:1", "5:1;6:2",
     "\u0665:\u0667", "5:101\n", f"5:{10**30}", "5:0x10"],
)  # fmt: skip
def test_what_does_not_look_like_an_announcement_is_not_heard(payload: str) -> None:
    hub = OneQueue()
    make_listener(hub).hear(payload)

    assert hub.woken == []
    assert hub.cache.may_reach(5) == 100


def test_it_is_said_once_in_a_while_that_something_was_not_understood() -> None:
    listener = make_listener(OneQueue())
    with capture_logs() as logs:
        for _ in range(100):
            listener.hear("²:1")

    assert [entry["event"] for entry in logs] == ["listener.notice_not_understood"]


def test_an_end_that_is_announced_is_looked_up_and_not_believed() -> None:
    hub = OneQueue()
    make_listener(hub).hear("7:3,5:999999999999999999,9:1")

    assert hub.woken == [5]
    assert hub.cache.end_of(5) == 100
    # Of queues that nobody reads here nothing is remembered.
    assert hub.cache.may_reach(7) == hub.cache.may_reach(9) == 0
    assert len(hub.cache._ends) == 1


class Store:
    """A store that is away at first."""

    def __init__(self) -> None:
        self.tries = 0
        self.said: list[str] = []

    @asynccontextmanager
    async def dedicated_connection(self) -> AsyncIterator[Store]:
        self.tries += 1
        if self.tries == 1:
            raise StoreUnavailableError("away")
        yield self

    async def execute(self, _: str, parameters: tuple[str, str]) -> None:
        self.said.append(parameters[1])


async def test_what_is_announced_while_the_store_is_away_is_said_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(announcements, "_RETRY_SECONDS", 0.0)
    store, stop = Store(), asyncio.Event()
    announcer = Announcer(store)  # type: ignore[arg-type]
    announcer.announce({5: 7})
    running = asyncio.ensure_future(announcer.run(stop))
    await eventually(lambda: store.said == ["5:7"])

    announcer.announce({6: 1})
    await eventually(lambda: store.said == ["5:7", "6:1"])

    stop.set()
    await running
