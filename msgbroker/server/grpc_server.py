"""The gRPC server: its options, its ports, and which function answers which call.

The streams are registered by hand: their handlers read and write at their own pace, and `Subscribe` writes bytes that
are encoded already. Everything else is as the generated code would have it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from msgbroker.contract import limits
from msgbroker.contract.errors import UnavailableError
from msgbroker.server.decoding import DecodedT, decoded, decoder, frame_decoder
from msgbroker.server.directory_service import DirectoryService
from msgbroker.server.grpc_failures import Context
from msgbroker.server.publisher_service import PublisherService
from msgbroker.server.pull_service import PullService
from msgbroker.server.subscriber_service import SubscriberService
from msgbroker.v1 import directory_pb2, publisher_pb2, subscriber_pb2

PUBLISHER: Final = "msgbroker.v1.Publisher"
SUBSCRIBER: Final = "msgbroker.v1.Subscriber"
DIRECTORY: Final = "msgbroker.v1.Directory"
SERVICES: Final = (PUBLISHER, SUBSCRIBER, DIRECTORY)
MSGDB: Final = "msgdb"
"""Name under which health tells of the message store."""
CONFDB: Final = "confdb"
"""Name under which health tells of the configuration; without it a broker goes on by its last snapshot."""
ALARMS: Final = "alarms"
"""Name under which health tells whether an alarm stands at this broker; it serves all the same."""

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", 4 * limits.GRPC_MESSAGE_BYTES_MAX),
    # Two brokers would share a port without a word.
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # How much of a stream gRPC takes in before it is asked for: times many publishers, it is the broker's memory.
    ("grpc.http2.lookahead_bytes", 256 * 1024),
    # Or else it decides by itself, and lets a fast publisher send more than 20 MiB ahead.
    ("grpc.http2.bdp_probe", 0),
)


class PortInUseError(UnavailableError):
    """The address to listen on cannot be had."""

    reason = "PORT_IN_USE"
    retryable = False

    def __init__(self, address: str) -> None:
        super().__init__(
            f"cannot listen on {address}: another program has it, or the address is not of this machine",
            address=address,
        )


def make_server(*, shared_port: bool = False) -> grpc.aio.Server:
    """Return a server without services and ports."""
    options = tuple((name, 1 if name == "grpc.so_reuseport" and shared_port else value) for name, value in _OPTIONS)
    return grpc.aio.server(options=options)


def bind(server: grpc.aio.Server, address: str) -> int:
    """Listen on *address* and return the port. Raises PortInUseError."""
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise PortInUseError(address) from error
    if port == 0:
        raise PortInUseError(address)
    return port


def add_services(
    server: grpc.aio.Server,
    publisher: PublisherService,
    subscriber: SubscriberService,
    pull: PullService,
    directory: DirectoryService,
) -> None:
    """Register our services."""
    handlers: dict[str, dict[str, Any]] = {
        PUBLISHER: {
            "PublishStream": grpc.stream_stream_rpc_method_handler(
                publisher.publish_stream,
                frame_decoder(publisher_pb2.PublishFrame),
                publisher_pb2.PublishResult.SerializeToString,
            ),
            "Publish": _unary(publisher.publish, frame_decoder(publisher_pb2.PublishRequest)),
        },
        SUBSCRIBER: {
            "Subscribe": grpc.stream_stream_rpc_method_handler(
                subscriber.subscribe, decoder(subscriber_pb2.SubscribeRequest, limits.SETTLEMENT_RANGES_MAX), None
            ),
            "Pull": _unary(pull.pull, decoder(subscriber_pb2.PullRequest)),
            "Settle": _unary(pull.settle, decoder(subscriber_pb2.SettleRequest, limits.PULL_MESSAGES_MAX)),
        },
        DIRECTORY: {
            "ListBrokers": _unary(directory.list_brokers, decoder(directory_pb2.ListBrokersRequest)),
            "Register": _unary(directory.register, decoder(directory_pb2.RegisterRequest)),
        },
    }
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(service, methods) for service, methods in handlers.items())
    )


def _unary(
    answer: Callable[[DecodedT, Context], Awaitable[Message]], decode: Callable[[bytes], DecodedT]
) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_unary_rpc_method_handler(decoded(decode, answer), None, _encode)


def _encode(answer: Message) -> bytes:
    return answer.SerializeToString()


def add_health(server: grpc.aio.Server) -> health.aio.HealthServicer:
    """Register the standard health service and reflection; everything is NOT_SERVING until set."""
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    reflection.enable_server_reflection((*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return servicer


async def set_health(servicer: health.aio.HealthServicer, service: str, *, serving: bool) -> None:
    """Say of one service whether it serves."""
    status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
    await servicer.set(service, status)
