"""What a broker says of handlers that will get nothing, and of registrations that contradict what is registered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from confdb.services import ConfigService
from msgbroker.client import (
    ExpressionTooCostlyError,
    InvalidExpressionError,
    InvalidNameError,
    Message,
    MessageCenter,
    SubscriptionDiffersError,
)
from msgbroker.client.handle.handlers import SubscriberOptions
from msgbroker.client.testing import InMemoryCenter
from msgbroker.server.app import Broker, BrokerSettings, open_broker


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
        (vars(record)["topic"], vars(record)["event_code"]): vars(record)["reason"]
        for record in caplog.records
        if record.getMessage().startswith("subscription.not_found: ")
    }
    assert told == {
        ("TP", "EC_OTHER"): "SUBSCRIPTION_NOT_FOUND",
        ("TP", "EC_TYPO"): "EVENT_CODE_NOT_FOUND",
        ("TP_TYPO", "EC"): "TOPIC_NOT_FOUND",
        ("TP_ALL", "EC_TYPO"): "EVENT_CODE_NOT_FOUND",
    }


@pytest.fixture(params=["memory", "broker"])
async def center(request: pytest.FixtureRequest) -> AsyncIterator[MessageCenter]:
    """Return a center that lets clients register."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            yield await stack.enter_async_context(InMemoryCenter())
            return
        url = request.getfixturevalue("database_url")
        settings = BrokerSettings.load(
            msgdb_url=url, confdb_url=url, listen="127.0.0.1:0", client_registration=True, drain_seconds=2.0
        )
        broker = await stack.enter_async_context(open_broker(settings))
        yield await stack.enter_async_context(MessageCenter(broker.address))


@pytest.mark.parametrize(
    "registered, wanted", [("headers.a == 'x'", "headers.a == 'y'"), ("", "true"), ("headers.a == 'x'", "")]
)
async def test_registering_with_another_expression_is_refused(
    center: MessageCenter, registered: str, wanted: str
) -> None:
    await center.register("TP", "EC", group="SG", expression=registered)

    assert await center.register("TP", "EC", group="SG", expression=registered) == []
    with pytest.raises(SubscriptionDiffersError) as refused:
        await center.register("TP", "EC", group="SG", expression=wanted)
    assert not refused.value.retryable
    assert refused.value.registered == registered
    assert refused.value.wanted == wanted
    assert (registered or "no expression") in refused.value.message
    assert (wanted or "no expression") in refused.value.message


async def test_a_refusal_with_long_texts_arrives_and_shows_where_they_differ(center: MessageCenter) -> None:
    shops = ",".join(f'"上海市黄浦区商店{number:03}"' for number in range(270))
    registered, wanted = (f"headers.shop in [{shops}] && headers.{name} == 'x'" for name in ("city", "town"))
    await center.register("TP", "EC", group="SG", expression=registered)

    with pytest.raises(SubscriptionDiffersError, match=r"SG.*headers\.city.*headers\.town") as refused:
        await center.register("TP", "EC", group="SG", expression=wanted)
    assert not refused.value.retryable
    assert "headers.city" in refused.value.registered
    assert "headers.town" in refused.value.wanted
    with pytest.raises(InvalidExpressionError, match="undeclared reference to 'aaa"):
        await center.register("TP", "EC", group="SG_OTHER", expression="a" * 4_096)


@pytest.mark.parametrize(
    "event_code, group, expression",
    [
        ("no good", "SG", ""),
        ("EC", "no good", ""),
        ("EC", "SG", "headers.a =="),
        ("EC", "SG", "headers.exists(a, headers.exists(b, a == b))"),
    ],
)
async def test_a_registration_that_is_refused_leaves_nothing_behind(
    center: MessageCenter, event_code: str, group: str, expression: str
) -> None:
    with pytest.raises((InvalidNameError, InvalidExpressionError, ExpressionTooCostlyError)):
        await center.register("TP", event_code, group=group, expression=expression)

    assert len(await center.register("TP", "EC", group="SG")) == 4


async def test_an_expression_that_reads_a_header_unasked_is_registered_with_a_warning(
    center: MessageCenter, caplog: pytest.LogCaptureFixture
) -> None:
    await center.register("TP", "EC", group="SG", expression='headers.region != "hz"')
    # A repeat registers nothing, and is as much of a surprise.
    await center.register("TP", "EC", group="SG", expression='headers.region != "hz"')

    first, second = (record.getMessage() for record in caplog.records if record.name == "msgbroker.client")
    assert first == second
    assert first.startswith(
        "subscription.warned_about: group=SG topic=TP event_code=EC: the expression reads headers.region "
    )
    assert '`"region" in headers && ...`' in first


async def test_a_subscriber_that_registers_is_warned_of_its_expression(
    center: MessageCenter, caplog: pytest.LogCaptureFixture
) -> None:
    options: SubscriberOptions = {"group": "SG", "topic": "TP", "register": True, "expression": "!(headers.a == 'x')"}

    @center.subscriber(**options)
    async def handle(message: Message) -> None: ...

    await center.start()

    assert [record.levelname for record in caplog.records if "reads headers.a " in record.getMessage()] == ["WARNING"]


@pytest.mark.parametrize("expression", ["headers.a == 'x'", "'a' in headers && headers.a != 'x'", ""])
async def test_an_expression_that_means_what_it_says_is_registered_without_a_warning(
    center: MessageCenter, caplog: pytest.LogCaptureFixture, expression: str
) -> None:
    assert await center.register("TP", "EC", group="SG", expression=expression)

    assert [record for record in caplog.records if record.name == "msgbroker.client"] == []
