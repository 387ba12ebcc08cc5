"""One connection to one broker, and the calls that need no stream.

That an attempt fails is known as soon as gRPC knows it; why, is found out by a probe (`diagnosis`).

gRPC would go to brokers through the proxy for the web, too, which is in the environment of many a machine and knows
nothing of them. Only one that is named for gRPC is used, and never for a broker on this machine.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
from typing import Any, Final

import grpc

from msgbroker.client.connect import forks
from msgbroker.client.connect.diagnosis import Finding, diagnose
from msgbroker.client.connect.failures import from_rpc_error
from msgbroker.client.connect.unreachable import unavailable
from msgbroker.client.values.config import ClientConfig
from msgbroker.client.values.log_lines import log_line
from msgbroker.contract import limits
from msgbroker.contract.addresses import split_address
from msgbroker.contract.errors import (
    BrokerUnavailableError,
    InvalidSettingError,
    MessageCenterError,
    UnavailableCause,
)
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
_ATTEMPT_SECONDS_MORE: Final = 0.5
_ATTEMPT_SECONDS_MAX: Final = 20.0
_CALL_SECONDS_MAX: Final = 7 * 86_400.0
"""The longest that a single call may take, as gRPC does not know of times without an end."""


async def connect(address: str, config: ClientConfig) -> grpc.aio.Channel:
    """Return an open channel to *address*, or raise BrokerUnavailableError, which says why there is none."""
    await forks.passed()
    until = asyncio.get_running_loop().time() + config.connect_timeout_seconds
    finding: Finding | None = None
    while True:
        channel = _open(address, config)
        try:
            # Not wait_for: in Python 3.11 it swallows a cancellation that comes in the moment the channel is ready.
            async with asyncio.timeout_at(until):
                is_ready = await _gets_ready(channel)
        except TimeoutError:
            await channel.close()
            finding = finding or await _look_why(address, config)
            raise _unavailable(address, finding, within_seconds=config.connect_timeout_seconds) from None
        except BaseException:
            await channel.close()
            raise
        if is_ready:
            return channel
        await channel.close()
        is_second, finding = finding is not None, await _look_why(address, config)
        if is_second or not finding.may_pass:
            raise _unavailable(address, finding)


def _open(address: str, config: ClientConfig) -> grpc.aio.Channel:
    # gRPC goes on with what it has begun when the channel is closed: not much longer than anybody waits for it.
    attempt_ms = int(min(config.connect_timeout_seconds + _ATTEMPT_SECONDS_MORE, _ATTEMPT_SECONDS_MAX) * 1_000)
    options = (
        *_OPTIONS,
        ("grpc.enable_http_proxy", int(may_use_proxy(address))),
        ("grpc.min_reconnect_backoff_ms", attempt_ms),
    )
    if config.credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, config.credentials, options=options)


async def _gets_ready(channel: grpc.aio.Channel) -> bool:
    """Wait until the channel is ready; return False if its first attempt, with all addresses of a name, has failed."""
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            return False
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)
    return True


async def _look_why(address: str, config: ClientConfig) -> Finding:
    if may_use_proxy(address):
        words = "no way leads there by the proxy in grpc_proxy; check that proxy, or except the broker in no_grpc_proxy"
        return Finding(UnavailableCause.UNREACHABLE, words)
    try:
        host, port = split_address("address", address)
    except InvalidSettingError as error:
        # Brokers have told of it: what the application gives is looked at before.
        return Finding(UnavailableCause.NAME_NOT_RESOLVED, f"{error.message}; check what brokers advertise")
    has_credentials = config.credentials is not None
    return await diagnose(host, port, has_credentials=has_credentials, seconds_max=config.connect_timeout_seconds)


def _unavailable(address: str, finding: Finding, *, within_seconds: float | None = None) -> BrokerUnavailableError:
    cause, words = finding.cause, finding.words
    if within_seconds is not None and (cause is UnavailableCause.TIMEOUT or finding.may_pass):
        cause, words = UnavailableCause.TIMEOUT, f"no answer within {within_seconds:g} s: {words}"
    return unavailable(address, words, cause)


def close_at_once(channel: grpc.aio.Channel) -> None:
    """Close a channel without waiting: its own `close` waits for the loop. It may be called afterwards."""
    core: Any = channel
    core._channel.close()  # noqa: SLF001 - there is no other way


async def list_brokers(channel: grpc.aio.Channel, address: str, config: ClientConfig) -> list[str]:
    """Return the addresses of the live brokers that *address* knows of."""
    stub: Any = directory_pb2_grpc.DirectoryStub(channel)
    timeout = min(config.connect_timeout_seconds, _CALL_SECONDS_MAX)
    try:
        response = await stub.ListBrokers(directory_pb2.ListBrokersRequest(), timeout=timeout)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, address) from error
    return [broker.address for broker in response.brokers if broker.address and not broker.draining]


async def why_ended(
    error: grpc.aio.AioRpcError, channel: grpc.aio.Channel, address: str, config: ClientConfig
) -> MessageCenterError:
    """Return what the end of a stream means.

    A write to a stream that has ended makes grpc.aio forget what it ended with: then it is asked what listens there.
    """
    if error.code() is grpc.StatusCode.INTERNAL:
        try:
            await list_brokers(channel, address, config)
        except BrokerUnavailableError as told:
            if told.cause is UnavailableCause.NOT_A_BROKER:
                return told
        except MessageCenterError as told:
            # A broker, then: trying again tells.
            log_line(logging.DEBUG, "channel.brokers_not_listed", reason=told.reason)
    return from_rpc_error(error, address)


async def register(
    channel: grpc.aio.Channel, address: str, request: directory_pb2.RegisterRequest, timeout_seconds: float
) -> directory_pb2.RegisterResponse:
    """Register things through the broker, and return what it says of them."""
    stub: Any = directory_pb2_grpc.DirectoryStub(channel)
    try:
        seconds = min(timeout_seconds, _CALL_SECONDS_MAX)
        response: directory_pb2.RegisterResponse = await stub.Register(request, timeout=seconds)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, address) from error
    return response


def may_use_proxy(address: str) -> bool:
    """Return whether gRPC may look for a proxy: by `grpc_proxy` first, and where that is empty by those for the web."""
    return bool(os.environ.get("grpc_proxy")) and not _is_of_this_machine(address)  # noqa: SIM112 - gRPC's own name


def _is_of_this_machine(address: str) -> bool:
    host = address.rpartition(":")[0].rpartition("/")[2].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name
        return False
