"""A publisher's frames as they come in: whole, or in parts.

gRPC takes a whole message into memory as soon as somebody waits for it, and whoever serves a stream must wait: so what
a stream may cost is one gRPC message, and those are small. A frame that is larger comes in parts. After the first one
the reader waits, in turn with all other streams, for room for the whole, and only then reads the rest. Room for frames
that are not complete is apart from the room of those that are: who does not go on holds up no whole frame.

What is held for a frame is its bytes: each part is added to them as it comes, and none is so small that what surrounds
it costs more.
"""

from __future__ import annotations

import io
from typing import Any, Final

import grpc

from msgbroker.contract import limits
from msgbroker.contract.errors import FrameTooLargeError, InvalidRequestFieldError
from msgbroker.server.edge.calls.sending_in_time import sent_in_time
from msgbroker.server.edge.decoding import FramePart, Received, frame_decoder
from msgbroker.server.publish.byte_budget import ByteBudget
from msgbroker.v1 import publisher_pb2

Frame = Received[publisher_pb2.PublishFrame]

_decode: Final = frame_decoder(publisher_pb2.PublishFrame)


class FrameReader:
    """Reads the frames of one stream, one after the other."""

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any], arriving: ByteBudget) -> None:
        self._context = context
        self._arriving = arriving
        """For frames in parts, of all streams."""
        self._hold = arriving.hold_at_once(0)
        """Of the frame that came in parts last."""
        self._first: Frame | None = None

    async def hello(self) -> publisher_pb2.PublisherHello | None:
        """Return what the stream begins with, or None where it ends at once; raises what `next` does."""
        async with sent_in_time("the hello of this stream"):
            message = await self._context.read()
        self._first = await self._whole(message)
        return None if self._first is None else self._first.frame.hello

    async def next(self) -> Frame | None:
        """Return the next frame, or None at the end of the stream; `done` gives back the room it came with.

        Raises FrameTooLargeError, InvalidRequestFieldError or UnfinishedError.
        """
        first = self._first
        if first is not None:
            self._first = None
            return first
        message = await self._context.read()
        # Nearly all frames are small, and come whole.
        return message if type(message) is Received else await self._whole(message)

    def done(self) -> None:
        """Give back the room of a frame that came in parts: it has other room by now, or is gone."""
        self._hold.release()

    async def _whole(self, message: Any) -> Frame | None:
        if message is grpc.aio.EOF:
            return None
        if not isinstance(message, FramePart):
            assert isinstance(message, Received)
            return message
        frame_bytes = message.frame_bytes
        if not frame_bytes:
            raise InvalidRequestFieldError("frame_bytes", "must be given with the first part of a frame")
        if frame_bytes > limits.FRAME_BYTES_CEILING:
            raise FrameTooLargeError("bytes", frame_bytes, limits.FRAME_BYTES_MAX)
        self._hold = await self._arriving.hold(frame_bytes)
        async with sent_in_time("a frame in parts", frame_bytes):
            encoded = await self._joined(message)
        return None if encoded is None else _decode(encoded)

    async def _joined(self, part: FramePart) -> bytes | None:
        """Return a frame of which the first part is here; None if the stream ends before the last one is."""
        frame = io.BytesIO()
        missing_bytes = part.frame_bytes
        while True:
            missing_bytes -= len(part.part)
            _check_size(len(part.part), missing_bytes)
            frame.write(part.part)
            if not missing_bytes:
                # Not copied: it is the buffer itself.
                return frame.getvalue()
            message: Any = await self._context.read()
            if message is grpc.aio.EOF:
                return None
            if not isinstance(message, FramePart) or message.frame_bytes:
                raise InvalidRequestFieldError("part", "must follow the other parts of its frame, with nothing between")
            part = message


def _check_size(part_bytes: int, missing_bytes: int) -> None:
    """Raise InvalidRequestFieldError for a part behind which so much is missing, if it is too long or too small."""
    if missing_bytes < 0:
        raise InvalidRequestFieldError("part", f"is {-missing_bytes} bytes longer than frame_bytes says")
    bytes_min = limits.FRAME_PART_BYTES_MIN
    if missing_bytes and part_bytes < bytes_min:
        raise InvalidRequestFieldError("part", f"has {part_bytes} bytes; all but the last have {bytes_min} or more")
