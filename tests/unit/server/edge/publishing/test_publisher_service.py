"""What a publisher's frames hold while they are taken in: given back whatever is raised, and by the answer else."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import grpc
import pytest

from confdb.routes import TopicRoute
from msgbroker.contract import limits
from msgbroker.contract.errors import ConfigOutdatedError
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.deliver.outgoing import Outgoing
from msgbroker.server.edge.decoding import FramePart, Received, frame_decoder, parse_message
from msgbroker.server.edge.publishing.publisher_service import PublisherService
from msgbroker.server.publish.admissions import Admissions
from msgbroker.server.publish.committer import Committer
from msgbroker.v1 import message_pb2, publisher_pb2
from tests.support.broker_builders import TOPIC, board, route, snapshot, topic_alarm

BODY = b"x" * 1_000
HELLO = publisher_pb2.PublisherHello(publisher_id=b"p" * 16, born_host="host")
HELLO_ALONE = Received(publisher_pb2.PublishFrame(hello=HELLO), b"", [])


def messages(event_code: str = "EC_NEW") -> list[message_pb2.Message]:
    return [message_pb2.Message(topic=TOPIC, event_code=event_code, body=BODY)] * 3


def frame(sequence: int, **fields: Any) -> Received[publisher_pb2.PublishFrame]:
    decode = frame_decoder(publisher_pb2.PublishFrame)
    return decode(publisher_pb2.PublishFrame(sequence=sequence, messages=messages(), **fields).SerializeToString())


def parts(sequence: int) -> list[FramePart]:
    encoded = memoryview(publisher_pb2.PublishFrame(sequence=sequence, messages=messages()).SerializeToString())
    return [FramePart(encoded, len(encoded))]


class Call:
    """gRPC's side of one call: what the publisher sends, one after the other."""

    def __init__(self, *sent: Any) -> None:
        self._sent = deque([*sent, grpc.aio.EOF])

    async def read(self) -> Any:
        return self._sent.popleft()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:4711"

    async def abort(self, code: grpc.StatusCode, details: str, trailing_metadata: object = ()) -> None:
        raise AbortedError(details)


class AbortedError(Exception):
    """The call was ended with a status."""


class OutdatedCall(Call):
    """A stream whose broker falls behind once the first frame is there."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(HELLO_ALONE, frame(1))
        self._scene = scene

    async def read(self) -> Any:
        received = await super().read()
        self._scene.is_current = received is HELLO_ALONE
        return received


class Scene:
    """The service, a committer that never runs, and what goes wrong on the way from one to the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.is_current = True
        self.topics_aside = SetAside(board(), topic_alarm)
        self.committer = Committer(
            None,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            on_stored=lambda _: None,
            on_stored_before=lambda _: None,
            topics_aside=self.topics_aside,
        )
        self.service = PublisherService(
            committer=self.committer,
            admissions=Admissions(
                snapshot=lambda: snapshot(route(is_open=True)), learn_event_code=self._learn, parse=parse_message
            ),
            check_current=self._check_current,
            is_delivery_behind=lambda _: False,
            outgoing=Outgoing(),
            streams_max=10,
        )
        self.learn: Exception | None = None

    def fail_in(self, place: str) -> None:
        """Let something that nobody foresaw happen there."""
        if place == "admission":
            self.learn = RuntimeError("a defect")
        else:
            self.topics_aside.failed(1, ValueError("a page is damaged"))
            self.monkeypatch.setattr(self.topics_aside, "is_set_aside", _raise)

    async def stream(self, *sent: Any) -> None:
        await self.service.publish_stream(None, Call(frame(1, hello=HELLO), *sent))  # type: ignore[arg-type]

    async def call(self) -> None:
        request = publisher_pb2.PublishRequest(messages=messages())
        received = frame_decoder(publisher_pb2.PublishRequest)(request.SerializeToString())
        await self.service.publish(received, Call())  # type: ignore[arg-type]

    @property
    def bytes_held(self) -> tuple[int, int]:
        return self.committer.budget.bytes_held, self.service.arriving.bytes_held

    def _learn(self, _: TopicRoute, __: str) -> None:
        if self.learn is not None:
            raise self.learn

    def _check_current(self) -> None:
        if not self.is_current:
            raise ConfigOutdatedError(1)


def _raise(_: object) -> None:
    raise RuntimeError("a defect")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


@pytest.mark.parametrize("place", ["admission", "submission"])
async def test_a_frame_of_a_stream_holds_nothing_after_an_error_that_nobody_foresaw(scene: Scene, place: str) -> None:
    scene.fail_in(place)
    with pytest.raises(RuntimeError, match="a defect"):
        await scene.stream()

    assert scene.bytes_held == (0, 0)


@pytest.mark.parametrize("place", ["admission", "submission"])
async def test_a_call_holds_nothing_after_an_error_that_nobody_foresaw(scene: Scene, place: str) -> None:
    scene.fail_in(place)
    with pytest.raises(RuntimeError, match="a defect"):
        await scene.call()

    assert scene.bytes_held == (0, 0)


async def test_a_frame_in_parts_holds_nothing_after_an_error_that_nobody_foresaw(scene: Scene) -> None:
    scene.fail_in("admission")
    with pytest.raises(RuntimeError, match="a defect"):
        await scene.service.publish_stream(None, Call(HELLO_ALONE, *parts(1)))  # type: ignore[arg-type]

    assert scene.bytes_held == (0, 0)


async def test_a_frame_that_is_refused_for_the_broker_holds_nothing(scene: Scene) -> None:
    with pytest.raises(AbortedError):
        await scene.service.publish_stream(None, OutdatedCall(scene))  # type: ignore[arg-type]

    assert scene.bytes_held == (0, 0)


async def test_what_was_submitted_is_held_until_it_is_answered(scene: Scene) -> None:
    serving = asyncio.create_task(scene.stream())
    await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    held_bytes, arriving_bytes = scene.bytes_held
    assert held_bytes > 2 * 3 * len(BODY)
    assert arriving_bytes == 0

    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    # It is stored all the same.
    assert scene.bytes_held == (held_bytes, 0)
    assert held_bytes < limits.FRAME_BYTES_MAX
