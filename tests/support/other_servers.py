"""What may listen at an address where a client looks for a broker: each gives its port."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

_CERTIFICATES = Path(__file__).parent / "certificates"


def certificate(name: str) -> bytes:
    """Return a certificate that signs itself: `local`, of 127.0.0.1 and localhost, `elsewhere`, or `expired`."""
    return (_CERTIFICATES / f"{name}.pem").read_bytes()


def trusting(name: str) -> grpc.ChannelCredentials:
    """Return the credentials of a client that trusts that certificate."""
    return grpc.ssl_channel_credentials(certificate(name))


class Talker:
    """A TCP server that answers each connection alike, and knows of those that are open."""

    def __init__(self, says: bytes | None, *, hangs_up: bool) -> None:
        self._says = says
        self._hangs_up = hangs_up
        self.open_count = 0
        self.heard = asyncio.Event()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one connection."""
        self.open_count += 1
        try:
            await reader.read(1)
            self.heard.set()
            if self._says is not None:
                writer.write(self._says)
            if not self._hangs_up:
                while await reader.read(4_096):
                    pass
        except OSError:
            # The other side is not polite.
            return
        finally:
            self.open_count -= 1
            writer.transport.abort()


@asynccontextmanager
async def talking(says: bytes | None, *, hangs_up: bool = True) -> AsyncIterator[tuple[int, Talker]]:
    """A server that hears something, says this, and hangs up."""
    talker = Talker(says, hangs_up=hangs_up)
    async with await asyncio.start_server(talker.take, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], talker


@asynccontextmanager
async def plain_tls(name: str) -> AsyncIterator[int]:
    """A server that speaks TLS, and not HTTP/2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_CERTIFICATES / f"{name}.pem", _CERTIFICATES / f"{name}.key")
    talker = Talker(b"220 mail.example ESMTP\r\n", hangs_up=True)
    async with await asyncio.start_server(talker.take, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def grpc_server(certificate_name: str | None = None) -> AsyncIterator[int]:
    """A gRPC server without any services, in TLS if it has a certificate."""
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    if certificate_name is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        key = (_CERTIFICATES / f"{certificate_name}.key").read_bytes()
        credentials = grpc.ssl_server_credentials([(key, certificate(certificate_name))])
        port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)
