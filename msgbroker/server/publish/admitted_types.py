"""What message types mean for one origin, by the configuration of the moment: worked out once, and remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confdb.routes import Snapshot, TopicRoute
from msgbroker.contract import names
from msgbroker.contract.errors import EventCodeNotFoundError, TopicClosedError, TopicNotFoundError
from msgbroker.server.alarms.not_understood import check_topic_served
from msgbroker.server.log.message_fields import type_fields
from msgbroker.server.log.message_scan import type_end, type_in
from msgbroker.server.publish.known_types import KnownTypes
from msgdb.append.copy_rows import row_prefix


@dataclass(frozen=True, slots=True)
class Origin:
    """Who publishes: the same for all frames of a stream."""

    namespace: str
    publisher_group: str
    born_host: str


@dataclass(frozen=True, slots=True)
class AdmittedType:
    """What a message type means for this origin, worked out once per snapshot."""

    route: TopicRoute
    event_code: str
    row_prefix: bytes
    wire: bytes
    """The bytes that every message of this type begins with on its way to subscribers."""


class AdmittedTypes:
    """The types that an origin's messages have had. Only good answers are remembered, and a bounded number of them."""

    def __init__(
        self, origin: Origin, *, learn_event_code: Callable[[TopicRoute, str], None], known: KnownTypes
    ) -> None:
        self._origin = origin
        self._learn_event_code = learn_event_code
        self._known = known
        self._topics: Mapping[tuple[str, str], TopicRoute] = {}
        self._types: dict[bytes, AdmittedType] = {}
        """By what a message of the type begins with."""

    def __len__(self) -> int:
        return len(self._types)

    def follow(self, snapshot: Snapshot) -> None:
        """Go by another configuration, after `forget`."""
        self._topics = snapshot.topics

    def forget(self) -> None:
        """Remember nothing, not even the configuration."""
        self._topics = {}
        self._forget_types()

    def at(self, encoded: bytes, start: int) -> AdmittedType | None:
        """Return the type of the message at *start*, or None where it does not begin with one as encoders write it."""
        end = type_end(encoded, start)
        wire = encoded[start:end]
        admitted_type = self._types.get(wire)
        if admitted_type is None and end:
            said = type_in(wire)
            if said is not None:
                admitted_type = self.admit(*said)
        return admitted_type

    def admit(self, topic: str, event_code: str) -> AdmittedType:
        """Return what the type means, or raise why it is refused. Only good answers are remembered."""
        wire = type_fields(topic, event_code)
        known = self._types.get(wire)
        if known is not None:
            return known
        names.check_topic(topic)
        names.check_event_code(event_code)
        route = self._topics.get((self._origin.namespace, topic))
        if route is None:
            raise TopicNotFoundError(self._origin.namespace, topic)
        if route.is_closed:
            raise TopicClosedError(topic)
        check_topic_served(route)
        if event_code not in route.event_codes:
            if not route.is_open:
                raise EventCodeNotFoundError(topic, event_code)
            self._learn_event_code(route, event_code)
        origin = self._origin
        prefix = row_prefix(origin.namespace, topic, event_code, origin.born_host, origin.publisher_group)
        if not self._known.has_room(len(self._types)):
            # An open topic has as many event codes as its publishers think of.
            self._forget_types()
        self._known.count += 1
        admitted_type = self._types[wire] = AdmittedType(route, event_code, prefix, wire)
        return admitted_type

    def _forget_types(self) -> None:
        self._known.count -= len(self._types)
        self._types.clear()
