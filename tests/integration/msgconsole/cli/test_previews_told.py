"""Dry runs of changes of the configuration, as operators type them and read them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.integration.msgconsole.cli.conftest import Msgcenter
from tests.support.message_rows import NOON, StoredMessage, put_rows, run_of

_DAY = timedelta(days=1)
_COSTLY = "headers.exists(a, headers.exists(b, a == b))"


@pytest.fixture
def stored(msgcenter: Msgcenter, topic: str) -> list[StoredMessage]:
    """Store six messages of which a group gets some; return them, the oldest first."""
    for arguments in (
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID", "--expression", 'headers.region == "hz"'),
    ):
        assert msgcenter(*arguments, "--no-wait").status == 0
    headers = [
        {"region": "hz"},
        {"region": "sh"},
        {},
        {"region": "hz", "x-stress-test": "true"},
        {"region": "hz"},
        None,
    ]
    with psycopg.connect(topic) as connection:
        ((topic_id,),) = connection.execute("SELECT topic_id FROM topic").fetchall()
        ((queue_id,),) = connection.execute(
            "SELECT queue_id FROM queue WHERE topic_id = %s ORDER BY ordinal LIMIT 1", (topic_id,)
        ).fetchall()
    rows = [
        StoredMessage(
            queue_id=queue_id,
            queue_offset=at,
            stored_at=NOON - _DAY + timedelta(seconds=at),
            headers=each,
            stress=bool(each and "x-stress-test" in each),
            body=b"x" * (at + 1),
        )
        for at, each in enumerate(headers)
    ]
    put_rows(topic, rows)
    return rows


def test_the_dry_run_of_another_expression_tells_what_the_group_gets_by_it(
    msgcenter: Msgcenter, stored: list[StoredMessage]
) -> None:
    names = ("SG_POINTS", "TP_TRADE", "EC_PAID")
    update = ("subscription", "update", *names, "--expression", 'headers.region != "hz"')

    done = msgcenter(*update, "--dry-run")

    day = f"{NOON - _DAY:%Y-%m-%d}"
    looked_at = f"Of all 6 messages ({day} 12:00:00 to {day} 12:00:05)"
    assert (done.status, done.out.splitlines()) == (
        0,
        [
            'expression: headers.region == "hz" -> headers.region != "hz"',
            f"{looked_at} of TP_TRADE/EC_PAID the group gets 2 now, and would get 1: 0 as now, 1 newly, 2 no longer.",
            "The expression would fail on 2 (of what is missing: region 2), which is no match; now it does on 2.",
            f"Newly, for example: {stored[1].message_id}",
            f"No longer, for example: {stored[4].message_id} {stored[0].message_id}",
            "The expression costs up to 9 of 50,000 steps on a message.",
            "From which offsets on it holds is told once it is done. Nothing was changed.",
        ],
    )
    assert "without asking whether it is there" in done.err
    told = msgcenter(*update, "--dry-run", "--json").json
    assert (told["foretold"]["newly"], told["cost_steps_max"], told["is_all"]) == (1, 50_000, True)
    assert told["foretold"]["no_longer_examples"] == [str(stored[4].message_id), str(stored[0].message_id)]
    assert msgcenter("subscription", "show", *names, "--json").json["expression"] == 'headers.region == "hz"'
    same = msgcenter("subscription", "update", *names, "--resume", "--dry-run")
    assert same.out == "All of it is so already: nothing would change. Nothing was changed.\n"
    costly = ("subscription", "update", *names, "--expression", _COSTLY)
    assert msgcenter(*costly, "--dry-run") == msgcenter(*costly)
    nothing = msgcenter("subscription", "update", *names, "--dry-run")
    assert nothing.status == 2
    assert "nothing to change" in nothing.err


def test_the_dry_run_of_subscribing_tells_what_comes_and_what_is_stored(
    msgcenter: Msgcenter, stored: list[StoredMessage]
) -> None:
    assert msgcenter("group", "create", "SG_STOCK", "--no-wait").status == 0
    create = ("subscription", "create", "SG_STOCK", "TP_TRADE", "EC_PAID", "--from-beginning")

    done = msgcenter(*create, "--dry-run")

    assert done.status == 0, done.err
    assert "the group gets 0 now, and would get 5: 0 as now, 5 newly, 0 no longer." in done.out
    assert "1 more match, and are stress traffic that the group may not see." in done.out
    assert "Of 6 messages that are stored it would be given 6, first of all. 1 of them are stress" in done.out
    assert msgcenter("subscription", "list", "--group", "SG_STOCK").out == "No subscriptions.\n"
    told = msgcenter(*create, "--dry-run", "--json").json
    assert (told["stored"]["selected"], told["by_job"]) == (6, False)
    assert msgcenter(*create, "--no-wait").status == 0
    again = msgcenter(*create, "--dry-run")
    assert (again.status, "ALREADY_REGISTERED" in again.err) == (1, True)
    assert msgcenter(*create, "--dry-run", "--if-not-exists").out.startswith("All of it is so already")
    other = msgcenter(*create, "--dry-run", "--if-not-exists", "--expression", "true")
    assert (other.status, other.out) == (1, "")
    leaving = msgcenter("subscription", "delete", "SG_STOCK", "TP_TRADE", "EC_PAID", "--dry-run")
    assert "would get 0: 0 as now, 0 newly, 5 no longer." in leaving.out
    assert leaving.out.splitlines()[-1].endswith("Nothing was changed.")


def test_the_dry_runs_of_groups_topics_and_stress_traffic_tell_what_they_would_do(
    msgcenter: Msgcenter, stored: list[StoredMessage]
) -> None:
    paused = msgcenter("group", "update", "SG_POINTS", "--pause", "--dry-run")
    assert paused.out.splitlines() == [
        "paused: no -> yes",
        "Connected instances: 0; they hold 0 messages. Behind by 6; 0 wait for another attempt.",
        "Nothing was changed.",
    ]
    fewer = msgcenter("group", "update", "SG_POINTS", "--attempts-max", "2", "--unsettled-max", "5", "--dry-run")
    assert "Instances that hold more than that: 0." in fewer.out
    assert "Messages that wait for another attempt: 0." in fewer.out

    smaller = msgcenter("topic", "update", "TP_TRADE", "--body-bytes-max", "4", "--refuse-stress", "--dry-run")
    assert "3 would be refused, were they published then." in smaller.out
    assert "Groups that are given stress messages of it now: none." in smaller.out
    closed = msgcenter("topic", "update", "TP_TRADE", "--closed", "--queues", "8", "--dry-run")
    assert "TP_TRADE would take no message: 0 came in the last 15 minutes (0.0 a minute)." in closed.out
    assert "4 queues would be sealed and read to their end" in closed.out

    allowed = msgcenter("stress", "allow", "SG_POINTS", "TP_TRADE", "EC_PAID", "--dry-run")
    assert "would get 3: 2 as now, 1 newly, 0 no longer." in allowed.out
    assert "Of 6 messages that it has not settled it would be handed 1." in allowed.out
    rule = msgcenter("stress", "rule", "add", "region", "hz", "--dry-run")
    assert "TP_TRADE: of the newest 6 messages" in rule.out
    assert "2 would be stress traffic and are not now, 0 the other way round." in rule.out
    assert rule.out.splitlines()[-2].split() == ["TP_TRADE", "SG_POINTS", "0", "2"]
    assert msgcenter("audit", "--kind", "group", "--json").json[0]["action"] == "subscriber_group.create"
    for refused in (
        ("group", "update", "SG_NOBODY", "--pause"),
        ("topic", "update", "TP_TRADE", "--queues", "1"),
        ("stress", "disallow", "SG_POINTS", "TP_TRADE"),
        ("stress", "rule", "remove", "region", "hz"),
    ):
        assert msgcenter(*refused, "--dry-run") == msgcenter(*refused)


def put_of_type(url: str, count: int, **changed: Any) -> None:
    """Store messages in the first queue of the topic."""
    with psycopg.connect(url) as connection:
        ((topic_id,),) = connection.execute("SELECT topic_id FROM topic").fetchall()
        ((queue_id,),) = connection.execute(
            "SELECT queue_id FROM queue WHERE topic_id = %s ORDER BY ordinal LIMIT 1", (topic_id,)
        ).fetchall()
    put_rows(url, [replace(each, **changed) for each in run_of(queue_id, count, stored_at=NOON - _DAY)])


@pytest.fixture
def subscribed(msgcenter: Msgcenter, topic: str) -> str:
    """Register a group that subscribes by an expression; return the database's URL."""
    for arguments in (
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID", "--expression", 'headers.region == "hz"'),
    ):
        assert msgcenter(*arguments, "--no-wait").status == 0
    return topic


