"""What is logged of a message that a handler was called with, or should have been."""

from __future__ import annotations

import logging

from msgbroker.client.handle.handed import HandedMessage
from msgbroker.client.values.log_lines import log_line
from msgbroker.client.values.texts import text_of
from msgbroker.client.values.verdicts import Verdict


def keys_of(group: str, message: HandedMessage) -> dict[str, object]:
    """Return the keys of a line about a message in that group: its name and place, never what is in it."""
    return {
        "group": group,
        "topic": message.topic,
        "event_code": message.event_code,
        "message_id": str(message.message_id),
        "attempt": message.attempt,
    }


def log_failure(group: str, message: HandedMessage, failure: BaseException) -> None:
    """Log that a handler has raised, with its traceback."""
    log_line(logging.WARNING, "handler.failed", "", failure, **keys_of(group, message))


def log_rejection(group: str, message: HandedMessage, verdict: Verdict) -> None:
    """Log that *message* is a dead letter of that group from now on, and why: nobody else may look there."""
    if verdict.is_unreadable:
        # The publisher and the handler do not agree on the body. Nobody has decided that, so it is a warning.
        level, event = logging.WARNING, "handler.body_not_read"
    else:
        level, event = logging.INFO, "handler.rejected"
    # The verdict may be one of the user's own making.
    log_line(level, event, text_of(verdict.error), **keys_of(group, message))
