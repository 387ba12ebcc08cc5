"""Ours → wire: the one place where an error becomes a gRPC status, or a refusal inside an answer.

A status carries the standard details (`google.rpc.ErrorInfo`, and `RetryInfo` where there is a hint) for every
language, and the same facts as plain trailing metadata for clients without the googleapis types. Whatever is refused,
the refusal arrives: long texts are cut until the metadata is as small as every client's gRPC takes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeAlias

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from msgbroker.contract.errors import MessageCenterError, ResourceExhaustedError, UnavailableError, from_wire
from msgbroker.v1 import message_pb2
from msgdb.append.outcome import Refused

ERROR_DOMAIN: Final = "msgcenter"

METADATA_BYTES_MAX: Final = 7_000
"""gRPC takes 8 KiB by default, with what it adds itself. Of more the caller hears that it was too much, and not what
was refused."""
_CUT_CHARS_MAX: Final = 1_024
_ENTRY_OVERHEAD_BYTES: Final = 32
"""HTTP/2 counts so much for each name with its value, beside their own bytes."""
_NOT_ESCAPED: Final = bytes({*range(0x20, 0x7F)} - {ord("%")})

Context = grpc.aio.ServicerContext[Any, Any]
Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]


def refusal_of(error: MessageCenterError) -> message_pb2.Refusal:
    """Return *error* as part of an answer."""
    return message_pb2.Refusal(
        reason=error.reason,
        message=error.message,
        facts=error.facts_text,
        status=error.status,
        retryable=error.retryable,
    )


def refusal_of_stored(refused: Refused) -> message_pb2.Refusal:
    """Return what was recorded of a refusal as part of an answer."""
    error = from_wire(refused.reason, refused.status, refused.message, refused.facts)
    return refusal_of(error)


async def abort_with(context: Context, error: MessageCenterError) -> NoReturn:
    """End the call with *error*."""
    text, metadata = status_of(error)
    await context.abort(grpc.StatusCode[error.status], text, metadata)
    raise AssertionError("abort returned")


def status_of(error: MessageCenterError) -> tuple[str, Metadata]:
    """Return the text and the trailing metadata that tell of *error*: all of it, if that is not too much."""
    text, facts, chars_max = error.message, error.facts_text, _CUT_CHARS_MAX
    while True:
        metadata = _trailing_metadata(error, text, facts)
        if _size_bytes(text, metadata) <= METADATA_BYTES_MAX:
            return text, metadata
        text = _cut(error.message, chars_max)
        facts = {name: _cut(fact, chars_max) for name, fact in error.facts_text.items()}
        chars_max //= 2


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[:chars_max]}..."


def _size_bytes(text: str, metadata: Metadata) -> int:
    """Return what a status costs on its way: its text with what is not plain ASCII escaped, binary values in base64."""
    encoded = text.encode(errors="replace")
    size_bytes = len(encoded) + 2 * len(encoded.translate(None, _NOT_ESCAPED))
    for name, value in metadata:
        value_bytes = len(value) if isinstance(value, str) else 4 * -(-len(value) // 3)
        size_bytes += len(name) + value_bytes + _ENTRY_OVERHEAD_BYTES
    return size_bytes


def _trailing_metadata(error: MessageCenterError, text: str, facts: Mapping[str, str]) -> Metadata:
    info = ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN, metadata=facts)
    details = [_packed(info)]
    metadata: list[tuple[str, str | bytes]] = [
        ("msgcenter-reason", error.reason),
        ("msgcenter-facts-bin", json.dumps(facts).encode()),
    ]
    hint_seconds = error.retry_after_seconds if isinstance(error, ResourceExhaustedError | UnavailableError) else None
    if hint_seconds is not None:
        delay_ms = int(hint_seconds * 1_000)
        delay = Duration(seconds=delay_ms // 1_000, nanos=delay_ms % 1_000 * 1_000_000)
        details.append(_packed(RetryInfo(retry_delay=delay)))
        metadata.append(("grpc-retry-pushback-ms", str(delay_ms)))
    status = Status(code=grpc.StatusCode[error.status].value[0], message=text, details=details)
    metadata.append(("grpc-status-details-bin", status.SerializeToString()))
    return tuple(metadata)


def _packed(detail: ErrorInfo | RetryInfo) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(detail)
    return packed
