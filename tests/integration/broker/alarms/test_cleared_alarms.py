"""Alarms whose cause is gone go as well, and one that goes takes no other one along."""

from __future__ import annotations

import pytest

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.contract.errors import MessageCenterError
from msgbroker.server.app import Broker
from msgdb.store import MessageStore
from tests.support.alarms import alarm_of, no_alarm, refuse_messages
from tests.support.collecting import PAID, register_topic


async def test_the_alarm_of_a_topic_that_is_deleted_is_cleared(
    trade: ConfigService, broker: Broker, message_store: MessageStore
) -> None:
    await register_topic(trade, "TP_ODD")
    await trade.wait_until_active((await trade.topics.update("default", "TP_ODD", description="x")).version)
    await refuse_messages(message_store, "TP_ODD")
    async with MessageCenter(broker.address, publish_timeout_seconds=2.0) as center:
        with pytest.raises(MessageCenterError):
            await center.publish("TP_ODD", PAID, "cannot be stored")
    await alarm_of(message_store, "TOPIC_SET_ASIDE")
    # The operator gives up on it.
    await trade.wait_until_active((await trade.topics.delete("default", "TP_ODD")).version)
    await no_alarm(message_store)


async def test_topics_of_one_name_in_two_namespaces_have_an_alarm_each(
    trade: ConfigService, broker: Broker, message_store: MessageStore
) -> None:
    await trade.namespaces.create("tenant")
    for namespace in ("default", "tenant"):
        await trade.topics.create(namespace, "TP_ODD")
        version = (await trade.event_codes.add(namespace, "TP_ODD", PAID)).version
    await trade.wait_until_active(version)
    await refuse_messages(message_store, "TP_ODD")
    for namespace in ("default", "tenant"):
        async with MessageCenter(broker.address, namespace=namespace, publish_timeout_seconds=2.0) as center:
            with pytest.raises(MessageCenterError):
                await center.publish("TP_ODD", PAID, "cannot be stored")
    await alarm_of(message_store, "TOPIC_SET_ASIDE")
    standing = [alarm for alarm in broker.alarms.standing if alarm.kind == "TOPIC_SET_ASIDE"]
    assert len({alarm.topic_id for alarm in standing}) == 2
