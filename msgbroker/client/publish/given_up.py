"""What is said of messages that are given up before they are answered: each may be stored, or is not for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from msgbroker.client.values.texts import text_of
from msgbroker.contract.errors import MessageCenterError


def given_up(error: MessageCenterError, *, may_be_stored: bool) -> MessageCenterError:
    """Return *error* with the fate of a message, in words and as the fact `may_be_stored`."""
    fate = "was sent and may be stored" if may_be_stored else "was not sent"
    told = error.again()
    told.message = f"{error.message}: the message {fate}"
    told.args = (told.message,)
    told.facts = {**error.facts, "may_be_stored": may_be_stored}
    return told


def broken_by(error: BaseException) -> MessageCenterError:
    """Return what is told to those who wait where a mistake of ours has ended the publisher."""
    return MessageCenterError(f"the publisher has ended: {type(error).__name__}: {text_of(error)}")


def fail(waiters: Iterable[asyncio.Future[Any]], error: MessageCenterError) -> bool:
    """Let those who still wait hear of *error*, each with one of its own; return whether anybody did."""
    is_heard = False
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error.again())
            is_heard = True
    return is_heard
