"""What is misspelt, or cannot be meant, is refused: an answer that says "nothing" would be believed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from msgdb.store import MessageStore
from tests.integration.msgconsole.cli.conftest import Msgcenter, Outcome
from tests.support.dead_letter_rows import bury

NO_ID = "01a1f7af-5fdb-73ea-9123-a5b22c700000"
WHY = ("--reason", "the warehouse is open again")


@pytest.fixture
def trade(msgcenter: Msgcenter) -> None:
    """Register a topic and a group that subscribes to it."""
    for arguments in (
        ("topic", "create", "TP_TRADE"),
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("group", "create", "SG_POINTS"),
        ("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID"),
    ):
        outcome = msgcenter(*arguments, "--no-wait")
        assert outcome.status == 0, outcome.err


def bury_some(database_url: str, group: str, topic: str) -> None:
    async def inner() -> None:
        async with MessageStore.open(database_url, pool_size=1) as store, store.connection() as connection:
            await bury(connection, 2, group_id=4_711, group_name=group, topic=topic)

    asyncio.run(inner())


@pytest.mark.usefixtures("trade")
@pytest.mark.parametrize(
    "command",
    [
        ("dead-letters", "list"),
        ("dead-letters", "redrive", "--dry-run"),
        ("dead-letters", "redrive", *WHY),
        ("dead-letters", "purge", "--dry-run"),
        ("dead-letters", "purge", *WHY),
    ],
)
@pytest.mark.parametrize(
    "option, name, reason", [("--group", "SG_NOPE", "GROUP_NOT_FOUND"), ("--topic", "TP_NOPE", "TOPIC_NOT_FOUND")]
)
def test_dead_letters_of_what_never_was_are_refused(
    msgcenter: Msgcenter, command: tuple[str, ...], option: str, name: str, reason: str
) -> None:
    refused = msgcenter(*command, option, name)

    assert (refused.status, refused.out) == (1, "")
    assert f"{name!r} is not registered in namespace 'default' ({reason})\n" in refused.err


@pytest.mark.usefixtures("trade")
def test_dead_letters_of_what_is_registered_no_more_are_told(msgcenter: Msgcenter, database_url: str) -> None:
    bury_some(database_url, "SG_GONE", "TP_GONE")

    for named in (("--group", "SG_GONE"), ("--topic", "TP_GONE"), ("--group", "SG_GONE", "--topic", "TP_GONE")):
        assert len(msgcenter("dead-letters", "list", *named, "--json").json) == 2
    assert msgcenter("dead-letters", "list", "--group", "SG_POINTS").out == "No dead letters.\n"
    assert msgcenter("dead-letters", "list", "--topic", "TP_TRADE").out == "No dead letters.\n"


@pytest.mark.usefixtures("trade")
@pytest.mark.parametrize(
    "named, reason",
    [
        (("--group", "SG_NOPE"), "GROUP_NOT_FOUND"),
        (("--group", "SG_NOPE", "-n", "default"), "GROUP_NOT_FOUND"),
        (("-n", "nope"), "NAMESPACE_NOT_FOUND"),
    ],
)
def test_instances_of_what_is_not_registered_are_refused(
    msgcenter: Msgcenter, named: tuple[str, ...], reason: str
) -> None:
    for command in (("instance", "list"), ("instance", "disconnect", "shop-1", "--dry-run")):
        refused = msgcenter(*command, *named)
        assert (refused.status, refused.out, refused.err.endswith(f"({reason})\n")) == (1, "", True), refused.err


@pytest.mark.usefixtures("trade")
@pytest.mark.parametrize(
    "command",
    [
        ("dead-letters", "list"),
        ("dead-letters", "redrive", "--dry-run"),
        ("dead-letters", "redrive", *WHY),
        ("dead-letters", "purge", "--dry-run"),
        ("message", "find", "--topic", "TP_TRADE"),
        ("message", "find", "--key", "order-1"),
        ("message", "export", "--topic", "TP_TRADE"),
        ("message", "replay", "--group", "SG_POINTS", "--topic", "TP_TRADE", "--dry-run"),
        ("usage",),
        ("lag", "--history"),
        ("act", "list"),
        ("audit",),
    ],
)
def test_a_time_that_ends_before_it_begins_is_refused(msgcenter: Msgcenter, command: tuple[str, ...]) -> None:
    refused = msgcenter(*command, "--since", "5m", "--until", "10m")

    assert (refused.status, refused.out) == (1, "")
    assert refused.err == "since must be before the end of the time that is asked for (INVALID_SETTING)\n"


def flat(outcome: Outcome) -> str:
    return " ".join(outcome.err.replace("│", " ").split())


@pytest.mark.parametrize(
    "typed, has_dry_run",
    [
        (("job", "pause", "6"), False),
        (("job", "cancel", "6"), False),
        (("job", "rate", "6", "5"), False),
        (("dead-letters", "purge", "--all"), True),
        (("message", "skip", "--queue", "1", "--offset", "0", "--group", "SG_POINTS"), True),
        (("group", "delete", "SG_POINTS", "--force"), True),
    ],
)
def test_a_dry_run_is_spoken_of_only_where_the_command_has_one(
    msgcenter: Msgcenter, typed: tuple[str, ...], *, has_dry_run: bool
) -> None:
    refused = msgcenter(*typed)
    helped = msgcenter(*typed[:2], "--help").out

    assert refused.status == 2
    assert "say why: it is written down, with who you are" in flat(refused)
    assert ("--dry-run" in refused.err, "--dry-run" in helped) == (has_dry_run, has_dry_run)
    assert has_dry_run or "dry run" not in helped


@pytest.mark.usefixtures("trade")
@pytest.mark.parametrize(
    "kind, actions",
    [
        ("group", {"subscriber_group.create", "publisher_group.create"}),
        ("subscriber_group", {"subscriber_group.create"}),
        ("topic", {"topic.create"}),
        ("event-code", {"event_code.create"}),
        ("subscription", {"subscription.create"}),
        ("namespace", {"namespace.create"}),
        ("stress", {"stress_rule.create", "stress_whitelist.create"}),
    ],
)
def test_the_audit_trail_takes_the_words_of_the_commands(msgcenter: Msgcenter, kind: str, actions: set[str]) -> None:
    for typed in (
        ("namespace", "create", "shop"),
        ("group", "create", "PG_SHOP", "--publisher"),
        ("stress", "rule", "add", "x-test", "true"),
        ("stress", "allow", "SG_POINTS", "TP_TRADE"),
    ):
        outcome = msgcenter(*typed)
        assert outcome.status == 0, outcome.err

    assert {each["action"] for each in msgcenter("audit", "--kind", kind, "--json").json} >= actions
    assert {each["kind"] for each in msgcenter("audit", "--kind", kind, "--json").json} == {
        action.split(".")[0] for action in actions
    }


@pytest.mark.usefixtures("trade")
def test_the_audit_trail_of_what_never_was_is_refused(msgcenter: Msgcenter) -> None:
    unknown = msgcenter("audit", "--kind", "groups")
    assert (unknown.status, unknown.out) == (2, "")
    assert "'groups' is none of namespace, topic, event-code, group, subscription, stress" in flat(unknown)
    no_namespace = msgcenter("audit", "-n", "nope")
    assert (no_namespace.status, no_namespace.err) == (1, "namespace 'nope' is not registered (NAMESPACE_NOT_FOUND)\n")
    for options in (("--name", "SG_NOPE"), ("--name", "SG_POINTS", "--kind", "topic")):
        no_thing = msgcenter("audit", *options)
        assert (no_thing.status, no_thing.out, "(THING_NOT_FOUND)" in no_thing.err) == (1, "", True)


def test_the_audit_trail_tells_of_a_namespace_that_was_deleted(msgcenter: Msgcenter) -> None:
    assert msgcenter("namespace", "create", "shop").status == 0
    assert msgcenter("namespace", "delete", "shop").status == 0

    actions = [each["action"] for each in msgcenter("audit", "-n", "shop", "--json").json]
    assert actions[0] == "namespace.delete"
    assert msgcenter("audit", "-n", "shop", "--kind", "topic").out == "No changes.\n"


@pytest.mark.usefixtures("trade")
@pytest.mark.parametrize(
    "typed, kind",
    [
        (("message", "show", NO_ID), "message"),
        (("message", "body", NO_ID), "message"),
        (("message", "trace", NO_ID), "message in the log"),
        (("message", "replay", NO_ID, "--group", "SG_POINTS", "--dry-run"), "message"),
        (("message", "try", NO_ID, "--group", "SG_POINTS", "--instance", "points-0", "--dry-run"), "message"),
        (("message", "skip", NO_ID, "--group", "SG_POINTS", "--dry-run"), "message"),
        (("dead-letters", "show", "7"), "dead letter"),
        (("dead-letters", "redrive", "7", "--body", "x", *WHY), "dead letter"),
        (("job", "show", "7"), "job"),
        (("job", "pause", "7", *WHY), "job"),
    ],
)
def test_what_is_not_there_is_said_not_to_be_in_its_namespace(
    msgcenter: Msgcenter, typed: tuple[str, ...], kind: str
) -> None:
    name = NO_ID if NO_ID in typed else "7"
    for namespace in ("default", "shop"):
        if namespace == "shop":
            assert msgcenter("namespace", "create", "shop").status == 0
            assert msgcenter("group", "create", "SG_POINTS", "-n", "shop").status == 0
        refused = msgcenter(*typed, "-n", namespace)
        assert (refused.status, refused.out) == (1, "")
        assert refused.err == f"there is no {kind} {name!r} in namespace {namespace!r} (THING_NOT_FOUND)\n"


def test_a_name_that_no_namespace_has_is_said_so(msgcenter: Msgcenter) -> None:
    assert msgcenter("namespace", "create", "shop").status == 0
    for command in ("usage", "lag"):
        refused = msgcenter(command, "--topic", "TP_NOPE")
        assert refused.err == "topic 'TP_NOPE' is not registered in any namespace (TOPIC_NOT_FOUND)\n"


@pytest.mark.parametrize("reason", ["x" * 1_001, " ", "a\0b"])
def test_a_dry_run_refuses_the_reason_that_the_act_refuses(msgcenter: Msgcenter, topic: str, reason: str) -> None:
    assert msgcenter("subscription", "create", "SG_POINTS", "TP_TRADE", "--no-wait").status == 0
    for act in (
        ("group", "reset", "SG_POINTS", "--to-end"),
        ("dead-letters", "redrive", "--all"),
        ("dead-letters", "purge", "--all"),
    ):
        refused = msgcenter(*act, "--reason", reason)
        assert (refused.status, "(INVALID_SETTING)" in refused.err) == (1, True), act
        assert msgcenter(*act, "--reason", reason, "--dry-run") == refused, act


@pytest.fixture
def reader(topic: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Have commands run by a role that may read everything and change no table but two; return its name."""
    role = f"reader_{uuid4().hex[:8]}"
    with psycopg.connect(topic, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role}")
        connection.execute(f"GRANT USAGE ON SCHEMA public TO {role}")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
        connection.execute(f"GRANT UPDATE ON config_version, subscriber_group TO {role}")
    monkeypatch.setenv("MSGCENTER_CONFDB_URL", f"{topic}&options=-crole%3D{role}")
    yield role
    with psycopg.connect(topic, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {role}")
        connection.execute(f"DROP ROLE {role}")


@pytest.mark.usefixtures("reader")
def test_a_dry_run_is_refused_by_the_database_that_refuses_the_change(msgcenter: Msgcenter) -> None:
    for table, change in (
        ("audit_entry", ("group", "update", "SG_POINTS", "--pause")),
        ("stress_whitelist", ("stress", "allow", "SG_POINTS", "TP_TRADE")),
    ):
        refused = msgcenter(*change)
        says = f"the configuration database refuses: permission denied for table {table} (DATABASE_REFUSED)\n"
        assert (refused.status, refused.err) == (1, says)
        assert msgcenter(*change, "--dry-run") == refused


@pytest.mark.parametrize("command", [("list",), ("redrive", "--dry-run"), ("purge", "--dry-run")])
def test_what_no_dead_letter_dies_of_is_refused(msgcenter: Msgcenter, command: tuple[str, ...]) -> None:
    refused = msgcenter("dead-letters", *command, "--why", "TIMEOUT")

    assert (refused.status, refused.out) == (2, "")
    assert "expired" in refused.err.lower()