_UPDATE = ("subscription", "update", "SG_POINTS", "TP_TRADE", "EC_PAID", "--direct", "--dry-run")


def test_of_a_log_that_was_not_looked_through_it_is_not_said_that_it_has_no_message(
    msgcenter: Msgcenter, subscribed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_of_type(subscribed, 2_000, event_code="EC_REFUNDED")
    monkeypatch.setattr("msgconsole.operations.looking.in_log.SECONDS_MAX", 0.0)

    said = msgcenter(*_UPDATE)

    assert "is stored" not in said.out
    assert "Among the newest messages there is none of TP_TRADE/EC_PAID: nothing can be foretold." in said.out
    assert "Incomplete: not all of the log was looked through for TP_TRADE/EC_PAID." in said.err


def test_where_all_are_copies_for_single_groups_it_is_not_said_that_none_is_stored(
    msgcenter: Msgcenter, subscribed: str
) -> None:
    put_of_type(subscribed, 3, target_group=77)

    said = msgcenter(*_UPDATE).out.splitlines()

    assert said[2:4] == [
        "All messages of TP_TRADE/EC_PAID that were looked at are copies for single groups: nothing can be foretold.",
        "3 more were redriven or replayed to single groups: they are not counted.",
    ]


def test_where_evaluating_was_cut_off_what_was_looked_at_is_not_said_to_be_all(
    msgcenter: Msgcenter, subscribed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_of_type(subscribed, 3)
    monkeypatch.setattr("msgconsole.operations.configuration.newest.time", Ticking())

    said = msgcenter(*_UPDATE)

    assert "Of the newest 2 messages (" in said.out
    assert "Incomplete: evaluating took so long" in said.err
    monkeypatch.setattr("msgconsole.operations.configuration.newest.time", Ticking())
    assert msgcenter(*_UPDATE, "--json").json["is_all"] is False


class Ticking:
    """A clock that goes on by two seconds whenever it is looked at."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        """Return the time."""
        self._now += 2.0
        return self._now


def test_a_subscription_from_the_beginning_is_not_said_to_begin_later(msgcenter: Msgcenter, subscribed: str) -> None:
    put_of_type(subscribed, 3)
    assert msgcenter("group", "create", "SG_STOCK", "--no-wait").status == 0
    create = ("subscription", "create", "SG_STOCK", "TP_TRADE", "EC_PAID", "--dry-run")

    from_now = msgcenter(*create).out.splitlines()[-1]
    from_beginning = msgcenter(*create, "--from-beginning").out.splitlines()[-1]

    assert from_now == "It would begin with what is published from then on. Nothing was changed."
    assert (
        from_beginning == "It would begin with what is stored, and go on with what is published. Nothing was changed."
    )


def test_a_rule_for_a_topic_that_refuses_stress_traffic_tells_what_would_be_refused(
    msgcenter: Msgcenter, stored: list[StoredMessage]
) -> None:
    assert msgcenter("topic", "update", "TP_TRADE", "--refuse-stress", "--no-wait").status == 0

    rule = ("stress", "rule", "add", "region", "hz", "--dry-run")

    assert (
        "TP_TRADE refuses stress traffic: 2 of these would be refused when they are published." in msgcenter(*rule).out
    )
    assert [each["refused"] for each in msgcenter(*rule, "--json").json["topics"]] == [2]


def test_a_reason_is_refused_by_the_dry_run_of_deleting_as_by_deleting(msgcenter: Msgcenter, subscribed: str) -> None:
    for delete in (
        ("subscription", "delete", "SG_POINTS", "TP_TRADE", "EC_PAID"),
        ("group", "delete", "SG_POINTS"),
        ("topic", "delete", "TP_TRADE"),
    ):
        refused = (*delete, "--force", "--reason", "x" * 5_000)
        assert msgcenter(*refused, "--dry-run") == msgcenter(*refused), delete
