"""Deliveries, encoded by hand: pieces around the bytes that the publisher sent, joined per response.

A message is encoded once, when it is committed, and the same pieces go to every group. protobuf's own encoder would
copy each body once more per group and message. `tests/unit/server` holds these bytes against the generated classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgbroker.contract.varint import varint
from msgbroker.server.log.message import LogMessage, Wire
from msgbroker.server.log.message_fields import text_field

# Field numbers and wire types of msgbroker/v1/subscriber.proto, as tags.
_RESPONSE_BATCHES: Final = b"\x0a"
_BATCH_QUEUE_ID: Final = b"\x08"
_BATCH_EPOCH: Final = b"\x10"
_BATCH_DELIVERIES: Final = b"\x1a"
_BATCH_SUSPECT: Final = b"\x20\x01"
_DELIVERY_MESSAGE: Final = b"\x0a"
_DELIVERY_QUEUE_OFFSET: Final = b"\x10"
_DELIVERY_MESSAGE_ID: Final = b"\x1a\x10"
_DELIVERY_STORED_AT: Final = b"\x20"
_DELIVERY_STRESS: Final = b"\x28\x01"
_DELIVERY_PUBLISHER_GROUP: Final = b"\x32"
_DELIVERY_BORN_HOST: Final = b"\x3a"
_DELIVERY_ATTEMPT: Final = b"\x40"
_DELIVERY_REDRIVES: Final = b"\x48"
_DELIVERY_REPLAYED: Final = b"\x50\x01"


def delivery_suffix(publisher_group: str, born_host: str, *, stress: bool) -> bytes:
    """Return the fields of a Delivery that all messages of one publisher share."""
    suffix = _DELIVERY_STRESS if stress else b""
    for tag, value in ((_DELIVERY_PUBLISHER_GROUP, publisher_group), (_DELIVERY_BORN_HOST, born_host)):
        if value:
            suffix += text_field(tag, value)
    return suffix


def targeted_suffix(suffix: bytes, redrives: int) -> bytes:
    """Return *suffix* for a message that comes to one group alone: redriven so often, or else replayed."""
    return suffix + (_DELIVERY_REDRIVES + varint(redrives) if redrives else _DELIVERY_REPLAYED)


def stamp(messages: Iterable[LogMessage], message_ids: Iterable[bytes], stored_at_us: int) -> None:
    """Fill in what the commit decided, and encode each message as all streams will carry it."""
    stored_at = _DELIVERY_STORED_AT + varint(stored_at_us)
    for message, message_id in zip(messages, message_ids, strict=True):
        content = message.content
        tail = b"".join(
            (
                _DELIVERY_QUEUE_OFFSET,
                varint(message.queue_offset),
                _DELIVERY_MESSAGE_ID,
                message_id,
                stored_at,
                message.suffix,
            )
        )
        content_bytes = len(content)
        size = varint(content_bytes)
        delivery_bytes = 1 + len(size) + content_bytes + len(tail)
        head = b"".join((_BATCH_DELIVERIES, varint(delivery_bytes), _DELIVERY_MESSAGE, size))
        message.wire = (head, content, tail)
        message.wire_bytes = len(head) + content_bytes + len(tail)
        message.stored_at_us = stored_at_us
        # It is stored, and may stay in memory for a while: what it came in need not.
        message.row_middle = message.body = message.suffix = b""


def delivery_of(wire: Wire) -> bytes:
    """Return the encoded Delivery inside a message's `wire`."""
    joined = b"".join(wire)
    at = 1
    while joined[at] & 0x80:
        at += 1
    return joined[at + 1 :]


def with_attempt(wire: Wire, attempt: int) -> Wire:
    """Return a message's `wire` for a later attempt than the first."""
    delivery = delivery_of(wire)
    mark = _DELIVERY_ATTEMPT + varint(attempt)
    return (_BATCH_DELIVERIES, varint(len(delivery) + len(mark)), delivery, mark)


def batch_head(queue_id: int, epoch: int, wires_bytes: int, *, is_suspect: bool = False) -> bytes:
    """Return what comes before a batch's wires in an encoded SubscribeResponse.

    Responses may be joined, and their batches then follow each other: so a response is one join of heads and wires.
    """
    lane = b"".join((_BATCH_QUEUE_ID, varint(queue_id), _BATCH_EPOCH, varint(epoch)))
    if is_suspect:
        lane += _BATCH_SUSPECT
    return b"".join((_RESPONSE_BATCHES, varint(len(lane) + wires_bytes), lane))
