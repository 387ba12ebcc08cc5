"""What the command line says of expressions: that one may surprise, and how often one failed."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.integration.msgconsole.cli.conftest import Msgcenter
from tests.support.eventually import eventually_blocking

NOT_HZ = ("--expression", 'headers.region != "hz"')
SUBSCRIPTION = ("SG_POINTS", "TP_TRADE", "EC_PAID")


@pytest.fixture
def trade(msgcenter: Msgcenter) -> None:
    """Register a topic with an event code, and a group."""
    for arguments in (
        ("topic", "create", "TP_TRADE"),
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("group", "create", "SG_POINTS"),
    ):
        assert msgcenter(*arguments).status == 0


@pytest.mark.usefixtures("trade")
def test_an_expression_that_reads_a_header_unasked_is_warned_of_on_standard_error(msgcenter: Msgcenter) -> None:
    made = msgcenter("subscription", "create", *SUBSCRIPTION, *NOT_HZ)
    assert (made.status, made.out) == (0, "The subscription of SG_POINTS to TP_TRADE/EC_PAID is active.\n")
    assert made.err.startswith("Warning: the expression reads headers.region without asking whether it is there")
    (warning,) = msgcenter("subscription", "create", *SUBSCRIPTION, *NOT_HZ, "--if-not-exists", "--json").json[
        "warnings"
    ]
    assert warning in made.err


@pytest.mark.usefixtures("trade")
@pytest.mark.parametrize(
    "expression", ['headers.region == "hz" && int(headers.amount) > 100', '"a" in headers && headers.a != "x"', None]
)
def test_what_means_what_it_says_is_not_warned_of(msgcenter: Msgcenter, expression: str | None) -> None:
    asked = ("--expression", expression) if expression else ()
    made = msgcenter("subscription", "create", *SUBSCRIPTION, *asked, "--json")
    assert (made.err, made.json["warnings"]) == ("", [])


@pytest.mark.usefixtures("trade")
def test_a_mistake_in_an_expression_is_answered_with_what_was_meant(msgcenter: Msgcenter) -> None:
    refused = msgcenter("subscription", "create", *SUBSCRIPTION, "--expression", 'region == "hz"')
    assert refused.err.endswith(
        'headers are read as headers.region, and text is written "region" (INVALID_EXPRESSION)\n'
    )


@pytest.mark.usefixtures("trade", "running_broker")
def test_failures_are_shown_with_the_subscription_and_beside_the_lag(msgcenter: Msgcenter, tmp_path: Path) -> None:
    msgcenter("subscription", "create", *SUBSCRIPTION, *NOT_HZ)
    before = msgcenter("subscription", "show", *SUBSCRIPTION, "--json").json
    assert (before["expression"], before["failures"], before["last_failed_header"]) == (NOT_HZ[1], 0, None)
    assert "failures" not in msgcenter("lag").out
    messages = (("x", ()), ("y", ("--header", "region=sh")))
    for body, header in messages:
        assert msgcenter("publish", "TP_TRADE", "EC_PAID", body, *header).status == 0
    got = msgcenter("subscribe", "--group", "SG_POINTS", "--topic", "TP_TRADE", "--count", "1", "--json")
    assert '"body": "y"' in got.out

    shown = eventually_blocking(
        lambda: (found := msgcenter("subscription", "show", *SUBSCRIPTION, "--json").json)["failures"] and found
    )
    assert (shown["failures"], shown["last_failed_header"]) == (1, "region")
    assert "Key not found" in shown["last_error"]
    assert shown["last_failed_at"] is not None
    (row,) = msgcenter("lag", "--group", "SG_POINTS", "--json").json
    assert (row["failures"], row["last_failed_header"]) == (1, "region")
    assert row["last_failed_at"] == shown["last_failed_at"]
    table = msgcenter("lag").out
    assert "last failed header" in table
    assert "region" in table


@pytest.mark.usefixtures("trade")
def test_a_subscription_is_shown_by_its_message_type(msgcenter: Msgcenter, database_url: str) -> None:
    msgcenter("subscription", "create", "SG_POINTS", "TP_TRADE")
    assert "failures" in msgcenter("subscription", "show", "SG_POINTS", "TP_TRADE").out
    missing = msgcenter("subscription", "show", *SUBSCRIPTION)
    assert (missing.status, missing.err.endswith("(SUBSCRIPTION_NOT_FOUND)\n")) == (1, True)
    # Whatever is stored of an earlier subscription of that name is not of this one.
    with psycopg.connect(database_url) as connection:
        connection.execute("INSERT INTO expression_failure VALUES (1, 1000000, 7, 'old', 'old')")
    assert msgcenter("subscription", "show", "SG_POINTS", "TP_TRADE", "--json").json["failures"] == 0
