"""gRPC's reflection, which tells developers' tools what there is to call: as v1, and as v1alpha for older ones.

grpcio-reflection has v1alpha alone. The messages of v1 are the same under another package, so one servicer answers for
both, and the description of v1 is made from that of v1alpha. Tools are told from a pool of descriptors of our own:
whatever else this process has loaded is not to be called here, and another library may describe v1 as well one day.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from msgbroker.contract.errors import TooManyStreamsError
from msgbroker.server.edge.calls.places import Places
from msgbroker.server.edge.refusals import Context, abort_with
from msgbroker.v1 import directory_pb2, inspection_pb2, publisher_pb2, subscriber_pb2

V1ALPHA: Final = reflection.SERVICE_NAME
V1: Final = V1ALPHA.replace(".v1alpha.", ".v1.")
_STREAMS_MAX: Final = 20
_FILES: Final = (
    publisher_pb2.DESCRIPTOR,
    subscriber_pb2.DESCRIPTOR,
    directory_pb2.DESCRIPTOR,
    inspection_pb2.DESCRIPTOR,
    health_pb2.DESCRIPTOR,
    reflection_pb2.DESCRIPTOR,
)


def reflection_methods(services: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the handlers of both versions, by service and method; they tell of *services* and of themselves."""
    servicer = reflection.aio.ReflectionServicer((*services, V1, V1ALPHA), pool=_described())
    places = Places("reflection streams", _STREAMS_MAX)

    async def reflect(requests: Any, context: Context) -> None:
        try:
            with places.taken():
                responses: Any = servicer.ServerReflectionInfo(requests, context)
                async for response in responses:
                    await context.write(response)
        except TooManyStreamsError as error:
            await abort_with(context, error)

    handler = grpc.stream_stream_rpc_method_handler(
        reflect,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return {service: {"ServerReflectionInfo": handler} for service in (V1, V1ALPHA)}


def _described() -> DescriptorPool:
    """Return a pool with all that is served here, and nothing else."""
    pool = DescriptorPool()
    added: set[str] = set()
    for file in _FILES:
        _add(pool, file, added)
    pool.Add(_v1_of(_proto_of(reflection_pb2.DESCRIPTOR)))
    return pool


def _add(pool: DescriptorPool, file: Any, added: set[str]) -> None:
    """Add *file* behind those that it imports."""
    if file.name in added:
        return
    added.add(file.name)
    for imported in file.dependencies:
        _add(pool, imported, added)
    pool.Add(_proto_of(file))


def _proto_of(file: Any) -> FileDescriptorProto:
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    return proto


def _v1_of(v1alpha: FileDescriptorProto) -> FileDescriptorProto:
    """Return the description of the same messages and the same service in the package of v1."""
    v1 = FileDescriptorProto()
    v1.CopyFrom(v1alpha)
    v1.name, v1.package = (name.replace("v1alpha", "v1") for name in (v1alpha.name, v1alpha.package))
    before, after = f".{v1alpha.package}.", f".{v1.package}."
    for field in (field for message in v1.message_type for field in message.field if field.type_name):
        field.type_name = field.type_name.replace(before, after)
    for method in (method for service in v1.service for method in service.method):
        method.input_type = method.input_type.replace(before, after)
        method.output_type = method.output_type.replace(before, after)
    return v1
