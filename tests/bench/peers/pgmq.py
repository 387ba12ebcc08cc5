"""pgmq: its SQL functions (send, read, delete) on the same embedded PostgreSQL.

They are installed from the file that its Python package brings, so no extension is needed; the statements are called
directly, without a client in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from importlib.resources import files
from pathlib import Path

import psycopg
from psycopg.rows import TupleRow

from tests.bench.peers.peer import Clock, PeerMissingError, Work
from tests.bench.peers.servers import serving_postgres

_Connection = psycopg.AsyncConnection[TupleRow]
_VISIBILITY_SECONDS = 60
_EMPTY_POLL_SECONDS = 0.005


class Pgmq:
    """Sends, reads and deletes *batch* messages a statement, on several connections at once."""

    def __init__(self, batch: int, connections: int, messages: int) -> None:
        self._batch = batch
        self._connections = connections
        self.messages = messages
        how = "one by one" if batch == 1 else f"in batches of {batch}"
        self.name = f"pgmq, {how}"
        self.note = f"its SQL functions, {connections} connections on each side"

    @contextlib.contextmanager
    def serving(self, directory: Path) -> Iterator[str]:
        """Run PostgreSQL, with pgmq's functions in a database."""
        try:
            definition = (files("pgmq") / "sql" / "pgmq.sql").read_bytes()
        except (ModuleNotFoundError, FileNotFoundError) as error:
            raise PeerMissingError("the package pgmq, which brings its SQL, is not installed") from error
        with serving_postgres(directory, "pgmq") as url:
            with psycopg.connect(url) as connection:
                if connection.execute("SELECT to_regproc('pgmq.create')").fetchone() == (None,):
                    connection.execute(definition)
            yield url

    async def prepare(self, url: str, work: Work) -> None:
        """Create the queue."""
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute("SELECT pgmq.create(%s)", (work.queue,))

    async def publish(self, url: str, work: Work, clock: Clock) -> None:
        """Send, each statement committed before the next of its connection."""
        document = json.dumps({"body": "x" * work.body_bytes})
        batches = _batches(work.messages, self._batch)

        async def sender(connection: _Connection) -> None:
            for count in batches:
                if self._batch == 1:
                    await connection.execute("SELECT pgmq.send(%s, %s::jsonb)", (work.queue, document))
                else:
                    sent = (work.queue, [document] * count)
                    await connection.execute("SELECT pgmq.send_batch(%s, %s::jsonb[])", sent)

        async with self._connected(url) as connections:
            await clock.begin()
            await asyncio.gather(*(sender(connection) for connection in connections))

    async def consume(self, url: str, work: Work, clock: Clock) -> None:
        """Read what is visible, and delete it."""
        left = work.messages

        async def reader(connection: _Connection) -> None:
            nonlocal left
            while left > 0:
                asked = (work.queue, _VISIBILITY_SECONDS, self._batch)
                rows = await (await connection.execute("SELECT * FROM pgmq.read(%s, %s, %s)", asked)).fetchall()
                if not rows:
                    await asyncio.sleep(_EMPTY_POLL_SECONDS)
                    continue
                left -= len(rows)
                if self._batch == 1:
                    await connection.execute("SELECT pgmq.delete(%s, %s::bigint)", (work.queue, rows[0][0]))
                else:
                    deleted = (work.queue, [row[0] for row in rows])
                    await connection.execute("SELECT pgmq.delete(%s, %s::bigint[])", deleted)

        async with self._connected(url) as connections:
            await clock.begin()
            await asyncio.gather(*(reader(connection) for connection in connections))

    @contextlib.asynccontextmanager
    async def _connected(self, url: str) -> AsyncIterator[list[_Connection]]:
        async with contextlib.AsyncExitStack() as stack:
            opened = [
                await stack.enter_async_context(await psycopg.AsyncConnection.connect(url, autocommit=True))
                for _ in range(self._connections)
            ]
            yield opened


def _batches(messages: int, batch: int) -> Iterator[int]:
    while messages > 0:
        yield min(batch, messages)
        messages -= batch
