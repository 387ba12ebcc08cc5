"""What the handlers of both services have in common: they look for what must not be, and note what they have done."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from msgbroker.client import Message, Reject
from tests.chaos.shop.orders import Order

SLOW_SECONDS = 2.5
"""More than twice the ack timeout of the groups."""
_current: ContextVar[int] = ContextVar("current")
_running: set[int] = set()


@contextmanager
def handled(order: Order, message: Message) -> Iterator[None]:
    """Surround the handling of an order."""
    before = _current.get(None)
    if before is not None:
        say(f"SURPRISE: order {order.number} sees the context of order {before}")
    if order.number in _running:
        say(f"SURPRISE: order {order.number} is handled twice at once")
    _current.set(order.number)
    _running.add(order.number)
    try:
        if order.kind == "never":
            raise Reject("nobody can")
        if order.kind == "flaky" and message.attempt == 1:
            raise ConnectionError("the bank does not answer")
        yield
    finally:
        _running.discard(order.number)
    say(f"HANDLED {order.number} {message.message_id} {message.attempt}")


def ready() -> None:
    """Tell that handlers run from here on."""
    say(f"READY {os.getpid()}")


def say(line: str) -> None:
    """Say it in one piece: many threads do."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())
