"""What tests of two brokers look at."""

from __future__ import annotations

from msgbroker.client import MessageCenter, OutgoingMessage
from msgbroker.server.app import Broker
from tests.support.collecting import (
    PAID,
    TOPIC,
)


def lanes(broker: Broker) -> set[int]:
    return {queue_id for group in broker.hub.groups.values() for queue_id in group.lanes}


async def publish(address: str, count: int, first: int = 0) -> None:
    async with MessageCenter(address) as center:
        out = [OutgoingMessage(TOPIC, PAID, str(n), key=str(n)) for n in range(first, first + count)]
        answers = await center.publish_many(out)
    assert not [answer for answer in answers if isinstance(answer, Exception)]
