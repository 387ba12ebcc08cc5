"""Why a broker cannot be reached: each cause has its own name and words, and is known as soon as it can be."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import Any

import grpc
import pytest

from msgbroker.client import BrokerUnavailableError, MessageCenter, UnavailableCause
from msgbroker.client.connect.channel import connect
from msgbroker.client.connect.diagnosis import diagnose
from msgbroker.client.values.config import ClientConfig
from tests.support.broker_processes import port_to_come_back_to
from tests.support.eventually import eventually
from tests.support.fake_broker import FakeBroker
from tests.support.other_servers import grpc_server, plain_tls, talking, trusting

LONG_SECONDS = 600.0
"""What is waited for that long is never seen."""


async def failure_of(
    address: str, credentials: grpc.ChannelCredentials | None = None, timeout_seconds: float = LONG_SECONDS
) -> BrokerUnavailableError:
    """Return what connecting fails with, which must name the address, and leave no thread."""
    config = ClientConfig((address,), connect_timeout_seconds=timeout_seconds, credentials=credentials)
    async with asyncio.timeout(60):
        with pytest.raises(BrokerUnavailableError) as raised:
            await connect(address, config)
        await eventually(lambda: "msgcenter-lookup" not in {thread.name for thread in threading.enumerate()})
    assert raised.value.message.startswith(f"broker {address}: ")
    assert raised.value.address == address
    return raised.value


FREE_PORT = 1
"""Nothing listens there, and nobody gets it who asks for any."""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
@pytest.mark.parametrize("credentials", [None, "local"])
async def test_a_refused_connection_is_known_at_once(host: str, credentials: str | None) -> None:
    failure = await failure_of(f"{host}:{FREE_PORT}", trusting(credentials) if credentials else None)

    if host != "[::1]" or failure.cause is not UnavailableCause.UNREACHABLE:  # a machine without IPv6
        assert failure.cause is UnavailableCause.REFUSED
        assert "connection refused: nothing listens there" in failure.message


async def test_a_name_that_nobody_knows_is_named() -> None:
    failure = await failure_of("nowhere.invalid:7400", timeout_seconds=3)

    assert failure.cause is UnavailableCause.NAME_NOT_RESOLVED
    assert "its name 'nowhere.invalid' cannot be resolved" in failure.message


async def test_a_network_to_which_no_way_leads_is_not_called_a_silence() -> None:
    failure = await failure_of("255.255.255.255:7400")

    assert failure.cause is UnavailableCause.UNREACHABLE
    assert "no way leads there" in failure.message


async def test_a_broker_that_speaks_tls_is_not_spoken_to_in_plain_text() -> None:
    async with grpc_server("local") as port:
        failure = await failure_of(f"127.0.0.1:{port}")
    async with plain_tls("local") as port:
        other = await failure_of(f"localhost:{port}")

    assert failure.cause is other.cause is UnavailableCause.TLS_EXPECTED
    assert "it speaks TLS, and was spoken to in plain text; give the center credentials" in failure.message


async def test_a_broker_that_speaks_plain_text_is_not_spoken_to_in_tls(broker: FakeBroker) -> None:
    failure = await failure_of(broker.address, trusting("local"))

    assert failure.cause is UnavailableCause.TLS_NOT_SPOKEN
    assert "leave out the center's credentials" in failure.message


@pytest.mark.parametrize(
    "served, trusted, problem",
    [
        ("local", "elsewhere", "its certificate is not signed by whom the center's credentials trust"),
        ("elsewhere", "elsewhere", "its certificate is not for '127.0.0.1'; use a name that is in it"),
        ("expired", "expired", "its certificate has expired"),
    ],
)
async def test_a_certificate_that_is_not_trusted_is_said_why(served: str, trusted: str, problem: str) -> None:
    async with grpc_server(served) as port:
        failure = await failure_of(f"127.0.0.1:{port}", trusting(trusted))

    assert failure.cause is UnavailableCause.CERTIFICATE_NOT_TRUSTED
    assert problem in failure.message


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_broker_whose_certificate_is_trusted_is_reached(host: str) -> None:
    async with grpc_server("local") as port:
        address = f"{host}:{port}"
        await (await connect(address, ClientConfig((address,), credentials=trusting("local")))).close()


@pytest.mark.parametrize("credentials", [None, "local"])
@pytest.mark.parametrize(
    "says, problem",
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "an HTTP/1 server listens there, and no broker"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "something else listens there (it answers b'SSH-2'), and no broker"),
        # As PostgreSQL does with what it does not understand.
        (None, "something else listens there (it hangs up), and no broker"),
    ],
    ids=["http", "ssh", "postgresql"],
)
async def test_what_is_no_broker_is_not_called_one(says: bytes | None, problem: str, credentials: str | None) -> None:
    async with talking(says) as (port, _):
        failure = await failure_of(f"127.0.0.1:{port}", trusting(credentials) if credentials else None)

    assert failure.cause is UnavailableCause.NOT_A_BROKER
    assert problem in failure.message


async def test_a_server_of_tls_that_is_no_broker_is_not_called_one() -> None:
    async with plain_tls("local") as port:
        failure = await failure_of(f"127.0.0.1:{port}", trusting("local"))

    assert failure.cause is UnavailableCause.NOT_A_BROKER
    assert "a server that speaks TLS and no HTTP/2 listens there" in failure.message


@pytest.mark.parametrize("call", ["publish", "register"])
async def test_a_grpc_server_without_our_services_is_no_broker(call: str) -> None:
    async with grpc_server() as port, MessageCenter(f"127.0.0.1:{port}", on_unavailable="raise") as center:
        calls: dict[str, Any] = {"publish": center.publish, "register": center.register}
        with pytest.raises(BrokerUnavailableError) as refused:
            await calls[call]("TP", "EC")

    assert refused.value.cause is UnavailableCause.NOT_A_BROKER
    assert f"127.0.0.1:{port}: it speaks gRPC, and is no broker" in refused.value.message


@pytest.mark.slow
@pytest.mark.parametrize("credentials", [None, "local"])
async def test_what_says_nothing_is_given_up_in_time(credentials: str | None) -> None:
    async with talking(None, hangs_up=False) as (port, talker):
        failure = await failure_of(
            f"127.0.0.1:{port}", trusting(credentials) if credentials else None, timeout_seconds=0.3
        )
        await eventually(lambda: talker.open_count == 0)

    assert failure.cause is UnavailableCause.TIMEOUT
    assert "no answer within 0.3 s: it takes connections, and says nothing" in failure.message


@pytest.mark.slow
async def test_an_address_that_takes_no_connections_is_given_up_in_time() -> None:
    with ExitStack() as sockets:
        listening = sockets.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        # Its line is full: the kernel answers no further SYN.
        for _ in range(3):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        failure = await failure_of(f"127.0.0.1:{listening.getsockname()[1]}", timeout_seconds=0.3)

    assert failure.cause is UnavailableCause.TIMEOUT
    assert "no answer within 0.3 s: no connection comes about" in failure.message


async def test_a_name_of_several_addresses_is_reached_at_the_one_that_works(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = broker.address.replace("127.0.0.1", "localhost")
    await (await connect(address, ClientConfig((address,)))).close()
    # Of one that does not work at any of them, what listens is looked at, and not what does not.
    found = socket.getaddrinfo
    both = [*found("127.0.0.2", 1, type=socket.SOCK_STREAM), *found("127.0.0.1", 1, type=socket.SOCK_STREAM)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    async with talking(b"SSH-2.0-OpenSSH_9.6\r\n") as (port, _):
        failure = await failure_of(f"localhost:{port}")

    assert failure.cause is UnavailableCause.NOT_A_BROKER


@pytest.mark.slow
@pytest.mark.parametrize(
    "server",
    [talking(None, hangs_up=False), talking(b"SSH-2.0\r\n", hangs_up=False)],
    ids=["while gRPC waits", "while it is looked at"],
)
async def test_a_cancelled_attempt_leaves_nothing_open(server: AbstractAsyncContextManager[Any]) -> None:
    async with server as (port, talker):
        address = f"127.0.0.1:{port}"
        connecting = asyncio.create_task(connect(address, ClientConfig((address,), connect_timeout_seconds=0.5)))
        await asyncio.wait_for(talker.heard.wait(), 20)
        connecting.cancel()
        await asyncio.wait([connecting], timeout=20)
        await eventually(lambda: talker.open_count == 0)

    assert connecting.cancelled() or isinstance(connecting.exception(), BrokerUnavailableError)


async def test_a_broker_that_has_begun_to_listen_meanwhile_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FakeBroker()
    port = port_to_come_back_to()

    async def find_late(*args: Any, **options: Any) -> Any:
        await broker.start(f"127.0.0.1:{port}")
        return await diagnose(*args, **options)

    monkeypatch.setattr("msgbroker.client.connect.channel.diagnose", find_late)
    try:
        address = f"127.0.0.1:{port}"
        await (await connect(address, ClientConfig((address,)))).close()
    finally:
        await broker.stop()


async def test_an_address_that_a_broker_has_told_wrongly_is_an_outage_and_no_crash() -> None:
    failure = await failure_of("broker-2")

    assert failure.cause is UnavailableCause.NAME_NOT_RESOLVED
    assert "check what brokers advertise" in failure.message


async def test_behind_a_proxy_no_way_around_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("grpc_proxy", f"http://127.0.0.1:{FREE_PORT}")
    monkeypatch.delenv("no_grpc_proxy", raising=False)
    failure = await failure_of("broker.example:7400")

    assert failure.cause is UnavailableCause.UNREACHABLE
    assert "no way leads there by the proxy in grpc_proxy" in failure.message


async def test_refusals_follow_each_other_without_waiting_for_the_timeout() -> None:
    began_at = time.monotonic()
    address = f"127.0.0.1:{FREE_PORT}"
    for _ in range(5):
        await failure_of(address)

    assert time.monotonic() - began_at < LONG_SECONDS / 10


async def test_looking_for_the_cause_has_an_end_whatever_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    monkeypatch.setattr("msgbroker.client.connect.diagnosis.exchange", hang)
    async with asyncio.timeout(30):
        finding = await diagnose("127.0.0.1", FREE_PORT, has_credentials=False, seconds_max=0.01)

    assert finding.cause is UnavailableCause.TIMEOUT
