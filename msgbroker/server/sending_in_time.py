"""How long a client may take to send what it has begun: whoever serves it waits, with a place and perhaps with room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgbroker.contract import limits
from msgbroker.contract.errors import UnfinishedError


@asynccontextmanager
async def sent_in_time(what: str) -> AsyncIterator[None]:
    """Bound what is awaited inside. Raises UnfinishedError, which says that *what* was not complete."""
    try:
        async with asyncio.timeout(limits.REQUEST_SECONDS_MAX):
            yield
    except TimeoutError as error:
        raise UnfinishedError(what, limits.REQUEST_SECONDS_MAX) from error
