"""One connection to one broker, and the calls that need no stream.

gRPC would go to brokers through the proxy for the web, too, which is in the environment of many a machine and knows
nothing of them. Only one that is named for gRPC is used, and never for a broker on this machine.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
from typing import Any, Final

import grpc

from msgbroker.client.config import ClientConfig
from msgbroker.client.failures import from_rpc_error
from msgbroker.contract import limits
from msgbroker.contract.errors import BrokerUnavailableError
from msgbroker.v1 import directory_pb2, directory_pb2_grpc

_OPTIONS: Final = (
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", limits.GRPC_RESPONSE_BYTES_MAX),
    # Each stream has its own connection: brokers behind one port spread by connection, and a slow stream holds up none.
    ("grpc.use_local_subchannel_pool", 1),
    # A peer that vanished without a word is noticed in 15 s. The broker allows a ping each 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A window of HTTP/2 that fits several frames, so that flow control is about load and not about distance.
    ("grpc.http2.lookahead_bytes", 4 * 1024 * 1024),
)


async def connect(address: str, config: ClientConfig) -> grpc.aio.Channel:
    """Return an open channel to *address*, or raise BrokerUnavailableError."""
    options = (*_OPTIONS, ("grpc.enable_http_proxy", int(may_use_proxy(address))))
    if config.credentials is None:
        channel = grpc.aio.insecure_channel(address, options=options)
    else:
        channel = grpc.aio.secure_channel(address, config.credentials, options=options)
    try:
        # Not wait_for: in Python 3.11 it swallows a cancellation that comes in the moment the channel is ready.
        async with asyncio.timeout(config.connect_timeout_seconds):
            await channel.channel_ready()
    except TimeoutError as error:
        await channel.close()
        raise BrokerUnavailableError(
            f"broker {address} did not answer within {config.connect_timeout_seconds:g} s", address=address
        ) from error
    except BaseException:
        await channel.close()
        raise
    return channel


async def list_brokers(channel: grpc.aio.Channel, address: str, config: ClientConfig) -> list[str]:
    """Return the addresses of the live brokers that *address* knows of."""
    stub: Any = directory_pb2_grpc.DirectoryStub(channel)
    try:
        response = await stub.ListBrokers(directory_pb2.ListBrokersRequest(), timeout=config.connect_timeout_seconds)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, address) from error
    return [broker.address for broker in response.brokers if broker.address and not broker.draining]


async def register(
    channel: grpc.aio.Channel, address: str, request: directory_pb2.RegisterRequest, timeout_seconds: float
) -> list[str]:
    """Register things through the broker, and return what was made."""
    stub: Any = directory_pb2_grpc.DirectoryStub(channel)
    try:
        response = await stub.Register(request, timeout=timeout_seconds)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, address) from error
    return list(response.created)


def may_use_proxy(address: str) -> bool:
    """Return whether gRPC may look for a proxy: by `grpc_proxy` first, and where that is empty by those for the web."""
    return bool(os.environ.get("grpc_proxy")) and not _is_of_this_machine(address)  # noqa: SIM112 - gRPC's own name


def _is_of_this_machine(address: str) -> bool:
    host = address.rpartition(":")[0].rpartition("/")[2].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name
        return False
