"""Ours → wire: the one place where an error becomes a gRPC status, or a refusal inside an answer.

A status carries the standard details (`google.rpc.ErrorInfo`, and `RetryInfo` where there is a hint) for every
language, and the same facts as plain trailing metadata for clients without the googleapis types.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from msgbroker.contract.errors import MessageCenterError, from_wire
from msgbroker.v1 import message_pb2
from msgdb.outcome import Refused

ERROR_DOMAIN: Final = "msgcenter"

Context = grpc.aio.ServicerContext[Any, Any]


def refusal_of(error: MessageCenterError) -> message_pb2.Refusal:
    """Return *error* as part of an answer."""
    return message_pb2.Refusal(
        reason=error.reason,
        message=error.message,
        facts=error.facts,
        status=error.status,
        retryable=error.retryable,
    )


def refusal_of_stored(refused: Refused) -> message_pb2.Refusal:
    """Return what was recorded of a refusal as part of an answer."""
    error = from_wire(refused.reason, refused.status, refused.message, refused.facts)
    return refusal_of(error)


async def abort_with(context: Context, error: MessageCenterError) -> NoReturn:
    """End the call with *error*."""
    code = grpc.StatusCode[error.status]
    await context.abort(code, error.message, _trailing_metadata(error, code))
    raise AssertionError("abort returned")


def _trailing_metadata(error: MessageCenterError, code: grpc.StatusCode) -> tuple[tuple[str, str | bytes], ...]:
    info = ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN, metadata=error.facts)
    details = [_packed(info)]
    metadata: list[tuple[str, str | bytes]] = [
        ("msgcenter-reason", error.reason),
        ("msgcenter-facts-bin", json.dumps(error.facts).encode()),
    ]
    hint = error.facts.get("retry_after_seconds")
    if hint is not None:
        delay_ms = int(float(hint) * 1_000)
        delay = Duration(seconds=delay_ms // 1_000, nanos=delay_ms % 1_000 * 1_000_000)
        details.append(_packed(RetryInfo(retry_delay=delay)))
        metadata.append(("grpc-retry-pushback-ms", str(delay_ms)))
    status = Status(code=code.value[0], message=error.message, details=details)
    metadata.append(("grpc-status-details-bin", status.SerializeToString()))
    return tuple(metadata)


def _packed(detail: ErrorInfo | RetryInfo) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(detail)
    return packed
