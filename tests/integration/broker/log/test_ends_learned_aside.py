"""A queue's end that is learned on the side, as by a claim, is news for all groups that read the queue here."""

from __future__ import annotations

from confdb.services import ConfigService
from msgbroker.server.app import Broker
from msgdb.store import MessageStore
from tests.support.collecting import GROUP, register_group, register_topic, subscribed
from tests.support.eventually import eventually
from tests.support.rows import put_messages

OTHER = "SG_STOCK"


async def test_what_another_broker_stored_reaches_all_groups_whoever_learns_of_it_first(
    config: ConfigService, broker: Broker, message_store: MessageStore
) -> None:
    await register_topic(config, queue_count=1)
    for group in (GROUP, OTHER):
        await register_group(config, group)
    async with subscribed(broker.address) as points, subscribed(broker.address, OTHER) as stock:
        await eventually(lambda: len(list(broker.hub.lanes())) == 2, what="a lane of each group")
        (queue_id,) = broker.hub.queues_read()
        # As if another broker had stored them, whose word of it was lost.
        async with message_store.connection() as conn:
            await put_messages(conn, queue_id, range(3))

        # As a claim asks for it: nobody tells what came of that.
        await broker.hub.cache.refresh_ends([queue_id])

        assert len(await points.until(3)) == len(await stock.until(3)) == 3
