"""Messages that are stored once more, for one group alone: what was given up on, or asked for again.

They keep their ids and all that their publishers said. Nothing of admission is asked again: they were taken once, and
what has changed since, the topic's limits or its stress rules, is no reason to withhold what a group should have had.
"""

from __future__ import annotations

from typing import Final, Protocol

import orjson

from confdb.routes import Headers, TopicRoute
from msgbroker.server.log.encoding import delivery_suffix, targeted_suffix
from msgbroker.server.log.message import NO_HEADERS, TargetedMessage
from msgbroker.server.log.stored_rows import StoredContent, content_of
from msgdb.append.copy_rows import Target, row_middle, row_prefix

REDRIVES_MAX: Final = 32_767
"""How often a message may be redriven: what its column holds."""


class StoredBefore(StoredContent, Protocol):
    """A message as the log has it, or a dead letter has it."""

    @property
    def message_id(self) -> bytes:
        """The id that it keeps."""

    @property
    def namespace(self) -> str:
        """The namespace of its topic."""

    @property
    def born_host(self) -> str | None:
        """Where it was published from."""

    @property
    def publisher_group(self) -> str | None:
        """Who published it."""

    @property
    def stress(self) -> bool:
        """Whether it was marked as stress traffic: that is not asked again."""


def stored_again(stored: StoredBefore, route: TopicRoute, target: Target) -> TargetedMessage:
    """Return the message as it is to be stored for *target* alone, in its topic's queues as they are now."""
    key, ordering_key, headers = stored.key or "", stored.ordering_key or "", stored.headers
    suffix = delivery_suffix(stored.publisher_group or "", stored.born_host or "", stress=stored.stress)
    message = TargetedMessage(
        route,
        stored.event_code,
        Headers(headers) if headers else NO_HEADERS,
        ordering_key or key,
        content_of(stored),
        targeted_suffix(suffix, target.redrives),
        row_middle(
            row_prefix(
                stored.namespace, stored.topic, stored.event_code, stored.born_host or "", stored.publisher_group or ""
            ),
            key,
            ordering_key,
            orjson.dumps(headers) if headers else b"",
            born_at_us=stored.born_at_us,
            body_bytes=len(stored.body),
            stress=stored.stress,
            target=target,
        ),
        stored.body,
        stress=stored.stress,
    )
    message.target_group = target.group_id
    message.message_id = stored.message_id
    message.redrives = target.redrives
    return message
