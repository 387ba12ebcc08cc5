"""A service with asyncio, until SIGTERM."""

from __future__ import annotations

import asyncio
import logging

from msgbroker.client import Message, MessageCenter
from tests.chaos.shop.handling import SLOW_SECONDS, handled, ready
from tests.chaos.shop.orders import PLACED, POINTS, TOPIC, Order

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
center = MessageCenter()


@center.subscriber(group=POINTS, topic=TOPIC, event_code=PLACED)
async def add_points(order: Order, message: Message) -> None:
    """Handle an order."""
    with handled(order, message):
        await asyncio.sleep(SLOW_SECONDS if order.kind == "slow" else 0.001)


async def main() -> None:
    """Run until it is told to stop."""
    async with center:
        await center.start()
        ready()
        await center.run()


asyncio.run(main())
