"""Admission: what the edge checks of a publisher's messages, and the form in which they go on.

Everything that can be known of a message before the transaction is decided here, once: its type, its limits, whether it
is stress traffic, its row and its wire form up to what the commit adds. A message that is refused leaves its neighbours
alone.

What is in the form that encoders write is read here. Anything else is for the protocol's own decoder, which the edge
hands in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from confdb.routes import Headers, NotUnderstood, Snapshot, StressRule, TopicRoute
from msgbroker.contract import limits, names
from msgbroker.contract.errors import (
    BodyTooLargeError,
    DelayNotSupportedError,
    GroupNotFoundError,
    InvalidKeyError,
    InvalidRequestFieldError,
    MessageCenterError,
    NamespaceNotFoundError,
    StressRefusedError,
)
from msgbroker.engine.stress import is_stress
from msgbroker.server.alarms.not_understood import refusal
from msgbroker.server.log.encoding import delivery_suffix
from msgbroker.server.log.message import HEADER_OVERHEAD_BYTES, NO_HEADERS, LogMessage
from msgbroker.server.log.message_scan import Fields, scan
from msgbroker.server.publish.admitted_types import AdmittedType, AdmittedTypes, Origin
from msgbroker.server.publish.known_types import KnownTypes
from msgdb.append.copy_rows import row_middle
from msgdb.append.outcome import Refused

# A character is four bytes at most: below this, a key's size in bytes need not be counted.
_KEY_CHARS_SAFE: Final = limits.KEY_BYTES_MAX // 4
_HEADER_CHARS_SAFE: Final = limits.HEADERS_BYTES_MAX // 4
_SHOWN_CHARS_MAX: Final = 40
_REFUSAL_BYTES: Final = 1_024
"""What a refusal takes in memory, with its words and facts."""
_BORN_AT_US_MAX: Final = 4_102_444_800_000_000  # 2100


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """What a message says, in whatever form it came."""

    topic: str
    event_code: str
    key: str
    ordering_key: str
    headers: Mapping[str, str]
    body: bytes
    born_at_us: int
    deliver_at_us: int
    content: bytes
    """All of it, in the form that encoders write."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """What admission made of a frame: the messages to be stored, and the refusals."""

    messages: list[LogMessage]
    refusals: tuple[Refused, ...]
    more_bytes: int = 0
    """What it costs in memory beside what its messages cost at least."""


def refused(index: int, error: MessageCenterError) -> Refused:
    """Return the refusal of a frame's message, as it is stored with the frame."""
    return Refused(index, reason=error.reason, status=error.status, message=error.message, facts=error.facts_text)


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
    """Decides of each message of one publisher whether it may be stored, by the snapshot of that moment."""

    def __init__(
        self,
        origin: Origin,
        *,
        snapshot: Callable[[], Snapshot],
        learn_event_code: Callable[[TopicRoute, str], None],
        parse: Callable[[bytes, int], ParsedMessage],
        known: KnownTypes | None = None,
    ) -> None:
        """Make an admission. *parse* reads a message that is not in the usual form, born now if it says no time."""
        self._parse = parse
        self._origin = origin
        self._snapshot = snapshot
        self._headers = 0
        self._routed_by: Snapshot | None = None
        self._types = AdmittedTypes(origin, learn_event_code=learn_event_code, known=known or KnownTypes())
        self._last_type: AdmittedType | None = None
        self.topic_ids: set[int] = set()
        """The topics of the last frame, and perhaps that of the message before it."""
        self._stress_rules: tuple[StressRule, ...] = ()
        self._unknown_stress_headers: Mapping[str, NotUnderstood] = {}
        self._suffixes = {
            stress: delivery_suffix(origin.publisher_group, origin.born_host, stress=stress) for stress in (False, True)
        }

    def admit(self, encoded: bytes, spans: Sequence[tuple[int, int]], now_us: int) -> Admitted:
        """Return the messages that lie at *spans* ready to be stored, and what was refused of them.

        Raises whatever says that the origin is no longer known.
        """
        self._follow_snapshot()
        self.topic_ids = {self._last_type.route.topic_id} if self._last_type is not None else set()
        self._headers = 0
        admitted: list[LogMessage] = []
        refusals: list[Refused] = []
        view = memoryview(encoded)
        for index, (start, end) in enumerate(spans):
            try:
                ready = self._admit_one(encoded, view, start, end, now_us)
            except MessageCenterError as error:
                refusals.append(refused(index, error))
            else:
                admitted.append(ready)
        more_bytes = self._headers * HEADER_OVERHEAD_BYTES + len(refusals) * _REFUSAL_BYTES
        return Admitted(admitted, tuple(refusals), more_bytes)

    def _admit_one(self, encoded: bytes, view: memoryview, start: int, end: int, now_us: int) -> LogMessage:
        admitted_type = self._last_type
        if admitted_type is None or not encoded.startswith(admitted_type.wire, start):
            admitted_type = self._types.at(encoded, start)
            if admitted_type is not None:
                self.topic_ids.add(admitted_type.route.topic_id)
        fields = scan(encoded, start + len(admitted_type.wire), end) if admitted_type is not None else None
        if admitted_type is None or fields is None:
            return self._admit_parsed(encoded[start:end], now_us)
        self._last_type = admitted_type
        return self._made(admitted_type, fields, view, encoded[start:end])

    def _admit_parsed(self, encoded: bytes, now_us: int) -> LogMessage:
        """Admit a message that is not in the usual form."""
        message = self._parse(encoded, now_us)
        admitted_type = self._types.admit(message.topic, message.event_code)
        self.topic_ids.add(admitted_type.route.topic_id)
        if message.deliver_at_us:
            raise DelayNotSupportedError(admitted_type.route.name)
        if len(message.headers) > limits.HEADERS_MAX:
            names.check_headers(message.headers)
        headers = dict(message.headers)
        fields = message.key, message.ordering_key, headers, 0, len(message.body), message.born_at_us
        return self._made(admitted_type, fields, message.body, message.content)

    def _made(
        self, admitted_type: AdmittedType, fields: Fields, within: bytes | memoryview, content: bytes
    ) -> LogMessage:
        """Return the message, if nothing speaks against it. Its body lies in *within*, where *fields* say."""
        key, ordering_key, said_headers, body_start, body_end, born_at_us = fields
        body = within[body_start:body_end]
        route = admitted_type.route
        if len(body) > route.body_bytes_max:
            raise BodyTooLargeError(route.name, len(body), route.body_bytes_max)
        if key:
            _check_key("key", key)
        if ordering_key:
            _check_key("ordering key", ordering_key)
        headers = NO_HEADERS
        headers_json = b""
        stress = False
        if said_headers:
            headers = Headers(said_headers)
            _check_headers(headers)
            self._headers += len(headers)
            headers_json = orjson.dumps(headers)
            stress = is_stress(headers, self._stress_rules)
            if self._unknown_stress_headers and not stress:
                self._check_stress_known(headers)
            if stress and route.stress_refused:
                raise StressRefusedError(route.name)
        if not 0 < born_at_us < _BORN_AT_US_MAX:
            raise InvalidRequestFieldError("born_at_us", "must be microseconds since 1970, before the year 2100")
        return LogMessage(
            route,
            admitted_type.event_code,
            headers,
            ordering_key or key,
            content,
            self._suffixes[stress],
            row_middle(
                admitted_type.row_prefix,
                key,
                ordering_key,
                headers_json,
                born_at_us=born_at_us,
                body_bytes=len(body),
                stress=stress,
            ),
            body,
            stress=stress,
        )

    def _follow_snapshot(self) -> None:
        snapshot = self._snapshot()
        if snapshot is self._routed_by:
            return
        check_origin(snapshot, self._origin)
        self.forget()
        self._routed_by = snapshot
        self._types.follow(snapshot)
        self._stress_rules = snapshot.stress_rules.get(self._origin.namespace, ())
        self._unknown_stress_headers = snapshot.unknown_stress_headers.get(self._origin.namespace, {})

    def forget(self) -> None:
        """Remember nothing of the configuration: it has changed, or nothing more is admitted.

        Who publishes nothing for long would keep a whole configuration in memory that everybody else has left behind.
        """
        self._types.forget()
        self._last_type = None
        self._routed_by = None
        self._stress_rules = ()
        self._unknown_stress_headers = {}

    def _check_stress_known(self, headers: Headers) -> None:
        """Raise NotUnderstoodError where a rule that is not understood may say that this is stress traffic."""
        for header in self._unknown_stress_headers.keys() & headers.keys():
            raise refusal(f"stress rule for header {header[:_SHOWN_CHARS_MAX]}", self._unknown_stress_headers[header])


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
