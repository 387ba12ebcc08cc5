"""A message in a broker's memory: made once when it is admitted (or read back), shared by all groups.

What depends on its place in the log is filled in by the commit. `wire` is then, in pieces, the message exactly as every
subscriber stream carries it; no group encodes it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from confdb.routes import TopicRoute
from msgbroker.engine.tracing import DRAWS

MESSAGE_OVERHEAD_BYTES: Final = 512
"""What a message costs in memory beside its encoded content: its objects, its encoded place, its header names."""

HEADER_OVERHEAD_BYTES: Final = 150
"""What each header costs in memory beside its encoded content."""
WIRE_OVERHEAD_BYTES: Final = 256
"""What the encoded delivery of a message costs in memory beside its bytes."""

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})

Wire: TypeAlias = tuple[bytes, ...]
"""The pieces of one encoded delivery, to be joined as it is sent."""


class LogMessage:
    """A message from its admission until it leaves. Made for every message, so it is plain and slotted."""

    __slots__ = (
        "body",
        "content",
        "event_code",
        "headers",
        "held_bytes",
        "ordering_key",
        "queue_id",
        "queue_offset",
        "route",
        "row_middle",
        "size_bytes",
        "stored_at_us",
        "stress",
        "suffix",
        "target_group",
        "trace_draw",
        "wire",
        "wire_bytes",
    )

    def __init__(  # noqa: PLR0917 - made for every message: names would cost 0.09 us of each
        self,
        route: TopicRoute | None,
        event_code: str,
        headers: Mapping[str, str],
        ordering_key: str,
        content: bytes,
        suffix: bytes,
        row_middle: bytes,
        body: bytes | memoryview,
        *,
        stress: bool,
    ) -> None:
        self.route = route
        """The topic it was admitted to, until it is stored."""
        self.event_code = event_code
        self.headers = headers
        self.ordering_key = ordering_key
        self.content = content
        """The publisher's `Message`, encoded."""
        self.suffix = suffix
        """The fields of Delivery that do not depend on the commit, encoded."""
        self.row_middle = row_middle
        self.body = body
        """A part of the frame it came in, until it is stored."""
        self.stress = stress
        self.target_group: int | None = None
        self.trace_draw = DRAWS
        """What tells, with its topic's rate, whether it is traced (`engine/tracing.py`)."""
        self.size_bytes = len(content)
        """How many bytes it counts on its way to a subscriber."""
        self.held_bytes = self.size_bytes + MESSAGE_OVERHEAD_BYTES
        """How many bytes it counts in memory."""
        if headers:
            self.held_bytes += len(headers) * HEADER_OVERHEAD_BYTES
        self.queue_id = 0
        self.queue_offset = -1
        self.stored_at_us = 0
        self.wire: Wire = ()
        self.wire_bytes = 0


class TargetedMessage(LogMessage):
    """A message that is stored once more, for one group alone, under the id that it had: redriven or replayed."""

    __slots__ = ("message_id", "redrives")

    message_id: bytes
    redrives: int
    """How often it was redriven; 0: it is replayed."""
