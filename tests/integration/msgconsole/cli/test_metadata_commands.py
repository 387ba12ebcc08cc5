"""The commands that change the configuration, on a real database."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import psycopg
import pytest

from tests.integration.msgconsole.cli.conftest import Msgcenter


@pytest.fixture
def trade(msgcenter: Msgcenter) -> None:
    """Register a topic with an event code, and a group."""
    for arguments in (
        ("topic", "create", "TP_TRADE"),
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("group", "create", "SG_POINTS", "--retry-schedule", "1,2.5"),
    ):
        assert msgcenter(*arguments).status == 0


def test_a_topic_is_created_shown_listed_changed_and_deleted(msgcenter: Msgcenter) -> None:
    created = msgcenter("topic", "create", "TP_TRADE", "--queues", "8", "--open", "--json").json
    assert (created["name"], created["queue_count"], created["is_open"]) == ("TP_TRADE", 8, True)
    assert msgcenter("topic", "show", "TP_TRADE", "--json").json["generation"] == created["generation"]
    msgcenter("topic", "update", "TP_TRADE", "--queues", "16", "--refuse-stress", "--closed")
    listed = msgcenter("topic", "list", "--json").json
    assert [(topic["name"], topic["queue_count"], topic["stress_refused"], topic["is_closed"]) for topic in listed] == [
        ("TP_TRADE", 16, True, True)
    ]
    assert "TP_TRADE" in msgcenter("topic", "delete", "TP_TRADE").out
    assert msgcenter("topic", "list", "--json").json == []


def test_a_refusal_is_one_line_with_its_reason_and_status_1(msgcenter: Msgcenter) -> None:
    outcome = msgcenter("topic", "show", "NO_SUCH")
    assert outcome.status == 1
    assert outcome.err == "topic 'NO_SUCH' is not registered in namespace 'default' (TOPIC_NOT_FOUND)\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "create"),
        ("topic", "create", "TP_TRADE", "--queues", "0"),
        ("group", "create", "SG_POINTS", "--retry-schedule", "soon"),
        ("group", "create", "PG_SHOP", "--publisher", "--attempts-max", "3"),
        ("no-such-command",),
    ],
)
def test_a_mistyped_command_has_status_2(msgcenter: Msgcenter, arguments: tuple[str, ...]) -> None:
    assert msgcenter(*arguments).status == 2


@pytest.mark.usefixtures("trade")
@pytest.mark.parametrize(
    "arguments, given",
    [
        (("topic", "update", "TP_TRADE"), ("--queues", "--open/--not-open", "--closed/--not-closed", "--description")),
        (("group", "update", "SG_POINTS"), ("--ack-timeout-seconds", "--retry-schedule", "--pause/--resume")),
    ],
)
def test_an_update_of_nothing_is_refused_with_what_could_be_given(
    msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], given: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    # Where it is and how it is printed is nothing to change either.
    for others in ((), ("--json", "--no-wait", "--namespace", "default")):
        refused = msgcenter(*arguments, *others)
        assert (refused.status, refused.out) == (2, "")
        assert "nothing to change: give at least one of --" in refused.err
        assert all(option in refused.err for option in given)
        assert "--namespace" not in refused.err
    assert msgcenter(*arguments, "--description", "").status == 0


def test_the_settings_of_a_group_are_explained_with_their_units(
    msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = " ".join(msgcenter("group", "create", "--help").out.replace("│", " ").split())
    for option, unit in (
        ("--ack-timeout-seconds", "Seconds without an answer"),
        ("--retry-schedule", "Seconds before each further attempt"),
        ("--attempts-max", "Attempts, the first one counted"),
        ("--unsettled-max", "Messages that one instance may hold"),
    ):
        assert option in said
        assert unit in said


@pytest.mark.usefixtures("trade")
@pytest.mark.parametrize("verb", ["delete", "remove"])
def test_event_codes_are_listed_and_deleted_by_either_word(msgcenter: Msgcenter, verb: str) -> None:
    assert [code["name"] for code in msgcenter("event-code", "list", "TP_TRADE", "--json").json] == ["EC_PAID"]
    assert msgcenter("event-code", verb, "TP_TRADE", "EC_PAID").out == "Event code TP_TRADE/EC_PAID is deleted.\n"
    assert msgcenter("event-code", "list", "TP_TRADE", "--json").json == []


@pytest.mark.usefixtures("trade")
def test_a_group_keeps_its_retry_schedule_and_can_be_paused(msgcenter: Msgcenter) -> None:
    shown = msgcenter("group", "show", "SG_POINTS", "--json").json
    assert (shown["retry_schedule_seconds"], shown["attempts_max"], shown["paused"]) == ([1.0, 2.5], 3, False)
    assert msgcenter("group", "update", "SG_POINTS", "--pause", "--retry-schedule", "none", "--json").json["paused"]
    assert [group["attempts_max"] for group in msgcenter("group", "list", "--json").json] == [1]
    assert msgcenter("group", "delete", "SG_POINTS").status == 0
    assert msgcenter("group", "list", "--json").json == []


def test_publisher_groups_are_apart_from_subscriber_groups(msgcenter: Msgcenter) -> None:
    assert msgcenter("group", "create", "PG_SHOP", "--publisher").status == 0
    assert [group["name"] for group in msgcenter("group", "list", "--publisher", "--json").json] == ["PG_SHOP"]
    assert msgcenter("group", "list", "--json").json == []
    assert msgcenter("group", "show", "PG_SHOP", "--publisher", "--json").json["name"] == "PG_SHOP"
    assert msgcenter("group", "delete", "PG_SHOP", "--publisher").status == 0


@pytest.mark.usefixtures("trade")
def test_a_subscription_starts_at_the_queues_tails_or_at_the_beginning(msgcenter: Msgcenter) -> None:
    made = msgcenter("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID", "--json").json
    assert (made["mode"], made["is_active"]) == ("DIRECT", True)
    assert sorted(made["start_offsets"].values()) == [0, 0, 0, 0]
    every = msgcenter(
        "subscription", "create", "SG_POINTS", "TP_TRADE", "--expression", 'headers.region == "hz"', "--from-beginning"
    )
    assert every.out == "The subscription of SG_POINTS to TP_TRADE/* is active.\n"
    listed = msgcenter("subscription", "list", "--group", "SG_POINTS", "--json").json
    assert [(one["event_code"], one["mode"], one["start_offsets"] == {}) for one in listed] == [
        ("EC_PAID", "DIRECT", False),
        ("*", "HEADER", True),
    ]
    assert msgcenter("subscription", "delete", "SG_POINTS", "TP_TRADE", "EC_PAID").status == 0
    assert len(msgcenter("subscription", "list", "--topic", "TP_TRADE", "--json").json) == 1


@pytest.mark.usefixtures("trade")
def test_a_bad_expression_is_refused_with_the_place_of_the_error(msgcenter: Msgcenter) -> None:
    outcome = msgcenter("subscription", "create", "SG_POINTS", "TP_TRADE", "--expression", 'headers.region = "hz"')
    assert outcome.status == 1
    assert "line 1, column" in outcome.err
    assert outcome.err.endswith("(INVALID_EXPRESSION)\n")


@pytest.mark.usefixtures("trade")
def test_an_expression_that_costs_too_much_is_refused_with_what_to_write_instead(msgcenter: Msgcenter) -> None:
    outcome = msgcenter(
        "subscription", "create", "SG_POINTS", "TP_TRADE", "--expression", "headers.a.matches(headers.b)"
    )
    assert outcome.status == 1
    assert "write the pattern of `matches` into the expression" in outcome.err
    assert outcome.err.endswith("(EXPRESSION_TOO_COSTLY)\n")


@pytest.mark.usefixtures("trade")
def test_stress_rules_and_whitelist_are_kept(msgcenter: Msgcenter) -> None:
    assert msgcenter("stress", "rule", "add", "x-load", "--operator", "exists").status == 0
    rules = {(rule["header"], rule["operator"]) for rule in msgcenter("stress", "rule", "list", "--json").json}
    assert rules == {("x-stress-test", "EQUALS"), ("x-load", "EXISTS")}
    assert msgcenter("stress", "rule", "remove", "x-load", "--operator", "exists").status == 0
    assert msgcenter("stress", "allow", "SG_POINTS", "TP_TRADE", "EC_PAID").status == 0
    assert [entry["event_code"] for entry in msgcenter("stress", "list", "--json").json] == ["EC_PAID"]
    assert msgcenter("stress", "disallow", "SG_POINTS", "TP_TRADE", "EC_PAID").status == 0
    assert msgcenter("stress", "list", "--json").json == []


def test_namespaces_keep_their_topics_apart(msgcenter: Msgcenter) -> None:
    assert msgcenter("namespace", "create", "shop").status == 0
    assert msgcenter("topic", "create", "TP_TRADE", "-n", "shop").status == 0
    assert msgcenter("topic", "list", "--json").json == []
    assert {row["name"] for row in msgcenter("namespace", "list", "--json").json} == {"default", "shop"}
    assert "is in use" in msgcenter("namespace", "delete", "shop").err
    msgcenter("topic", "delete", "TP_TRADE", "-n", "shop")
    assert msgcenter("namespace", "delete", "shop").status == 0


WITH_REASON = [
    ("topic", "update", "TP_TRADE", "--closed"),
    ("group", "update", "SG_POINTS", "--pause"),
    ("subscription", "update", "SG_POINTS", "TP_TRADE", "EC_PAID", "--pause"),
    ("stress", "rule", "add", "x-load-test", "yes"),
    ("stress", "rule", "remove", "x-load-test", "yes"),
    ("stress", "allow", "SG_POINTS", "TP_TRADE", "EC_PAID"),
    ("stress", "disallow", "SG_POINTS", "TP_TRADE", "EC_PAID"),
    ("subscription", "delete", "SG_POINTS", "TP_TRADE", "EC_PAID"),
    ("event-code", "delete", "TP_TRADE", "EC_PAID"),
    ("group", "delete", "SG_POINTS", "--force"),
    ("group", "delete", "PG_SHOP", "--publisher"),
    ("topic", "delete", "TP_TRADE", "--force"),
    ("namespace", "delete", "shop"),
]


@pytest.mark.usefixtures("trade")
def test_the_audit_trail_says_why_a_thing_was_changed_or_deleted(msgcenter: Msgcenter) -> None:
    msgcenter("namespace", "create", "shop")
    msgcenter("group", "create", "PG_SHOP", "--publisher")
    msgcenter("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID")

    for number, typed in enumerate(WITH_REASON):
        assert msgcenter(*typed, "--reason", f"reason {number}").status == 0, typed

    reasons = {entry["reason"] for entry in msgcenter("audit", "--json").json}
    assert reasons == {""} | {f"reason {number}" for number in range(len(WITH_REASON))}
    assert "reason 0" in msgcenter("audit").out


@pytest.mark.usefixtures("trade")
@pytest.mark.parametrize("typed", [each for each in WITH_REASON if "--force" in each], ids=" ".join)
def test_nothing_is_deleted_by_force_without_a_reason(msgcenter: Msgcenter, typed: tuple[str, ...]) -> None:
    outcome = msgcenter(*typed)

    assert (outcome.status, "--reason" in outcome.err) == (2, True)
    assert msgcenter(typed[0], "show", typed[2]).status == 0


@pytest.mark.usefixtures("trade")
def test_the_audit_trail_names_who_did_what(msgcenter: Msgcenter) -> None:
    entries = msgcenter("audit", "--kind", "topic", "--json").json
    assert [(entry["action"], entry["name"]) for entry in entries] == [("topic.create", "TP_TRADE")]
    assert entries[0]["actor"].startswith("cli:")


def test_migrate_makes_the_schemas_and_a_repeat_changes_nothing(
    msgcenter: Msgcenter, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSGCENTER_CONFDB_URL", empty_database_url)
    monkeypatch.setenv("MSGCENTER_MSGDB_URL", empty_database_url)
    assert [row["revision"] for row in msgcenter("migrate", "--check", "--json").json] == [None, None]
    first = msgcenter("migrate", "--json").json
    assert all(row["revision"] for row in first)
    assert msgcenter("migrate", "--json").json == first


def test_without_a_database_a_command_says_how_to_get_one(
    msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MSGCENTER_CONFDB_URL")
    outcome = msgcenter("topic", "list")
    assert outcome.status == 1
    assert "start `msgcenter up`" in outcome.err


def test_a_database_that_is_away_is_one_line(
    msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    for name in ("MSGCENTER_CONFDB_URL", "MSGCENTER_MSGDB_URL"):
        monkeypatch.setenv(name, f"postgresql://postgres@127.0.0.1:{free_port}/postgres")
    for arguments in (("topic", "list"), ("migrate",)):
        outcome = msgcenter(*arguments)
        assert (outcome.status, outcome.err.count("\n")) == (1, 1)
        assert outcome.err.endswith("(CONFIG_UNAVAILABLE)\n")


_READING = (
    ("topic", "list"), ("audit",), ("lag",), ("alarm", "list"), ("dead-letters", "list"), ("dead-letters", "show", "1"),
    ("demo",), ("subscription", "create", "SG", "TP"),
)  # fmt: skip


@pytest.mark.parametrize("arguments", _READING, ids=" ".join)
def test_a_database_without_tables_is_one_line_that_says_what_to_do(
    msgcenter: Msgcenter, empty_database_url: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("MSGCENTER_CONFDB_URL", empty_database_url)
    monkeypatch.setenv("MSGCENTER_MSGDB_URL", empty_database_url)
    outcome = msgcenter(*arguments)
    assert (outcome.status, outcome.err.count("\n")) == (1, 1)
    assert outcome.err.endswith("does not have the tables of this version: run `msgcenter migrate` (NOT_MIGRATED)\n")


@pytest.mark.parametrize("arguments", _READING, ids=" ".join)
def test_a_database_that_refuses_is_one_line(
    msgcenter: Msgcenter, database_url: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    # As somebody who may see that there are tables, and no more.
    weak = f"{database_url}{'&' if '?' in database_url else '?'}options=-c%20role%3Dpg_monitor"
    monkeypatch.setenv("MSGCENTER_CONFDB_URL", weak)
    monkeypatch.setenv("MSGCENTER_MSGDB_URL", weak)
    outcome = msgcenter(*arguments)
    assert (outcome.status, outcome.err.count("\n")) == (1, 1)
    assert " refuses: permission denied for table " in outcome.err
    assert outcome.err.endswith("(DATABASE_REFUSED)\n")


@pytest.mark.parametrize("database", ["confdb", "msgdb"])
def test_a_database_of_a_newer_version_is_left_alone_and_says_so(
    msgcenter: Msgcenter, database_url: str, database: str
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(f"UPDATE {database}_version SET version_num = '9999'")
    outcome = msgcenter("migrate")
    assert (outcome.status, outcome.err.count("\n")) == (1, 1)
    assert "was migrated by another, probably newer, version of msgcenter" in outcome.err
    assert "9999" in outcome.err


def test_check_config_shows_settings_without_secrets_and_tries_the_connections(
    msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    secret_url = database_url.replace("postgres@", "postgres:hush@")
    monkeypatch.setenv("MSGCENTER_MSGDB_URL", secret_url)
    outcome = msgcenter("check-config", "--json")
    assert "hush" not in outcome.out
    shown = {row["variable"]: row["value"] for row in outcome.json["settings"]}
    assert shown["MSGCENTER_RETENTION_DAYS"] == 7
    assert {row["what"]: row["is_ok"] for row in outcome.json["connections"]}["msgdb"]
    assert "The settings are fine." in msgcenter("check-config").out


def test_a_misspelt_variable_is_refused_with_the_right_spelling(
    msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSGCENTER_RETENTION_DAY", "3")
    outcome = msgcenter("check-config")
    assert outcome.status == 1
    assert "MSGCENTER_RETENTION_DAY is not a setting; did you mean MSGCENTER_RETENTION_DAYS?" in outcome.err


@pytest.mark.parametrize("arguments", [("topic", "list"), ("publish", "T", "E", "x"), ("up",), ("lag",)])
def test_every_command_refuses_a_misspelt_variable(
    msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("MSGCENTER_BROKR", "127.0.0.1:7400")
    outcome = msgcenter(*arguments)
    assert (outcome.status, outcome.err) == (
        1,
        "MSGCENTER_BROKR is not a setting; did you mean MSGCENTER_BROKER? (INVALID_SETTING)\n",
    )
    assert list(tmp_path.iterdir()) == []
    assert msgcenter("--help").status == 0


def test_up_refuses_a_setting_out_of_bounds_before_it_starts_anything(
    msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MSGCENTER_RETENTION_DAYS", "8")
    outcome = msgcenter("up")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("MSGCENTER_RETENTION_DAYS is refused")
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_shown(msgcenter: Msgcenter) -> None:
    assert msgcenter("--version").out == f"msgcenter {version('msgcenter')}\n"


def test_a_setting_out_of_bounds_is_named(msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGCENTER_RETENTION_DAYS", "8")
    outcome = msgcenter("check-config", "--offline")
    assert outcome.status == 1
    assert outcome.err.startswith("MSGCENTER_RETENTION_DAYS is refused")


def test_values_of_people_are_never_taken_for_markup(msgcenter: Msgcenter) -> None:
    msgcenter("topic", "create", "TP_TRADE", "--description", "[red]not red[/red]")
    assert "[red]not red[/red]" in msgcenter("topic", "list").out
    assert "[red]not red[/red]" in msgcenter("topic", "show", "TP_TRADE").out


def test_a_running_up_is_found_from_below_its_directory(
    msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database_url: str
) -> None:
    import os

    from msgconsole.local import places

    directory = tmp_path / ".msgcenter"
    directory.mkdir()
    own_pid, started = os.getpid(), places.started_ticks(os.getpid()) or 0
    state = places.State(own_pid, started, "127.0.0.1:1", own_pid, started, database_url, database_url)
    state.write(directory)
    below = tmp_path / "deep" / "deeper"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.delenv("MSGCENTER_CONFDB_URL")
    monkeypatch.delenv("MSGCENTER_MSGDB_URL")
    assert msgcenter("topic", "list", "--json").json == []
    shown = {row["variable"]: row["value"] for row in msgcenter("check-config", "--json").json["settings"]}
    assert (shown["MSGCENTER_LISTEN"], shown["MSGCENTER_CLIENT_REGISTRATION"]) == ("127.0.0.1:1", True)
    assert f"`msgcenter up` runs (process {own_pid})" in msgcenter("check-config").out
    assert (directory / "state.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("trade")
def test_what_a_thing_requires_is_shown_also_where_this_version_does_not_know_it(
    msgcenter: Msgcenter, database_url: str
) -> None:
    assert msgcenter("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID").status == 0
    assert "requires" not in msgcenter("subscription", "list").out
    with psycopg.connect(database_url) as connection:
        connection.execute("ALTER TABLE topic DROP CONSTRAINT topic_kind_check")
        connection.execute("UPDATE topic SET kind = 'SPARSE', requires = '{topic-kind-sparse}'")
        connection.execute("UPDATE subscriber_group SET group_order = 'KEY', requires = '{group-order-key,colour}'")
        connection.execute("UPDATE subscription SET requires = '{colour}'")

    topic = msgcenter("topic", "show", "TP_TRADE", "--json").json
    assert (topic["kind"], topic["requires"]) == ("SPARSE", ["topic-kind-sparse"])
    group = msgcenter("group", "show", "SG_POINTS", "--json").json
    assert (group["order"], group["requires"]) == ("KEY", ["group-order-key", "colour"])
    assert "group-order-key colour" in msgcenter("group", "show", "SG_POINTS").out
    (subscription,) = msgcenter("subscription", "list", "--json").json
    assert subscription["requires"] == ["colour"]
    assert "requires" in msgcenter("subscription", "list").out
    # Lists, lag and changes go on as well.
    assert msgcenter("topic", "list").status == 0
    assert msgcenter("lag").status == 0
    assert msgcenter("group", "update", "SG_POINTS", "--description", "for points").status == 0


@pytest.mark.usefixtures("trade")
def test_a_change_that_pauses_says_how_it_is_now(msgcenter: Msgcenter) -> None:
    group = ("group", "update", "SG_POINTS")
    for arguments, said in (
        (("--pause",), "Group SG_POINTS is paused.\n"),
        (("--pause",), "Group SG_POINTS is paused.\n"),
        (("--resume", "--reason", "it is mended"), "Group SG_POINTS is not paused.\n"),
        (("--pause", "--description", "x"), "Group SG_POINTS is changed, and is paused.\n"),
        (("--description", "y"), "Group SG_POINTS is changed.\n"),
    ):
        assert msgcenter(*group, *arguments).out == said
    assert msgcenter("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID").status == 0
    subscription = ("subscription", "update", "SG_POINTS", "TP_TRADE", "EC_PAID")
    assert msgcenter(*subscription, "--pause").out == "The subscription of SG_POINTS to TP_TRADE/EC_PAID is paused.\n"
    assert msgcenter(*subscription, "--resume").out.endswith(" is not paused.\n")


@pytest.mark.usefixtures("trade")
def test_a_reason_alone_changes_nothing(msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    refused = msgcenter("group", "update", "SG_POINTS", "--reason", "so")
    assert refused.status == 2
    assert "nothing to change" in refused.err
    assert "--reason" not in refused.err


@pytest.mark.usefixtures("trade")
@pytest.mark.parametrize(
    "given", [(), ("--to-end", "--to-beginning"), ("--to-offset", "3"), ("--queue", "1", "--to-end")]
)
def test_a_reset_to_no_place_or_to_two_is_mistyped_and_says_what_could_be_given(
    msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    refused = msgcenter("group", "reset", "SG_POINTS", *given, "--dry-run")
    assert (refused.status, refused.out) == (2, "")
    assert "--to-offset" in refused.err


def test_that_a_topic_stays_closed_is_said_to_who_opens_it_to_event_codes(msgcenter: Msgcenter) -> None:
    assert msgcenter("topic", "create", "TP_TRADE").status == 0
    closed = msgcenter("topic", "update", "TP_TRADE", "--closed")
    foretold = msgcenter("topic", "update", "TP_TRADE", "--open", "--dry-run")
    opened = msgcenter("topic", "update", "TP_TRADE", "--open")
    both = msgcenter("topic", "update", "TP_TRADE", "--open", "--not-closed")

    assert closed.out == "Topic TP_TRADE is changed.\n"
    assert opened.out == ("Topic TP_TRADE is changed. It is closed all the same: --not-closed lets it take messages.\n")
    assert foretold.out.splitlines() == [
        "is open: no -> yes",
        "It stays closed all the same: --not-closed lets it take messages.",
        "Nothing was changed.",
    ]
    assert both.out == "Topic TP_TRADE is changed.\n"
