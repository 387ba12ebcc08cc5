"""Fixtures of the command line's unit tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.fake_broker import FakeBroker


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    """A fake broker that behaves."""
    async with FakeBroker() as fake:
        yield fake
