"""A row of msgdb, made into what the broker hands out."""

from __future__ import annotations

from confdb.routes import Headers
from msgbroker.server.log_message import NO_HEADERS, LogMessage
from msgbroker.server.wire import delivery_suffix, seal
from msgbroker.v1 import message_pb2
from msgdb.log import MessageRow


def message_of_row(row: MessageRow) -> LogMessage:
    """Return the message of a row, as it was when it was committed."""
    content = message_pb2.Message(
        topic=row.topic,
        event_code=row.event_code,
        key=row.key or "",
        ordering_key=row.ordering_key or "",
        headers=row.headers or {},
        body=row.body,
        born_at_us=row.born_at_us,
    ).SerializeToString()
    message = LogMessage(
        None,
        row.event_code,
        Headers(row.headers) if row.headers else NO_HEADERS,
        row.ordering_key or row.key or "",
        content,
        delivery_suffix(row.publisher_group or "", row.born_host or "", stress=row.stress),
        b"",
        b"",
        stress=row.stress,
    )
    message.queue_id = row.queue_id
    message.queue_offset = row.queue_offset
    message.target_group = row.target_group
    seal((message,), (row.message_id,), row.stored_at_us)
    return message
