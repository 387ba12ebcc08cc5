"""What a look at the requests costs: as much as there are requests, however many publishers there are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NoReturn
from uuid import uuid4

import pytest

from msgbroker.server import requests
from msgbroker.server.requests import BrokerRequests, PublisherStream
from msgdb.requests import Request


class Streams(dict[str, PublisherStream]):
    """Many streams, which nobody goes through."""

    def __iter__(self) -> Iterator[str]:
        self._refuse()

    def values(self) -> NoReturn:
        self._refuse()

    items = values

    def _refuse(self) -> NoReturn:
        pytest.fail("all streams were gone through")


class Stores:
    """A store with nothing to connect to."""

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[None]:
        yield


async def test_what_was_done_before_is_looked_up_by_the_name_of_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    done = [Request(number, None, f"gone#{number}", "publisher x", "ada", "why", True) for number in range(1_000)]
    looks = 0

    async def list_done(*_: Any) -> list[Request]:
        nonlocal looks
        looks += 1
        return done

    monkeypatch.setattr(requests, "list_requests", list_done)
    store: Any = Stores()
    hub: Any = None
    ours = BrokerRequests(store=store, hub=hub, publishers=Streams, broker_id=uuid4())

    assert await ours.carry_out_once() == 0
    assert looks == 1
