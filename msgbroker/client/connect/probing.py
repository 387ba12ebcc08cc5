"""A few bytes to whatever listens at an address, and what comes back: for those who look for the cause of a failure.

Every call opens a connection of its own and closes it, however it ends; all raise OSError, TimeoutError included, where
no connection comes about.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

HTTP2_HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What a client says first: the preface of HTTP/2, and settings, of which it has none."""

_LOOK_BYTES: Final = 5
"""So many bytes are enough to tell a frame of HTTP/2, a record of TLS, and a line of HTTP/1."""
_SETTINGS: Final = 4
_TLS_RECORDS: Final = (0x15, 0x16)
"""The types of the records that a server begins with in TLS: an alert, or a handshake."""


def is_http2(answer: bytes | None) -> bool:
    """Return whether a server has answered as one of HTTP/2 does: with its settings."""
    return answer is not None and len(answer) > 3 and answer[3] == _SETTINGS and not is_tls(answer)


def is_tls(answer: bytes | None) -> bool:
    """Return whether a server has answered in TLS, be it to complain."""
    return answer is not None and len(answer) > 1 and answer[0] in _TLS_RECORDS and answer[1] == 3


def tls_hello() -> bytes:
    """Return what a client says first in TLS."""
    said = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _trusting_all().wrap_bio(ssl.MemoryBIO(), said).do_handshake()
    return said.read()


async def exchange(address: str, port: int, said: bytes, seconds_max: float) -> bytes | None:
    """Say something and return the first bytes of the answer; none: it hangs up. None: nothing comes in time."""
    async with _connection(address, port, seconds_max) as (reader, writer):
        try:
            async with asyncio.timeout(seconds_max):
                writer.write(said)
                return await reader.readexactly(_LOOK_BYTES)
        except TimeoutError:
            return None
        except asyncio.IncompleteReadError as ended:
            return ended.partial
        except OSError:
            return b""


async def peer_certificate(address: str, port: int, host: str, seconds_max: float) -> tuple[bytes, str | None]:
    """Return a server's certificate, whoever has signed it, and the protocol chosen; raise SSLError if it refuses."""
    async with _connection(address, port, seconds_max, _trusting_all(), host) as (_, writer):
        secured = writer.get_extra_info("ssl_object")
        return secured.getpeercert(binary_form=True) or b"", secured.selected_alpn_protocol()


async def verify_code_of(certificate: bytes, address: str, port: int, host: str, seconds_max: float) -> int:
    """Return what OpenSSL says of a server's certificate where the certificate itself is trusted; 0: nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificate)
    try:
        async with _connection(address, port, seconds_max, context, host):
            return 0
    except ssl.SSLCertVerificationError as error:
        return error.verify_code


def _trusting_all() -> ssl.SSLContext:
    """Return what looks at a server without telling it anything."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


@asynccontextmanager
async def _connection(
    address: str, port: int, seconds_max: float, context: ssl.SSLContext | None = None, host: str | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(seconds_max):
        reader, writer = await asyncio.open_connection(address, port, ssl=context, server_hostname=host)
    try:
        yield reader, writer
    finally:
        # Nobody there needs to hear an end in good order.
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()
