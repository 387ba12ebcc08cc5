"""pgqueuer, on the same embedded PostgreSQL."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.bench.peers.peer import Clock, PeerMissingError, Work
from tests.bench.peers.servers import serving_postgres

_ENQUEUED = 100


class PgQueuer:
    """Enqueues jobs by the hundred, and takes *batch* at a time: 10 is its default."""

    def __init__(self, batch: int, messages: int) -> None:
        self._batch = batch
        self.messages = messages
        self.name = f"pgqueuer, taking {batch} at a time"
        self.note = f"asyncpg; enqueued in batches of {_ENQUEUED}"

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[str]:
        """Run PostgreSQL."""
        with serving_postgres(directory, "pgqueuer") as url:
            yield url

    async def prepare(self, url: str, work: Work) -> None:
        """Install its tables, the first time."""
        async with _queries(url) as queries:
            if not await queries.schema_is_installed():
                await queries.install()

    async def publish(self, url: str, work: Work, clock: Clock) -> None:
        """Enqueue."""
        body = bytes(work.body_bytes)
        async with _queries(url) as queries:
            await clock.begin()
            for start in range(0, work.messages, _ENQUEUED):
                count = min(_ENQUEUED, work.messages - start)
                await queries.enqueue([work.queue] * count, [body] * count, [0] * count)

    async def consume(self, url: str, work: Work, clock: Clock) -> None:
        """Run its queue manager until all jobs are done."""
        async with _queries(url) as queries:
            from pgqueuer import QueueManager

            manager = QueueManager(queries)
            left = work.messages

            async def handle(_job: Any) -> None:
                nonlocal left
                left -= 1
                if not left:
                    clock.end()
                    manager.shutdown.set()

            manager.entrypoint(work.queue)(handle)
            await clock.begin()
            await manager.run(dequeue_timeout=timedelta(seconds=1), batch_size=self._batch)


@contextlib.asynccontextmanager
async def _queries(url: str) -> AsyncIterator[Any]:
    try:
        import asyncpg
        from pgqueuer import Queries
    except ImportError as error:
        raise PeerMissingError(f"{error.name} is not installed") from error
    connection = await asyncpg.connect(url)
    try:
        yield Queries.from_asyncpg_connection(connection)
    finally:
        await connection.close()
