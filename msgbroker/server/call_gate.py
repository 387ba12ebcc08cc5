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

from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidRequestFieldError, MessageCenterError, TooManyCallsError, UnfinishedError
from msgbroker.server import clock
from msgbroker.server.call_ending import end_at_once, when_ended
from msgbroker.server.grpc_failures import Context, abort_with
from msgbroker.server.outgoing import Outgoing

DecodedT = TypeVar("DecodedT")
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_READING_MAX: Final = 64
"""16 MiB, of the largest requests."""
_RETRY_AFTER_SECONDS: Final = 0.5
_SMALL_ANSWER_BYTES: Final = 2_048
"""Not counted beside what a call costs anyway."""


def _nothing() -> None:
    """Let every call be read."""


class CallGate:
    """See the module."""

    def __init__(self, calls_max: int, outgoing: Outgoing) -> None:
        self.count_max = calls_max
        self.count = 0
        self.refused_count = 0
        self.refused_at: float | None = None
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
        """Count the call, until its answer is on its way or given up."""
        if self.count >= self.count_max:
            self.refused_count += 1
            self.refused_at = clock.now()
            raise TooManyCallsError(self.count_max, _RETRY_AFTER_SECONDS)
        self.count += 1
        when_ended(context, self._leave)

    def _leave(self) -> None:
        self.count -= 1

    async def _read(self, context: Context) -> bytes:
        try:
            async with asyncio.timeout(limits.REQUEST_SECONDS_MAX), self._reading:
                encoded = await context.read()
        except TimeoutError as error:
            raise UnfinishedError("the request", limits.REQUEST_SECONDS_MAX) from error
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
