"""Finds out why no connection to a broker comes about. gRPC tells in words that change, and of much it tells nothing.

What it does: looks the name up, connects to each of its addresses in turn, says what a client says first, and looks at
the first bytes that come back; where TLS is spoken, at the certificate. All of that is bounded in time and holds up
no loop, and leaves nothing open.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from msgbroker.client.connect.probing import (
    HTTP2_HELLO,
    exchange,
    is_http2,
    is_tls,
    peer_certificate,
    tls_hello,
    verify_code_of,
)
from msgbroker.contract.errors import UnavailableCause

LOOK_SECONDS_MAX: Final = 1.0
"""How long each step of a diagnosis may take at most: looking up a name, connecting, waiting for an answer."""
_STEPS_MAX: Final = 3
"""A whole diagnosis takes at most as long as so many steps may."""
_ADDRESSES_MAX: Final = 8
"""How many addresses of one name are looked at."""
_SHOWN_BYTES_MAX: Final = 5
_NAME_MISMATCHES: Final = {62, 64}
"""OpenSSL's codes for a certificate that is for another name, and for another address."""
_NOT_IN_ITS_TIME: Final = {9: "is not valid yet", 10: "has expired"}
_CHECK_PLACE: Final = "check host and port"


@dataclass(frozen=True, slots=True)
class Finding:
    """Why there is no connection, in words that say what to do."""

    cause: UnavailableCause
    words: str
    may_pass: bool = False
    """Whether trying again may help: nothing wrong can be seen from here, so the broker may have begun to listen just
    now."""


_SILENT: Final = Finding(
    UnavailableCause.TIMEOUT,
    f"it takes connections, and says nothing; {_CHECK_PLACE}, and whether the broker there is frozen",
)


async def diagnose(host: str, port: int, *, has_credentials: bool, seconds_max: float) -> Finding:
    """Return why no connection to the broker comes about, after *seconds_max*, or one second, three times at most."""
    seconds_max = min(seconds_max, LOOK_SECONDS_MAX)
    try:
        async with asyncio.timeout(_STEPS_MAX * seconds_max):
            return await _diagnose(host, port, seconds_max, has_credentials=has_credentials)
    except TimeoutError:
        return _SILENT


async def _diagnose(host: str, port: int, seconds_max: float, *, has_credentials: bool) -> Finding:
    try:
        found = await _addresses_of(host, port, seconds_max)
    except (OSError, UnicodeError) as error:
        said = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
        words = f"its name {host!r} cannot be resolved{said}; check how it is written, and this machine's DNS"
        return Finding(UnavailableCause.NAME_NOT_RESOLVED, words)
    findings: list[Finding] = []
    for address in found[:_ADDRESSES_MAX]:
        try:
            return await _look(_Place(address, port, host, seconds_max), has_credentials=has_credentials)
        except OSError as error:
            # A timeout is one as well.
            findings.append(_not_connected(error))
    # A refusal says more than what other addresses of the same name, of a network that is not there, have to say.
    order = [UnavailableCause.REFUSED, UnavailableCause.TIMEOUT, UnavailableCause.UNREACHABLE]
    return min(findings, key=lambda finding: order.index(finding.cause))


@dataclass(frozen=True, slots=True)
class _Place:
    address: str
    port: int
    host: str
    seconds_max: float

    async def answer_to(self, said: bytes) -> bytes | None:
        """Return the first bytes of the answer; none: it hangs up. None: it says nothing. Raises OSError."""
        return await exchange(self.address, self.port, said, self.seconds_max)


def _not_connected(error: OSError) -> Finding:
    if isinstance(error, ConnectionRefusedError):
        words = f"connection refused: nothing listens there; {_CHECK_PLACE}, and that the broker runs"
        return Finding(UnavailableCause.REFUSED, words)
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        words = f"no connection comes about; {_CHECK_PLACE}, and what firewalls there are in between"
        return Finding(UnavailableCause.TIMEOUT, words)
    said = os.strerror(error.errno) if error.errno else str(error)
    words = f"no way leads there ({said}); {_CHECK_PLACE}, and the network of this machine"
    return Finding(UnavailableCause.UNREACHABLE, words)


