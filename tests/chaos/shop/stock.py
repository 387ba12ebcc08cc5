"""A service that blocks, with handlers in threads, until SIGTERM."""

from __future__ import annotations

import logging
import time

from msgbroker.client import Message, SyncMessageCenter
from tests.chaos.shop.handling import SLOW_SECONDS, handled, ready
from tests.chaos.shop.orders import PLACED, STOCK, TOPIC, Order

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
center = SyncMessageCenter()


@center.subscriber(group=STOCK, topic=TOPIC, event_code=PLACED, concurrency=16)
def reserve(order: Order, message: Message) -> None:
    """Handle an order."""
    with handled(order, message):
        time.sleep(SLOW_SECONDS if order.kind == "slow" else 0.001)


with center:
    center.start()
    ready()
    center.run()
