"""procrastinate, on the same embedded PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from tests.bench.peers.peer import Clock, PeerMissingError, Work
from tests.bench.peers.servers import serving_postgres

_BATCH = 100
_CONCURRENCY = 32
_TASK = "handle"


class Procrastinate:
    """Defers jobs by the hundred; a worker runs several at once."""

    name = "procrastinate"
    note = f"psycopg; deferred in batches of {_BATCH}, {_CONCURRENCY} at once in the worker"
    messages = 2_000

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[str]:
        """Run PostgreSQL."""
        with serving_postgres(directory, "procrastinate") as url:
            yield url

    async def prepare(self, url: str, work: Work) -> None:
        """Install its tables, the first time."""
        with psycopg.connect(url) as connection:
            found = connection.execute("SELECT to_regclass('procrastinate_jobs')").fetchone()
        if found == (None,):
            async with _app(url).open_async() as app:
                await app.schema_manager.apply_schema_async()

    async def publish(self, url: str, work: Work, clock: Clock) -> None:
        """Defer."""
        body = "x" * work.body_bytes
        async with _app(url).open_async() as app:
            await clock.begin()
            for start in range(0, work.messages, _BATCH):
                count = min(_BATCH, work.messages - start)
                deferrer = app.configure_task(_TASK, queue=work.queue)
                await deferrer.batch_defer_async(*[{"body": body}] * count)

    async def consume(self, url: str, work: Work, clock: Clock) -> None:
        """Run a worker until all jobs have been run."""
        app = _app(url)
        done = asyncio.Event()
        left = work.messages

        async def handle(body: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        app.task(name=_TASK)(handle)
        async with app.open_async():
            await clock.begin()
            worker = asyncio.create_task(
                app.run_worker_async(queues=[work.queue], concurrency=_CONCURRENCY, install_signal_handlers=False)
            )
            await done.wait()
            clock.end()
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await worker


def _app(url: str) -> Any:
    try:
        from procrastinate import App, PsycopgConnector
    except ImportError as error:
        raise PeerMissingError("procrastinate is not installed") from error
    return App(connector=PsycopgConnector(conninfo=url))
