"""What developers' tools are told: that there is v1 of reflection as well as v1alpha, and enough to call everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2

from msgbroker.server.app import Broker
from msgbroker.v1 import directory_pb2, inspection_pb2, publisher_pb2, subscriber_pb2

SERVICES = {
    "msgbroker.v1.Publisher",
    "msgbroker.v1.Subscriber",
    "msgbroker.v1.Directory",
    "msgbroker.v1.Inspection",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
}
PROTOCOL = (Path(__file__).parents[4] / "docs" / "protocol.md").read_text()
CALLS = [
    pytest.param(method, id=method.name)
    for file in (publisher_pb2, subscriber_pb2, directory_pb2, inspection_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
VERSIONS = pytest.mark.parametrize("version", ["v1", "v1alpha"])


@pytest.fixture
async def channel(broker: Broker) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(broker.address) as channel:
        yield channel


async def ask(channel: grpc.aio.Channel, version: str, **request: Any) -> reflection_pb2.ServerReflectionResponse:
    """Ask one thing of a version of reflection: their messages are the same."""
    call: Any = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )()
    await call.write(reflection_pb2.ServerReflectionRequest(**request))
    answer: reflection_pb2.ServerReflectionResponse = await call.read()
    call.cancel()
    return answer


async def files_with(channel: grpc.aio.Channel, version: str, symbol: str) -> list[FileDescriptorProto]:
    """Return the file that holds *symbol*, and those that it needs."""
    answer = await ask(channel, version, file_containing_symbol=symbol)
    return [
        FileDescriptorProto.FromString(encoded) for encoded in answer.file_descriptor_response.file_descriptor_proto
    ]


@VERSIONS
async def test_reflection_lists_the_services(channel: grpc.aio.Channel, version: str) -> None:
    answer = await ask(channel, version, list_services="")

    assert {service.name for service in answer.list_services_response.service} == SERVICES


@VERSIONS
async def test_the_file_of_a_service_comes_with_those_it_imports(channel: grpc.aio.Channel, version: str) -> None:
    files = {file.name: file for file in await files_with(channel, version, "msgbroker.v1.Publisher")}

    assert set(files) == {"msgbroker/v1/publisher.proto", "msgbroker/v1/message.proto"}
    (publisher,) = files["msgbroker/v1/publisher.proto"].service
    assert [method.name for method in publisher.method] == ["PublishStream", "Publish"]


@VERSIONS
async def test_what_is_not_served_is_not_found(channel: grpc.aio.Channel, version: str) -> None:
    answer = await ask(channel, version, file_containing_symbol="google.rpc.Status")

    assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


@VERSIONS
async def test_a_tool_that_knows_only_reflection_can_call_a_broker(
    broker: Broker, channel: grpc.aio.Channel, version: str
) -> None:
    pool = DescriptorPool()
    listed = await ask(channel, version, list_services="")
    names = [service.name for service in listed.list_services_response.service]
    files = {file.name: file for name in names for file in await files_with(channel, version, name)}
    while waiting := [file for file in files.values() if not _is_known(pool, file.name)]:
        # Each behind those that it imports.
        pool.Add(next(file for file in waiting if all(_is_known(pool, name) for name in file.dependency)))
    method = pool.FindServiceByName("msgbroker.v1.Directory").FindMethodByName("ListBrokers")
    request, response = (message_factory.GetMessageClass(each) for each in (method.input_type, method.output_type))

    call: Any = channel.unary_unary(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )
    answer: Any = await call(request())

    assert [each.address for each in answer.brokers] == [broker.address]
    assert {name for name in names if pool.FindServiceByName(name).methods} == SERVICES


def _is_known(pool: DescriptorPool, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


@pytest.mark.parametrize("method", CALLS)
async def test_each_call_of_the_contract_is_served_and_named_in_the_protocol(
    channel: grpc.aio.Channel, method: Any
) -> None:
    path = f"/{method.containing_service.full_name}/{method.name}"
    kind = channel.stream_stream if method.client_streaming else channel.unary_unary
    call: Any = kind(path, request_serializer=bytes, response_deserializer=bytes)
    # Nothing that could be read: whatever is said of that, it is not that nobody knows the call.
    begun = call() if method.client_streaming else call(b"\xff")
    if method.client_streaming:
        await begun.write(b"\xff")
        await begun.done_writing()

    assert await begun.code() is not grpc.StatusCode.UNIMPLEMENTED
    assert f"`{method.name}`" in PROTOCOL
