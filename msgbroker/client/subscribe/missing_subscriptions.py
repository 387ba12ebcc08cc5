"""Says so when a handler's message type will never arrive: a typo would be silent for ever otherwise."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from msgbroker.contract.errors import EventCodeNotFoundError, NotUnderstoodError, TopicNotFoundError
from msgbroker.v1 import subscriber_pb2

log = logging.getLogger("msgbroker.client")

_ADVICE: Final = {
    TopicNotFoundError.reason: "the topic is not registered: check the spelling, or register topic and subscription",
    EventCodeNotFoundError.reason: (
        "the topic has no such event code: check the spelling, or register event code and subscription"
    ),
}
_SUBSCRIBE: Final = "the group is not subscribed to it: check the spelling, or create the subscription"


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
            log.warning(
                "group %s gets nothing of topic %s, event code %s for now: this broker's version does not understand"
                " how it is configured (`msgcenter alarm list` says more)",
                self._group,
                missing.topic,
                missing.event_code,
                extra={"reason": missing.reason},
            )
            return
        log.warning(
            "group %s gets nothing of topic %s, event code %s: %s"
            " (`msgcenter subscription create %s %s %s`, or `register=True` in development)",
            self._group,
            missing.topic,
            missing.event_code,
            _ADVICE.get(missing.reason, _SUBSCRIBE),
            self._group,
            missing.topic,
            "'*'" if missing.event_code == "*" else missing.event_code,
            extra={"reason": missing.reason},
        )