async def _look(place: _Place, *, has_credentials: bool) -> Finding:
    """Return what is wrong with what listens there; raise OSError if nothing does."""
    if has_credentials:
        if is_tls(await place.answer_to(tls_hello())):
            return await _look_at_certificate(place)
        answer = await place.answer_to(HTTP2_HELLO)
        if is_http2(answer):
            words = "it speaks plain text, and was spoken to in TLS; leave out the center's credentials"
            return Finding(UnavailableCause.TLS_NOT_SPOKEN, words)
    else:
        answer = await place.answer_to(HTTP2_HELLO)
        if is_http2(answer):
            words = f"it speaks HTTP/2, and gRPC gets no connection; {_CHECK_PLACE}"
            return Finding(UnavailableCause.NOT_A_BROKER, words, may_pass=True)
        # Whoever waits for TLS complains, or hangs up. Silence is no answer in TLS either, and is long enough.
        if answer is not None and (is_tls(answer) or is_tls(await place.answer_to(tls_hello()))):
            words = (
                "it speaks TLS, and was spoken to in plain text; give the center credentials: "
                "credentials=grpc.ssl_channel_credentials()"
            )
            return Finding(UnavailableCause.TLS_EXPECTED, words)
    if answer is None:
        return _SILENT
    return Finding(UnavailableCause.NOT_A_BROKER, f"{_described(answer)}, and no broker; {_CHECK_PLACE}")


def _described(answer: bytes) -> str:
    if answer.startswith(b"HTTP/"):
        return "an HTTP/1 server listens there"
    said = f"it answers {answer[:_SHOWN_BYTES_MAX]!r}" if answer else "it hangs up"
    return f"something else listens there ({said})"


async def _look_at_certificate(place: _Place) -> Finding:
    """Return what is wrong with a server that speaks TLS.

    What the credentials trust is known to gRPC alone. So the certificate is tried as its own authority: what is wrong
    with it then is its name or its time; if nothing is, the authority is.
    """
    try:
        certificate, protocol = await peer_certificate(place.address, place.port, place.host, place.seconds_max)
        if protocol != "h2":
            words = f"a server that speaks TLS and no HTTP/2 listens there, and no broker; {_CHECK_PLACE}"
            return Finding(UnavailableCause.NOT_A_BROKER, words)
        code = await verify_code_of(certificate, place.address, place.port, place.host, place.seconds_max)
    except ssl.SSLError as error:
        words = (
            f"the TLS handshake fails ({error.reason or 'no reason is given'}); "
            "it may want a client certificate that the center's credentials do not have"
        )
        return Finding(UnavailableCause.TLS_FAILED, words, may_pass=True)
    if code in _NAME_MISMATCHES:
        words = f"its certificate is not for {place.host!r}; use a name that is in it"
        return Finding(UnavailableCause.CERTIFICATE_NOT_TRUSTED, words)
    if code in _NOT_IN_ITS_TIME:
        words = f"its certificate {_NOT_IN_ITS_TIME[code]}; give it a new one, or check the clock of this machine"
        return Finding(UnavailableCause.CERTIFICATE_NOT_TRUSTED, words)
    words = (
        "its certificate is not signed by whom the center's credentials trust; give them the authority's: "
        "grpc.ssl_channel_credentials(root_certificates=...)"
    )
    return Finding(UnavailableCause.CERTIFICATE_NOT_TRUSTED, words, may_pass=True)


# --- names ------------------------------------------------------------------------------------------------------

_lookups: Final = threading.Semaphore(16)
"""Bounds the look-ups under way in this process. Each has a thread, for as long as the resolver takes."""


async def _addresses_of(host: str, port: int, seconds_max: float) -> list[str]:
    """Return the addresses of a name, of which there is one at least, or raise OSError or UnicodeError."""
    with suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
    if not _lookups.acquire(blocking=False):
        raise TimeoutError(errno.ETIMEDOUT, "not in time")
    answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
    try:
        # Not one of the loop's own: those are waited for when a process ends, and a resolver may take long.
        threading.Thread(target=_look_up, args=(host, port, answer), name="msgcenter-lookup", daemon=True).start()
    except RuntimeError as error:
        # The system has none left.
        _lookups.release()
        raise OSError(errno.EAGAIN, "no thread") from error
    try:
        async with asyncio.timeout(seconds_max):
            return await answer
    except TimeoutError as error:
        raise TimeoutError(errno.ETIMEDOUT, "not in time") from error


def _look_up(host: str, port: int, answer: asyncio.Future[list[str]]) -> None:
    found: list[str] = []
    failure: Exception | None = None
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
    except (OSError, UnicodeError) as error:
        failure = error
    finally:
        _lookups.release()
    with suppress(RuntimeError):
        # Or the loop is closed, and nobody waits any more.
        answer.get_loop().call_soon_threadsafe(_give, answer, found, failure)


def _give(answer: asyncio.Future[list[str]], found: list[str], failure: Exception | None) -> None:
    if answer.done():
        return
    if failure is None:
        answer.set_result(found)
    else:
        answer.set_exception(failure)
