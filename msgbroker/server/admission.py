"""Admission: what the edge checks of a publisher's messages, and the form in which they go on.

Everything that can be known of a message before the transaction is decided here, once: its type, its limits, whether it
is stress traffic, its row and its wire form up to what the commit adds. A message that is refused leaves its neighbours
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from confdb.routes import Headers, Snapshot, StressRule, TopicKind, TopicRoute
from msgbroker.contract import limits, names
from msgbroker.contract.errors import (
    BodyTooLargeError,
    DelayNotSupportedError,
    EventCodeNotFoundError,
    GroupNotFoundError,
    InvalidKeyError,
    InvalidRequestFieldError,
    KindNotSupportedError,
    MessageCenterError,
    NamespaceNotFoundError,
    StressRefusedError,
    TopicClosedError,
    TopicNotFoundError,
)
from msgbroker.engine.stress import is_stress
from msgbroker.server.log_message import NO_HEADERS, LogMessage
from msgbroker.server.wire import delivery_suffix
from msgbroker.v1 import message_pb2
from msgdb.copy_rows import row_prefix, row_tail
from msgdb.outcome import Refused

# A character is four bytes at most: below this, a key's size in bytes need not be counted.
_KEY_CHARS_SAFE: Final = limits.KEY_BYTES_MAX // 4
_HEADER_CHARS_SAFE: Final = limits.HEADERS_BYTES_MAX // 4
_TYPES_MAX: Final = 4_096
_BORN_AT_US_MAX: Final = 4_102_444_800_000_000  # 2100


@dataclass(frozen=True, slots=True)
class Origin:
    """Who publishes: the same for all frames of a stream."""

    namespace: str
    publisher_group: str
    born_host: str


@dataclass(slots=True)
class _AdmittedType:
    """What a message type means for this origin, worked out once per snapshot."""

    route: TopicRoute
    prefix: bytes


@dataclass(frozen=True, slots=True)
class Admitted:
    """A frame after admission."""

    messages: list[LogMessage]
    refusals: tuple[Refused, ...]


def check_origin(snapshot: Snapshot, origin: Origin) -> None:
    """Raise an InvalidRequestError or a NotFoundError where the origin is malformed or not known."""
    # The shape first: what is not a name at all is never repeated in full.
    names.check_namespace(origin.namespace)
    if origin.publisher_group:
        names.check_group(origin.publisher_group)
    if origin.namespace not in snapshot.namespaces:
        raise NamespaceNotFoundError(origin.namespace)
    if origin.publisher_group and (origin.namespace, origin.publisher_group) not in snapshot.publisher_groups:
        raise GroupNotFoundError(origin.namespace, origin.publisher_group, "publisher")
    if len(origin.born_host) > limits.HOST_CHARS_MAX or "\0" in origin.born_host:
        raise InvalidRequestFieldError("born_host", f"must have {limits.HOST_CHARS_MAX} characters at most, no NUL")


class Admission:
    """Checks the frames of one origin."""

    def __init__(
        self,
        origin: Origin,
        snapshot: Callable[[], Snapshot],
        learn_event_code: Callable[[TopicRoute, str], None],
    ) -> None:
        self._origin = origin
        self._snapshot = snapshot
        self._learn_event_code = learn_event_code
        self._routed_by: Snapshot | None = None
        self._types: dict[tuple[str, str], _AdmittedType] = {}
        self._stress_rules: tuple[StressRule, ...] = ()
        self._suffixes = {
            stress: delivery_suffix(origin.publisher_group, origin.born_host, stress=stress) for stress in (False, True)
        }

    def admit(self, messages: Sequence[message_pb2.Message], now_us: int) -> Admitted:
        """Return the frame's messages ready to be stored, and what was refused of it.

        Raises whatever says that the origin is no longer known.
        """
        self._follow_snapshot()
        admitted: list[LogMessage] = []
        refusals: list[Refused] = []
        for index, message in enumerate(messages):
            try:
                ready = self._admit_one(message, now_us)
            except MessageCenterError as error:
                refusals.append(Refused(index, error.reason, error.status, error.message, error.facts))
            else:
                admitted.append(ready)
        return Admitted(admitted, tuple(refusals))

    def _admit_one(self, message: message_pb2.Message, now_us: int) -> LogMessage:
        event_code = message.event_code
        admitted_type = self._types.get((message.topic, event_code)) or self._admit_type(message.topic, event_code)
        route = admitted_type.route
        body = message.body
        if len(body) > route.body_bytes_max:
            raise BodyTooLargeError(route.name, len(body), route.body_bytes_max)
        if message.deliver_at_us:
            raise DelayNotSupportedError(route.name)
        key = message.key
        if key:
            _check_key("key", key)
        ordering_key = message.ordering_key
        if ordering_key:
            _check_key("ordering key", ordering_key)
        headers = NO_HEADERS
        headers_json = b""
        stress = False
        if message.headers:
            if len(message.headers) > limits.HEADERS_MAX:
                names.check_headers(message.headers)
            headers = Headers(message.headers)
            _check_headers(headers)
            headers_json = orjson.dumps(headers)
            stress = is_stress(headers, self._stress_rules)
            if stress and route.stress_refused:
                raise StressRefusedError(route.name)
        born_at_us = message.born_at_us
        if not 0 < born_at_us < _BORN_AT_US_MAX:
            if born_at_us:
                raise InvalidRequestFieldError("born_at_us", "must be microseconds since 1970, before the year 2100")
            born_at_us = message.born_at_us = now_us
        return LogMessage(
            route,
            event_code,
            headers,
            ordering_key or key,
            message.SerializeToString(),
            self._suffixes[stress],
            row_tail(admitted_type.prefix, key, ordering_key, headers_json, born_at_us, body, stress=stress),
            stress=stress,
        )

    def _follow_snapshot(self) -> None:
        snapshot = self._snapshot()
        if snapshot is self._routed_by:
            return
        check_origin(snapshot, self._origin)
        self._routed_by = snapshot
        self._types.clear()
        self._stress_rules = snapshot.stress_rules.get(self._origin.namespace, ())

    def _admit_type(self, topic: str, event_code: str) -> _AdmittedType:
        """Return what the type means, or raise why it is refused. Only good answers are remembered."""
        assert self._routed_by is not None
        names.check_topic(topic)
        names.check_event_code(event_code)
        route = self._routed_by.topics.get((self._origin.namespace, topic))
        if route is None:
            raise TopicNotFoundError(self._origin.namespace, topic)
        if route.is_closed:
            raise TopicClosedError(topic)
        if route.kind is not TopicKind.NORMAL:
            raise KindNotSupportedError("topic kind", route.kind, "NORMAL")
        if event_code not in route.event_codes:
            if not route.is_open:
                raise EventCodeNotFoundError(topic, event_code)
            self._learn_event_code(route, event_code)
        origin = self._origin
        admitted_type = _AdmittedType(
            route, row_prefix(origin.namespace, topic, event_code, origin.born_host, origin.publisher_group)
        )
        if len(self._types) >= _TYPES_MAX:
            # An open topic has as many event codes as its publishers think of.
            self._types.clear()
        self._types[topic, event_code] = admitted_type
        return admitted_type


def _check_key(kind: str, key: str) -> None:
    if len(key) > _KEY_CHARS_SAFE:
        names.check_key(kind, key)
    elif "\0" in key:
        raise InvalidKeyError(kind, "contains a NUL character")


def _check_headers(headers: dict[str, str]) -> None:
    # One look at all of it where it is clearly small; the exact rules, with their exact words, where it is not.
    joined = "".join((*headers, *headers.values()))
    if len(headers) > limits.HEADERS_MAX or len(joined) > _HEADER_CHARS_SAFE or "\0" in joined or "" in headers:
        names.check_headers(headers)
