"""Fixtures of the client's unit tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import pytest_asyncio

from tests.support.fake_broker import FakeBroker, ThreadedBroker


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    """A fake broker that behaves."""
    async with FakeBroker() as fake:
        yield fake


@pytest.fixture
def served() -> Iterator[ThreadedBroker]:
    """A fake broker on a loop in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    fake = ThreadedBroker()
    fake.loop = loop
    asyncio.run_coroutine_threadsafe(fake.start(), loop).result()
    yield fake
    asyncio.run_coroutine_threadsafe(fake.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest_asyncio.fixture
async def put_forward(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that puts the loop's clock forward: what was to happen meanwhile happens at once."""
    loop = asyncio.get_running_loop()
    time, ahead = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: time() + sum(ahead))
    return ahead.append
