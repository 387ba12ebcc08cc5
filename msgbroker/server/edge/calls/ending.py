"""The end of a call: brought about at once, ahead of what is on its way to a client that does not read; and noticed.

grpc.aio ends a call by sending its status, which goes behind whatever waits to be sent: a client that reads nothing
keeps its call, and our memory, for as long as it likes, and what waits is delivered to it all the same should it begin
to read. gRPC's core can cancel a call, which drops what waits, and the blocking API has a method for it; grpc.aio has
none. It hands its call to gRPC's binding only to ask who the peer is, and there we find it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import grpc
import structlog
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # it has no stubs

from msgbroker.contract.errors import MessageCenterError

log = structlog.get_logger(__name__)

_ASKED: Final = "peer_identities"
"""The name of the binding's function that a context calls with its call."""


Context = grpc.aio.ServicerContext[Any, Any]


def when_ended(context: Context, act: Callable[[], None]) -> None:
    """Call *act* once the call has ended, its answer taken over by gRPC or given up."""
    context.add_done_callback(lambda _: act())  # type: ignore[arg-type]  # the stubs ask for a class of their own


async def write(context: Context, response: object) -> None:
    """Write *response*. Where the call has ended its handler is cancelled, which is what gRPC does a moment later."""
    try:
        await context.write(response)
    except grpc.aio.InternalError as error:
        # Let through, gRPC would log it with all its frames: for each client that went away without reading to the end.
        raise asyncio.CancelledError from error


def end_at_once(context: Context, error: MessageCenterError) -> bool:
    """End the call with *error*, and drop what is on its way; return whether that could be done.

    The client gets status and text, but no trailing metadata: so the reason is in the text. The handler is cancelled.
    """
    status = grpc.StatusCode[error.status].value[0]
    text = f"{error.reason}: {error.message}"
    is_ended = False

    def cancel(call: Any) -> None:
        nonlocal is_ended
        # Whatever it raised here would leave the binding with a call it frees twice.
        try:
            call.cancel(status, text)
            is_ended = True
        except Exception:
            log.exception("call.not_ended", reason=error.reason)

    asked = getattr(cygrpc, _ASKED)
    # Nothing else runs in between: no await, and no other thread serves calls.
    setattr(cygrpc, _ASKED, cancel)
    try:
        context.peer_identities()
    finally:
        setattr(cygrpc, _ASKED, asked)
    return is_ended
