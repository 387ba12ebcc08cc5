"""The gate of unary calls: how many are answered at a time, and of how many the request is being read.

A call announces itself before its message: gRPC takes that in when somebody waits for it. So the handlers read it
themselves, so many at a time, and who does not send in time does not keep others waiting. An answer counts as outgoing
until gRPC has taken it over: a client may not read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from msgbroker.contract.errors import InvalidRequestFieldError, MessageCenterError, TooManyCallsError
from msgbroker.server.call_ending import end_at_once, when_ended
from msgbroker.server.grpc_failures import Context, abort_with
from msgbroker.server.outgoing import Outgoing
from msgbroker.server.places import Places
from msgbroker.server.sending_in_time import sent_in_time

DecodedT = TypeVar("DecodedT")
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_READING_MAX: Final = 64
"""32 MiB, of the largest requests."""
_SMALL_ANSWER_BYTES: Final = 2_048
"""Not counted beside what a call costs anyway."""


def _nothing() -> None:
    """Let every call be read."""


class CallGate:
    """See the module."""

    def __init__(self, calls_max: int, outgoing: Outgoing) -> None:
        self.places = Places("calls", calls_max, TooManyCallsError)
        self._outgoing = outgoing
        self._reading = asyncio.Semaphore(_READING_MAX)

    def unary(
        self,
        decode: Callable[[bytes], DecodedT],
        answer: Callable[[DecodedT, Context], Awaitable[Message]],
        check: Callable[[], None] = _nothing,
    ) -> Handler:
        """Return the handler of a unary call. *check* may refuse it before its request is read."""

        async def read_and_answer(_: object, context: Context) -> bytes:
            try:
                self._enter(context)
                check()
                request = decode(await self._read(context))
            except MessageCenterError as error:
                await abort_with(context, error)
            return self._on_its_way((await answer(request, context)).SerializeToString(), context)

        # To a client there is no difference; but here the request is not read before the handler asks for it.
        return grpc.stream_unary_rpc_method_handler(read_and_answer)

    def _enter(self, context: Context) -> None:
        """Give the call a place, until its answer is on its way or given up."""
        self.places.take()
        when_ended(context, self.places.leave)

    async def _read(self, context: Context) -> bytes:
        async with sent_in_time("the request"), self._reading:
            encoded = await context.read()
        if encoded is grpc.aio.EOF:
            raise InvalidRequestFieldError("message", "is missing: the call ended without one")
        assert isinstance(encoded, bytes)
        return encoded

    def _on_its_way(self, answer: bytes, context: Context) -> bytes:
        if len(answer) > _SMALL_ANSWER_BYTES:
            outlet = self._outgoing.open(lambda error: end_at_once(context, error))
            outlet.begin_write(len(answer))
            when_ended(context, outlet.close)
        return answer
