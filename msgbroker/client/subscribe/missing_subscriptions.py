"""Says so when a handler's message type will never arrive: a typo would be silent for ever otherwise."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from msgbroker.client.values.log_lines import log_line
from msgbroker.contract.errors import EventCodeNotFoundError, NotUnderstoodError, TopicNotFoundError
from msgbroker.contract.names import ANY_EVENT_CODE
from msgbroker.v1 import subscriber_pb2

_CAUSES: Final = {
    TopicNotFoundError.reason: "the topic is not registered: check the spelling, or register topic and subscription",
    EventCodeNotFoundError.reason: (
        "the topic has no such event code: check the spelling, or register event code and subscription"
    ),
}
_NOT_SUBSCRIBED: Final = "the group is not subscribed to it: check the spelling, or create the subscription"
_NOT_UNDERSTOOD: Final = (
    "the group gets nothing of it for now: this broker's version does not understand how it is configured "
    "(`msgcenter alarm list` says more)"
)


class MissingSubscriptions:
    """What the broker says one group is not subscribed to; warns of each message type once."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._known: set[tuple[str, str]] = set()

    def take(self, missing: Iterable[subscriber_pb2.MissingSubscription]) -> None:
        """Warn of what is missing and was not before; the broker looks anew at each attachment."""
        missing_now = set()
        for each in missing:
            message_type = (each.topic, each.event_code)
            missing_now.add(message_type)
            if message_type not in self._known:
                self._warn(each)
        self._known = missing_now

    def _warn(self, missing: subscriber_pb2.MissingSubscription) -> None:
        if missing.reason == NotUnderstoodError.reason:
            # Nothing to be done here: it waits, and comes once a broker does.
            event, sentence = "subscription.not_understood", _NOT_UNDERSTOOD
        else:
            event, sentence = "subscription.not_found", f"the group gets nothing of it: {self._advice(missing)}"
        log_line(
            logging.WARNING,
            event,
            sentence,
            group=self._group,
            topic=missing.topic,
            event_code=missing.event_code,
            reason=missing.reason,
        )

    def _advice(self, missing: subscriber_pb2.MissingSubscription) -> str:
        cause = _CAUSES.get(missing.reason, _NOT_SUBSCRIBED)
        event_code = "'*'" if missing.event_code == ANY_EVENT_CODE else missing.event_code
        command = f"msgcenter subscription create {self._group} {missing.topic} {event_code}"
        return f"{cause} (`{command}`, or `register=True` in development)"
