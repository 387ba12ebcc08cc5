"""`create --if-not-exists`: done is done, and what is there but not as it was asked for is refused."""

from __future__ import annotations

import pytest

from tests.integration.msgconsole.cli.conftest import Msgcenter

TOPIC = ("topic", "create", "TP_TRADE")
CODE = ("event-code", "create", "TP_TRADE", "EC_PAID")
GROUP = ("group", "create", "SG_POINTS")
PUBLISHERS = ("group", "create", "PG_SHOP", "--publisher")
SUBSCRIPTION = ("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID")
EXPRESSION = ("--expression", 'headers.region == "hz"')


@pytest.fixture
def trade(msgcenter: Msgcenter) -> None:
    """Register one of each, with settings."""
    for arguments in (
        (*TOPIC, "--queues", "8"),
        CODE,
        (*GROUP, "--retry-schedule", "1,2.5"),
        PUBLISHERS,
        (*SUBSCRIPTION, *EXPRESSION),
    ):
        assert msgcenter(*arguments, "--if-not-exists", "--json").json["created"] is True


@pytest.mark.usefixtures("trade")
@pytest.mark.parametrize(
    "arguments, said",
    [
        (TOPIC, "Topic TP_TRADE exists already."),
        ((*TOPIC, "--queues", "8"), "Topic TP_TRADE exists already."),
        (CODE, "Event code TP_TRADE/EC_PAID exists already."),
        (("event-code", "add", "TP_TRADE", "EC_PAID"), "Event code TP_TRADE/EC_PAID exists already."),
        (GROUP, "Subscriber group SG_POINTS exists already."),
        ((*GROUP, "--retry-schedule", "1,2.5", "--attempts-max", "3"), "Subscriber group SG_POINTS exists already."),
        (PUBLISHERS, "Publisher group PG_SHOP exists already."),
        (
            (*SUBSCRIPTION, *EXPRESSION),
            "The subscription of SG_POINTS to TP_TRADE/EC_PAID exists already, and is active.",
        ),
    ],
)
def test_what_is_there_as_it_was_asked_for_is_done(msgcenter: Msgcenter, arguments: tuple[str, ...], said: str) -> None:
    done = msgcenter(*arguments, "--if-not-exists")
    assert (done.status, done.out) == (0, f"{said}\n")
    told = msgcenter(*arguments, "--if-not-exists", "--json").json
    assert told["created"] is False
    assert told["config_version"] > 0
    without = msgcenter(*arguments)
    assert without.status == 1
    assert without.err.endswith("is registered already (ALREADY_REGISTERED)\n")


@pytest.mark.usefixtures("trade")
@pytest.mark.parametrize(
    "arguments, difference",
    [
        ((*TOPIC, "--queues", "4"), "topic 'TP_TRADE' is registered already with queue count 8, not 4"),
        ((*TOPIC, "--open", "--body-bytes-max", "9000"), "with body bytes max 8192, not 9000, is open no, not yes"),
        ((*TOPIC, "--description", "Trade"), "with description '', not 'Trade'"),
        ((*GROUP, "--retry-schedule", "1,3"), "with retry schedule seconds 1 2.5, not 1 3"),
        ((*GROUP, "--retry-schedule", "none"), "with retry schedule seconds 1 2.5, not none"),
        ((*GROUP, "--ack-timeout-seconds", "30"), "with ack timeout seconds 60, not 30"),
        ((*PUBLISHERS, "--description", "Shop"), "with description '', not 'Shop'"),
        (SUBSCRIPTION, "with 'headers.region == \"hz\"', not with no expression"),
        ((*SUBSCRIPTION, "--expression", "true"), "with 'headers.region == \"hz\"', not with 'true'"),
    ],
)
def test_what_is_there_with_other_settings_is_refused_with_the_difference(
    msgcenter: Msgcenter, arguments: tuple[str, ...], difference: str
) -> None:
    refused = msgcenter(*arguments, "--if-not-exists")

    assert (refused.status, refused.out) == (1, "")
    assert difference in refused.err


@pytest.mark.usefixtures("trade", "running_broker")
def test_a_subscription_that_began_later_is_not_one_from_the_beginning(msgcenter: Msgcenter) -> None:
    from_beginning = (*SUBSCRIPTION, *EXPRESSION, "--from-beginning", "--if-not-exists")
    assert msgcenter(*from_beginning).status == 0, "nothing was stored before it"
    assert msgcenter("subscription", "delete", "SG_POINTS", "TP_TRADE", "EC_PAID").status == 0
    assert msgcenter("publish", "TP_TRADE", "EC_PAID", "x").status == 0
    assert msgcenter(*SUBSCRIPTION, *EXPRESSION).status == 0

    refused = msgcenter(*from_beginning)
    assert refused.status == 1
    assert "with a later start, not from the beginning (ALREADY_REGISTERED)" in refused.err


def test_it_does_not_hide_that_something_else_is_missing(msgcenter: Msgcenter) -> None:
    refused = msgcenter(*CODE, "--if-not-exists")

    assert (refused.status, "(TOPIC_NOT_FOUND)" in refused.err) == (1, True)
