"""The client's only translation from the wire: gRPC errors and refusals become the errors of the contract."""

from __future__ import annotations

import json
from typing import Any, Final

import grpc

from msgbroker.client.connect.unreachable import at_broker, unavailable
from msgbroker.contract.errors import MessageCenterError, UnavailableCause, from_wire
from msgbroker.v1 import message_pb2

REASON_KEY: Final = "msgcenter-reason"
MESSAGE_KEY: Final = "msgcenter-message"
FACTS_KEY: Final = "msgcenter-facts-bin"

# What gRPC itself says when a broker went away, in whatever way it went.
_LOST: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)


def from_rpc_error(error: grpc.aio.AioRpcError, address: str) -> MessageCenterError:
    """Return what a failed call means: the broker's own error, or that the broker at *address* is out of reach."""
    told = dict(error.trailing_metadata() or ())
    status: grpc.StatusCode = error.code()
    details = error.details() or status.name
    if REASON_KEY in told:
        message = told.get(MESSAGE_KEY) or details
        return from_wire(_text(told[REASON_KEY]), status.name, _text(message), _facts(told.get(FACTS_KEY)))
    if status is grpc.StatusCode.UNIMPLEMENTED:
        words = f"it speaks gRPC, and is no broker, or one too old for this client ({details}); check host and port"
        return unavailable(address, words, UnavailableCause.NOT_A_BROKER)
    if status in _LOST:
        is_late = status is grpc.StatusCode.DEADLINE_EXCEEDED
        cause = UnavailableCause.TIMEOUT if is_late else UnavailableCause.LOST
        words = "no answer in time" if is_late else "connection lost"
        return unavailable(address, f"{words}: {details}", cause)
    return from_wire(status.name, status.name, at_broker(address, details), {"address": address})


def from_refusal(refusal: message_pb2.Refusal) -> MessageCenterError:
    """Return the error that a refusal of a message or a frame tells of."""
    return from_wire(refusal.reason, refusal.status, refusal.message, dict(refusal.facts), retryable=refusal.retryable)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _facts(encoded: Any) -> dict[str, str]:
    if not isinstance(encoded, bytes):
        return {}
    try:
        facts = json.loads(encoded)
    except ValueError:
        # Facts only decorate an error; a broken decoration must not hide it.
        return {}
    return {str(name): str(value) for name, value in facts.items()} if isinstance(facts, dict) else {}
