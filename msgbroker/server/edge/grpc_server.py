"""The gRPC server: its options, its ports, and which function answers which call.

All are registered by hand: handlers read and write at their own pace, and write bytes that are encoded already. Nobody
is served without a place: for each kind of stream, and for calls, there is a bound.
"""

from __future__ import annotations

from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2

from msgbroker.contract import limits
from msgbroker.contract.errors import PortInUseError
from msgbroker.server.edge.calls.gate import CallGate
from msgbroker.server.edge.decoding import decoder, frame_decoder, stream_decoder
from msgbroker.server.edge.directory_service import DirectoryService
from msgbroker.server.edge.health_service import SERVICE as HEALTH
from msgbroker.server.edge.health_service import HealthService
from msgbroker.server.edge.inspecting.inspection_service import InspectionService
from msgbroker.server.edge.publishing.publisher_service import PublisherService
from msgbroker.server.edge.reflection_service import reflection_methods
from msgbroker.server.edge.subscribing.pull_service import PullService
from msgbroker.server.edge.subscribing.subscriber_service import SubscriberService
from msgbroker.v1 import directory_pb2, inspection_pb2, publisher_pb2, subscriber_pb2

PUBLISHER: Final = "msgbroker.v1.Publisher"
SUBSCRIBER: Final = "msgbroker.v1.Subscriber"
DIRECTORY: Final = "msgbroker.v1.Directory"
INSPECTION: Final = "msgbroker.v1.Inspection"
"""For operators' tools: no client of an application calls it."""
SERVICES: Final = (PUBLISHER, SUBSCRIBER, DIRECTORY, INSPECTION)
MSGDB: Final = "msgdb"
"""Name under which health tells of the message store."""
CONFDB: Final = "confdb"
"""Name under which health tells of the configuration; without it a broker goes on by its last snapshot."""
ALARMS: Final = "alarms"
"""Name under which health tells whether an alarm stands at this broker; it serves all the same."""
ARCHIVE: Final = "archive"
"""Name under which health tells whether a day is kept beyond its time because it is not archived."""

IDLE_CONNECTION_OPTION: Final = "grpc.max_connection_idle_ms"
WINDOW_BYTES: Final = 128 * 1024
"""What a stream or call may cost that nobody reads. While somebody does, gRPC lets a whole message come; with 64 KiB
it says so often how much more may come that small frames lose 3 % of their rate."""
_SMALL_REQUEST_BYTES_MAX: Final = 4 * 1024
"""Requests that have nothing but names in them are smaller."""
_REQUEST_BYTES_MAX: Final = 64 * 1024
"""1,000 receipts with an error text are smaller, and so are names with an expression."""
_IDLE_CONNECTION_SECONDS: Final = 7 * 60
"""A connection is ended after so long without a call or stream: it costs some 15 KiB, and nobody counts it. Not a round
number: who calls every five minutes would call as its connection ends, which one in some thousand calls fail of."""

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.GRPC_RESPONSE_BYTES_MAX),
    # Two brokers would share a port without a word.
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.max_pings_without_data", 0),
    (IDLE_CONNECTION_OPTION, _IDLE_CONNECTION_SECONDS * 1_000),
    # How much of a stream gRPC takes in before it is asked for: times many streams, it is the broker's memory.
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
    # Or else it decides by itself, and lets a fast publisher send more than 20 MiB ahead.
    ("grpc.http2.bdp_probe", 0),
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
    *,
    publisher: PublisherService,
    subscriber: SubscriberService,
    pull: PullService,
    directory: DirectoryService,
    inspection: InspectionService,
    health: HealthService,
    gate: CallGate,
    inspection_gate: CallGate,
    health_gate: CallGate,
) -> None:
    """Register all services.

    Who asks for health has a gate apart: whatever others do, a supervisor gets its answer. So have operators' tools:
    they find out why clients fill all places, and take none of theirs.
    """
    small = _SMALL_REQUEST_BYTES_MAX
    settle = decoder(subscriber_pb2.SettleRequest, limits.PULL_MESSAGES_MAX, _REQUEST_BYTES_MAX)
    extend = decoder(subscriber_pb2.ExtendRequest, limits.PULL_MESSAGES_MAX, _REQUEST_BYTES_MAX)
    handlers: dict[str, dict[str, Any]] = {
        PUBLISHER: {
            "PublishStream": grpc.stream_stream_rpc_method_handler(publisher.publish_stream, stream_decoder(), None),
            "Publish": gate.unary(frame_decoder(publisher_pb2.PublishRequest), publisher.publish, publisher.check_open),
        },
        SUBSCRIBER: {
            "Subscribe": grpc.stream_stream_rpc_method_handler(
                subscriber.subscribe, decoder(subscriber_pb2.SubscribeRequest, limits.SETTLEMENT_RANGES_MAX), None
            ),
            "Pull": gate.unary(decoder(subscriber_pb2.PullRequest, bytes_max=small), pull.pull, waits_in=pull.calls),
            "Extend": gate.unary(extend, pull.extend),
            "Settle": gate.unary(settle, pull.settle),
        },
        DIRECTORY: {
            "ListBrokers": gate.unary(
                decoder(directory_pb2.ListBrokersRequest, bytes_max=small), directory.list_brokers
            ),
            "Register": gate.unary(
                decoder(directory_pb2.RegisterRequest, bytes_max=_REQUEST_BYTES_MAX), directory.register
            ),
        },
        INSPECTION: _inspection_methods(inspection, inspection_gate),
        HEALTH: {
            "Check": health_gate.unary(decoder(health_pb2.HealthCheckRequest, bytes_max=small), health.check),
            "Watch": grpc.stream_stream_rpc_method_handler(health.watch),
        },
        **reflection_methods((*SERVICES, HEALTH)),
    }
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(service, methods) for service, methods in handlers.items())
    )


def _inspection_methods(inspection: InspectionService, gate: CallGate) -> dict[str, Any]:
    small = _SMALL_REQUEST_BYTES_MAX
    in_flight = decoder(inspection_pb2.InFlightRequest, limits.INSPECTED_PLACES_MAX, _REQUEST_BYTES_MAX)
    list_instances = decoder(inspection_pb2.ListInstancesRequest, bytes_max=small)
    list_publishers = decoder(inspection_pb2.ListPublishersRequest, bytes_max=small)
    list_unsettled = decoder(inspection_pb2.ListUnsettledRequest, limits.INSPECTED_PLACES_MAX, _REQUEST_BYTES_MAX)
    return {
        "InFlight": gate.unary(in_flight, inspection.in_flight),
        "ListInstances": gate.unary(list_instances, inspection.list_instances),
        "ListPublishers": gate.unary(list_publishers, inspection.list_publishers),
        "ListUnsettled": gate.unary(list_unsettled, inspection.list_unsettled),
    }
