"""How long a broker may be silent: it goes by what is still on its way, on a line however slow."""

from __future__ import annotations

import asyncio
import functools

import pytest

from msgbroker.client import MessageCenter, Receipt
from msgbroker.client.publish import stream as publisher_stream_module
from msgbroker.client.publish.silence import Silence
from msgbroker.contract import limits
from msgbroker.v1 import publisher_pb2
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

ANSWER_TIMEOUT_SECONDS = 10.0
PART_SECONDS = 9.0
"""What a gRPC message takes on this line; brokers wait 10 s for it."""
LARGEST_FRAME_PARTS = 9


class SlowLine:
    """Carries what is written piece by piece, as a test says, which also says what time it is."""

    def __init__(self) -> None:
        self.now = 0.0
        self.connections = 0
        self.looks = 0
        self.written: list[bytes] = []
        """The hello first."""
        self._answers: asyncio.Queue[publisher_pb2.PublishResult] = asyncio.Queue()
        self._may_write = asyncio.Semaphore(1)

    def clock(self) -> float:
        """Return the time. The stream asks for it each time it looks whether the broker is silent."""
        self.looks += 1
        return self.now

    async def connect(self, *_: object) -> SlowLine:
        """Be the channel."""
        self.connections += 1
        return self

    async def list_brokers(self, *_: object) -> list[str]:
        """Know of no other one."""
        return []

    def stream_stream(self, *_: object, **__: object) -> object:
        """Be the call."""
        return lambda: self

    async def write(self, piece: bytes) -> None:
        """Write a piece when there is room on the line."""
        await self._may_write.acquire()
        self.written.append(piece)

    async def read(self) -> publisher_pb2.PublishResult:
        """Return the next answer."""
        return await self._answers.get()

    def cancel(self) -> None:
        """End the call."""

    async def close(self) -> None:
        """Close the channel."""

    async def carry_one(self) -> None:
        """Let another piece through."""
        count = len(self.written)
        self._may_write.release()
        await eventually(lambda: len(self.written) > count)

    async def pass_seconds(self, seconds: float) -> None:
        """Let time pass, and the stream take notice."""
        self.now += seconds
        looks = self.looks
        await eventually(lambda: self.looks > looks + 1 or self.connections > 1)

    def answer(self, sequence: int) -> None:
        """Answer a frame."""
        self._answers.put_nowait(publisher_pb2.PublishResult(sequence=sequence, queue_ids=[1], queue_offsets=[0]))


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> SlowLine:
    """A line that all brokers are at the end of."""
    line = SlowLine()
    monkeypatch.setattr(publisher_stream_module, "connect", line.connect)
    monkeypatch.setattr(publisher_stream_module, "list_brokers", line.list_brokers)
    monkeypatch.setattr(publisher_stream_module, "Silence", functools.partial(Silence, clock=line.clock))
    monkeypatch.setattr(publisher_stream_module, "_LOOK_SECONDS", 0.001)
    return line


def center_on_the_line() -> MessageCenter:
    return MessageCenter(
        "far:1",
        answer_timeout_seconds=ANSWER_TIMEOUT_SECONDS,
        publish_timeout_seconds=None,
        backoff_initial_seconds=0.001,
        drain_timeout_seconds=0,
    )


async def test_the_largest_message_gets_through_a_line_however_long_it_takes_there(line: SlowLine) -> None:
    async with center_on_the_line() as center:
        publishing = asyncio.ensure_future(center.publish("TP", "EC", bytes(limits.BODY_BYTES_CEILING)))
        for _ in range(LARGEST_FRAME_PARTS):
            await line.carry_one()
            await line.pass_seconds(PART_SECONDS)
            assert line.connections == 1
        # The last part has been taken by the line; it arrives now, and the broker takes its time to store the frame.
        await line.pass_seconds(ANSWER_TIMEOUT_SECONDS)
        assert line.connections == 1
        line.answer(1)
        assert isinstance(await publishing, Receipt)


async def test_a_line_that_takes_nothing_any_more_is_left_in_the_middle_of_a_frame(line: SlowLine) -> None:
    async with center_on_the_line() as center:
        center.publish_soon("TP", "EC", bytes(limits.BODY_BYTES_CEILING))
        await line.carry_one()
        await line.pass_seconds(ANSWER_TIMEOUT_SECONDS + limits.REQUEST_SECONDS_MAX + 0.1)
        await eventually(lambda: line.connections == 2)


async def test_what_is_written_behind_an_unanswered_frame_does_not_hide_the_silence(line: SlowLine) -> None:
    async with center_on_the_line() as center:
        for number in range(3):
            center.publish_soon("TP", "EC", str(number))
            await line.carry_one()
            assert line.connections == 1
            await line.pass_seconds(4)

        await eventually(lambda: line.connections == 2)


def test_a_small_frame_has_the_answer_timeout_and_a_large_one_the_time_of_a_part_besides() -> None:
    silence = Silence(10)
    assert silence.seconds_max(100) == pytest.approx(10, abs=0.01)
    assert silence.seconds_max(limits.GRPC_MESSAGE_BYTES_MAX // 2) == 15
    assert silence.seconds_max(limits.BODY_BYTES_CEILING) == 20
