"""A client of fake brokers that loses no time: it reconnects at once, and gives up soon."""

from __future__ import annotations

from typing import Any

from msgbroker.client import MessageCenter
from tests.support.fake_broker import FakeBroker


def center_of(*brokers: FakeBroker, **options: Any) -> MessageCenter:
    """Return a center that knows these brokers; *options* win."""
    quick = {"backoff_initial_seconds": 0.001, "connect_timeout_seconds": 0.5, "drain_timeout_seconds": 0.5}
    return MessageCenter([broker.address for broker in brokers], **{**quick, **options})
