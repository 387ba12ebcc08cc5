"""The gate of unary calls: how many are answered at a time, and of how many the request is being read.

A call announces itself before its message: gRPC takes that in when somebody waits for it. So the handlers read it
themselves, so many at a time, and who does not send keeps no others from being read or from having a place
(`unread`). What may wait for long once it is read has places of its own. An answer counts as outgoing until gRPC
has taken it over: a client may not read it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from msgbroker.contract.errors import InvalidRequestFieldError, MessageCenterError
from msgbroker.server.deliver.outgoing import Outgoing
from msgbroker.server.edge.calls.ending import end_at_once, when_ended
from msgbroker.server.edge.calls.places import Place, Places
from msgbroker.server.edge.calls.sending_in_time import sent_in_time
from msgbroker.server.edge.calls.unread import UnreadCall, UnreadCalls
from msgbroker.server.edge.refusals import Context, abort_with

DecodedT = TypeVar("DecodedT")
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

READING_MAX: Final = 64
"""So many requests are read at a time; of the largest ones that is 32 MiB."""
_SMALL_ANSWER_BYTES: Final = 2_048
"""An answer that is no larger is not counted: a call costs more than that anyway."""


def _nothing() -> None:
    """Let every call be read: the check where none was given."""


class CallGate:
    """Makes handlers of unary calls, which have a place and a turn before their request is read."""

    def __init__(self, places: Places, outgoing: Outgoing, reading_max: int = READING_MAX) -> None:
        self.places = places
        self._outgoing = outgoing
        self._unread = UnreadCalls(reading_max)

    def unary(
        self,
        decode: Callable[[bytes], DecodedT],
        answer: Callable[[DecodedT, Context], Awaitable[Message]],
        check: Callable[[], None] = _nothing,
        waits_in: Places | None = None,
    ) -> Handler:
        """Return the handler of a unary call.

        *check* may refuse it before its request is read. From then on it has a place in *waits_in*, if that is given.
        """

        async def read_and_answer(_: object, context: Context) -> bytes:
            try:
                place = self._enter(context)
                check()
                request = decode(await self._read(context, place))
                if waits_in is not None:
                    place.change_to(waits_in)
            except MessageCenterError as error:
                await abort_with(context, error)
            return self._on_its_way((await answer(request, context)).SerializeToString(), context)

        # To a client there is no difference; but here the request is not read before the handler asks for it.
        return grpc.stream_unary_rpc_method_handler(read_and_answer)

    def _enter(self, context: Context) -> Place:
        """Give the call a place, until its answer is on its way or given up."""
        if self.places.are_full:
            self._unread.make_place_for(context.peer())
        place = Place(self.places)
        when_ended(context, place.leave)
        return place

    async def _read(self, context: Context, place: Place) -> bytes:
        async with (
            sent_in_time("the request") as sending,
            self._unread.turn(UnreadCall(context.peer(), place, sending)),
        ):
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
