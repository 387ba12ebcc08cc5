"""A TCP relay in front of PostgreSQL that can be cut, frozen and restored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Relay:
    """Carries bytes between its own port and a server, as long as it may."""

    def __init__(self, server_url: str) -> None:
        self._target = _target_of(server_url)
        self._server_url = server_url
        self._server: asyncio.Server | None = None
        self._port = 0
        self._carrying: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._connections = 0
        self._connected = asyncio.Condition()
        self._is_cut = True
        self._may_flow = asyncio.Event()
        self.frozen = asyncio.Event()
        """Set once something was held back."""
        self.refused = asyncio.Event()
        """Set once somebody wanted to connect in vain."""

    @classmethod
    @asynccontextmanager
    async def to(cls, server_url: str) -> AsyncIterator[Relay]:
        """Open a relay to the server of *server_url*."""
        relay = cls(server_url)
        await relay.restore()
        relay._server = await asyncio.start_server(relay._accept, "127.0.0.1", 0)
        relay._port = relay._server.sockets[0].getsockname()[1]
        try:
            yield relay
        finally:
            relay._server.close()
            await relay.cut()

    @property
    def url(self) -> str:
        """The way to the server through this relay."""
        return make_conninfo(self._server_url, host="127.0.0.1", port=self._port)

    async def restore(self) -> None:
        """Carry again."""
        self._is_cut = False
        self._may_flow.set()

    async def cut(self) -> None:
        """Reset all connections, and new ones at once."""
        self._is_cut = True
        for writers in self._carrying.values():
            for writer in writers:
                writer.transport.abort()
        self._may_flow.set()
        await asyncio.gather(*self._carrying)

    def lead_to(self, server_url: str) -> None:
        """Carry new connections to that server; those that stand stay where they are."""
        self._target = _target_of(server_url)

    def freeze(self) -> None:
        """Keep all connections and carry nothing."""
        self._may_flow.clear()

    async def wait_for_connection(self, number: int) -> None:
        """Return once so many connections have been made in all."""
        async with self._connected:
            await self._connected.wait_for(lambda: self._connections >= number)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            self.refused.set()
            return
        async with self._connected:
            self._connections += 1
            self._connected.notify_all()
        task = asyncio.current_task()
        assert task is not None
        self._carrying[task] = [writer]
        try:
            await self._carry(reader, writer, self._carrying[task])
        finally:
            del self._carrying[task]

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, writers: list[asyncio.StreamWriter]
    ) -> None:
        host, port = self._target
        if host.startswith("/"):
            from_server, to_server = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            from_server, to_server = await asyncio.open_connection(host, port)
        writers.append(to_server)
        await asyncio.gather(self._pump(reader, to_server), self._pump(from_server, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if not self._may_flow.is_set():
                    self.frozen.set()
                await self._may_flow.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


def _target_of(server_url: str) -> tuple[str, int]:
    target = conninfo_to_dict(server_url)
    return str(target.get("host")), int(target.get("port") or 5432)
