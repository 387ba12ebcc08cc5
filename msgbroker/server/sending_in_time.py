"""How long a client may take to send what it has begun: whoever serves it waits, with a place and perhaps with room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgbroker.contract import limits
from msgbroker.contract.errors import UnfinishedError


@asynccontextmanager
async def sent_in_time(what: str, size_bytes: int = 0) -> AsyncIterator[None]:
    """Bound what is awaited inside: what may be sent in one gRPC message, or *size_bytes* of parts.

    Raises UnfinishedError, which says that *what* was not complete.
    """
    # A slow way to here carries the same in the same time, however it is divided.
    seconds = limits.REQUEST_SECONDS_MAX * max(1, -(-size_bytes // limits.GRPC_MESSAGE_BYTES_MAX))
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise UnfinishedError(what, seconds) from error
