"""What is said of messages that become dead letters at once: whoever runs the subscriber sees them in its own log."""

from __future__ import annotations

import logging
from typing import Final

from msgbroker.client.values.message import Message
from msgbroker.client.values.texts import text_of
from msgbroker.client.values.verdicts import Verdict

log = logging.getLogger("msgbroker.client")

_UNREADABLE: Final = "handler.unreadable"
"""The publisher and this handler do not agree on the body: nobody has decided that, so it is a warning."""
_REJECTED: Final = "handler.rejected"
"""The handler has decided it."""


def log_rejection(group: str, message: Message, verdict: Verdict) -> None:
    """Log that *message* is a dead letter of that group from now on, and why."""
    level, said = (logging.WARNING, _UNREADABLE) if verdict.is_unreadable else (logging.INFO, _REJECTED)
    log.log(
        level,
        "%s: group=%s topic=%s event_code=%s message_id=%s: %s",
        said,
        group,
        message.topic,
        message.event_code,
        message.message_id,
        # The verdict may be one of the user's own making.
        text_of(verdict.error),
        extra={"message_id": str(message.message_id)},
    )
