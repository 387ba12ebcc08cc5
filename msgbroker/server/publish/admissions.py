"""Admissions of all publishers of one front door: each stream has one of its own, calls of one origin share one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from confdb.routes import Snapshot, TopicRoute
from msgbroker.server.publish.admission import Admission, ParsedMessage, check_origin
from msgbroker.server.publish.admitted_types import Origin
from msgbroker.server.publish.known_types import KnownTypes

OF_CALLS_MAX: Final = 256
"""How many origins of single calls are remembered: whoever calls again need not have its types worked out anew."""


class Admissions:
    """Makes admissions for origins that are known, and keeps those that single calls share."""

    def __init__(
        self,
        *,
        snapshot: Callable[[], Snapshot],
        learn_event_code: Callable[[TopicRoute, str], None],
        parse: Callable[[bytes, int], ParsedMessage],
    ) -> None:
        """Make the admissions of a front door; *parse* is its decoder, for messages that are not in the usual form."""
        self._snapshot = snapshot
        self._learn_event_code = learn_event_code
        self._parse = parse
        self._known = KnownTypes()
        self._of_calls: dict[Origin, Admission] = {}

    def for_stream(self, origin: Origin) -> Admission:
        """Return an admission for one stream. Raises what `check_origin` does."""
        check_origin(self._snapshot(), origin)
        return Admission(
            origin,
            snapshot=self._snapshot,
            learn_event_code=self._learn_event_code,
            parse=self._parse,
            known=self._known,
        )

    def for_call(self, origin: Origin) -> Admission:
        """Return the admission of all single calls of that origin. Raises what `check_origin` does."""
        known = self._of_calls.get(origin)
        if known is not None:
            return known
        made = self.for_stream(origin)
        if len(self._of_calls) >= OF_CALLS_MAX:
            self.forget_calls()
        self._of_calls[origin] = made
        return made

    def forget_calls(self) -> None:
        """Let calls begin anew: the configuration has changed, or too many origins are remembered."""
        for admission in self._of_calls.values():
            admission.forget()
        self._of_calls.clear()
