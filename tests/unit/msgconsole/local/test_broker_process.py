"""What keeps a broker from listening is told apart; a broker process is asked how it is."""

from __future__ import annotations

import asyncio
import socket

import grpc
import pytest
from grpc_health.v1 import health, health_pb2_grpc

from msgbroker.contract.errors import CannotListenError, InvalidSettingError, PortBusyError
from msgconsole.local.broker_process import check_port_is_free, is_serving
from msgconsole.local.settings_check import load_broker_settings

URLS = {"confdb_url": "postgresql://h/c", "msgdb_url": "postgresql://h/m"}


def test_a_port_that_is_taken_is_busy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(PortBusyError, match=f"{address} is in use by another program"):
            check_port_is_free(address)


@pytest.mark.parametrize("host", ["192.0.2.1", "[2001:db8::1]", "a..b"])
def test_an_address_of_another_machine_is_not_said_to_be_in_use(host: str) -> None:
    with pytest.raises(CannotListenError, match=r"cannot be listened at \(.+\): choose another address"):
        check_port_is_free(f"{host}:7400")


@pytest.mark.parametrize("address", ["host:²", "127.0.0.1:70000", "::1:7400"])
def test_where_nobody_could_listen_is_refused_by_its_variable(address: str) -> None:
    with pytest.raises(InvalidSettingError, match=r"MSGCENTER_LISTEN is .*; host:port is wanted"):
        load_broker_settings({}, listen=address, **URLS)
    with pytest.raises(InvalidSettingError, match=r"MSGCENTER_ADVERTISE is .*; host:port is wanted"):
        load_broker_settings({}, advertise=address, **URLS)


async def test_a_broker_on_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    try:
        assert await asyncio.to_thread(is_serving, f"127.0.0.1:{port}", 10.0)
    finally:
        await server.stop(None)
