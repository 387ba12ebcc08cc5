"""A day that is away and was not dropped: its messages are waited for, and nothing of them is passed over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from confdb.services import ConfigService
from msgbroker.client import MessageCenter, OutgoingMessage
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, TOPIC, register_group, register_topic, subscribed
from tests.support.eventually import eventually


async def test_a_lane_does_not_pass_messages_of_a_day_that_is_away_for_a_while(
    config: ConfigService, start_broker: StartBroker, message_store: MessageStore
) -> None:
    first = await start_broker()
    await register_topic(config, queue_count=1)
    await register_group(config)
    async with MessageCenter(first.address) as center:
        await center.publish_many([OutgoingMessage(TOPIC, PAID, str(number)) for number in range(10)])
    await first.shut_down()
    day = datetime.now(UTC).date() - timedelta(days=1)
    yesterday = f"message_p{day:%Y%m%d}"
    async with message_store.connection() as conn:
        await conn.execute("UPDATE message SET stored_at = stored_at - interval '1 day' WHERE queue_offset < 5")
        await conn.execute(f"ALTER TABLE message DETACH PARTITION {yesterday}")

    broker = await start_broker()
    async with subscribed(broker.address, GROUP) as points:
        await eventually(lambda: broker.alarms.standing, 20, what="the alarm")
        async with message_store.connection() as conn:
            row = await (await conn.execute("SELECT start_offset FROM queue")).fetchone()
            assert row == (0,), "nothing was dropped"
            bounds = f"FROM ('{day} 00:00:00+00') TO ('{day + timedelta(days=1)} 00:00:00+00')"
            await conn.execute(f"ALTER TABLE message ATTACH PARTITION {yesterday} FOR VALUES {bounds}")
        await eventually(lambda: len(set(points.bodies)) == 10, 70, what=f"all ten; there are {points.bodies}")
