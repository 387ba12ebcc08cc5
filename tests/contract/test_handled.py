"""What a broker says of handlers that will get nothing, and of registrations that contradict what is registered."""

from __future__ import annotations

import pytest

from confdb.services import ConfigService
from msgbroker.client import Message, MessageCenter
from msgbroker.server.app import Broker


async def test_an_instance_is_told_which_of_its_handlers_get_nothing(
    config: ConfigService, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async with MessageCenter(broker.address) as center:
        await center.register("TP", "EC", group="SG")
        await center.register("TP", "EC_OTHER")
        await center.register("TP_ALL", "EC")
        await center.register("TP_ALL", "*", group="SG")

        async def handle(message: Message) -> None: ...

        for topic, event_code in [
            ("TP", "EC"),
            ("TP", "*"),
            ("TP", "EC_OTHER"),
            ("TP", "EC_TYPO"),
            ("TP_TYPO", "EC"),
            ("TP_ALL", "EC"),
            ("TP_ALL", "EC_TYPO"),
        ]:
            center.subscriber(group="SG", topic=topic, event_code=event_code)(handle)
        await center.start()

    told = {
        record.args[1:3]: vars(record)["reason"]
        for record in caplog.records
        if isinstance(record.args, tuple) and "gets nothing" in record.message
    }
    assert told == {
        ("TP", "EC_OTHER"): "SUBSCRIPTION_NOT_FOUND",
        ("TP", "EC_TYPO"): "EVENT_CODE_NOT_FOUND",
        ("TP_TYPO", "EC"): "TOPIC_NOT_FOUND",
        ("TP_ALL", "EC_TYPO"): "EVENT_CODE_NOT_FOUND",
    }
