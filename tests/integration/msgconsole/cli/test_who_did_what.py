"""Who did what, when, and where: `msgcenter act` and `audit`, as operators type them."""

from __future__ import annotations

import asyncio
import getpass
from typing import Any

import psycopg
import pytest

from msgconsole.cli.printing import output
from msgdb.acts import write_act
from msgdb.store import MessageStore
from tests.integration.msgconsole.cli.conftest import Msgcenter


@pytest.fixture
def groups(msgcenter: Msgcenter) -> None:
    """Register a group of one name in two namespaces, and change one of them."""
    for typed in (
        ("namespace", "create", "shop"),
        ("group", "create", "SG_ALL", "--no-wait"),
        ("group", "create", "SG_ALL", "-n", "shop", "--no-wait"),
        ("group", "update", "SG_ALL", "-n", "shop", "--pause", "--ack-timeout-seconds", "45", "--no-wait"),
    ):
        outcome = msgcenter(*typed)
        assert outcome.status == 0, outcome.err


@pytest.mark.usefixtures("groups")
def test_the_audit_trail_says_where_and_what_was_changed(msgcenter: Msgcenter) -> None:
    changed, *others = msgcenter("audit", "--kind", "group").out.splitlines()[2:]

    assert "paused: no -> yes" in changed
    assert "ack timeout seconds: 60 -> 45" in changed
    assert "shop" in changed
    assert ["->" in each for each in others] == [False, False]
    assert "namespace" in msgcenter("audit", "--kind", "group").out.splitlines()[0]
    of_one = msgcenter("audit", "--kind", "group", "-n", "default").out
    assert ("namespace" in of_one, "changed" in of_one) == (False, False)


@pytest.mark.usefixtures("groups")
def test_the_audit_trail_is_asked_by_who_and_when(msgcenter: Msgcenter, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE audit_entry SET at = at - interval '2 hours', actor = 'cli:ada' WHERE action LIKE '%.update'"
        )
    me = getpass.getuser()

    def actions(*options: str) -> list[str]:
        return [each["action"] for each in msgcenter("audit", "--kind", "group", "--json", *options).json]

    assert actions("--actor", "ada") == actions("--until", "1h") == ["subscriber_group.update"]
    assert actions("--actor", me) == actions("--since", "1h") == ["subscriber_group.create"] * 2
    assert actions("--since", "3h", "--until", "1h") == ["subscriber_group.update"]
    assert actions("--since", "3h", "--until", "150m") == []


def put_act(
    database_url: str,
    actor: str,
    detail: dict[str, Any],
    *,
    namespace: str | None = "default",
    action: str = "group.reset",
) -> int:
    about: dict[str, Any] = {"namespace": namespace, "thing": "SG_ALL", "detail": detail}

    async def inner() -> int:
        async with MessageStore.open(database_url, pool_size=1) as store, store.transaction() as connection:
            return await write_act(connection, actor=actor, action=action, reason="why", **about)

    return asyncio.run(inner())


def test_acts_are_asked_by_who_and_when(msgcenter: Msgcenter, database_url: str) -> None:
    old, new = (put_act(database_url, actor, {}) for actor in ("cli:ada", "cli:bob"))
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE act SET at = at - interval '2 hours' WHERE act_id = %s", (old,))

    def listed(*options: str) -> list[int]:
        return [each["act_id"] for each in msgcenter("act", "list", "--json", *options).json]

    assert listed("--actor", "ada") == listed("--until", "1h") == [old]
    assert listed("--actor", "bob") == listed("--since", "1h") == [new]
    assert listed("--actor", "cli") == [new, old]


@pytest.mark.usefixtures("groups")
def test_acts_are_asked_by_their_namespace(msgcenter: Msgcenter, database_url: str) -> None:
    of_shop = put_act(database_url, "cli:ada", {"secret": 1}, namespace="shop")
    assert "namespace" not in msgcenter("act", "list").out
    mine = put_act(database_url, "cli:bob", {})
    of_center = put_act(database_url, "cli:eve", {}, namespace=None, action="archive.waive")
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO act (actor, action, thing, reason) VALUES ('cli:ada', 'job.purge', 'it', 'why')"
        )

    every = msgcenter("act", "list", "--json").json
    head, _, of_before, *lines = msgcenter("act", "list").out.splitlines()

    assert [(each["act_id"], each["namespace"], each["is_namespace_noted"]) for each in every] == [
        (of_center + 1, None, False),
        (of_center, None, True),
        (mine, "default", True),
        (of_shop, "shop", True),
    ]
    assert ("namespace" in head, " ? " in of_before, " - " in lines[0], "default" in lines[1]) == (True,) * 4
    assert [each["act_id"] for each in msgcenter("act", "list", "-n", "shop", "--json").json] == [of_shop]
    assert "namespace" not in msgcenter("act", "list", "-n", "shop").out
    refused = msgcenter("act", "show", str(of_shop), "-n", "default")
    assert (refused.status, refused.out) == (1, "")
    assert refused.err == f"there is no act '{of_shop}' in namespace 'default' (THING_NOT_FOUND)\n"
    for options in ((), ("-n", "shop")):
        assert msgcenter("act", "show", str(of_shop), "--json", *options).json["namespace"] == "shop"
    assert "namespace  ?" in " ".join(msgcenter("act", "show", str(of_center + 1)).out.replace("\n", " ").split("   "))


def test_a_namespace_that_never_was_is_refused_and_one_that_was_is_not(msgcenter: Msgcenter) -> None:
    for typed in (("create", "shop"), ("delete", "shop")):
        assert msgcenter("namespace", *typed, "--no-wait").status == 0

    misspelt = msgcenter("act", "list", "-n", "shpo")

    assert (misspelt.status, "(NAMESPACE_NOT_FOUND)" in misspelt.err) == (1, True)
    assert msgcenter("act", "list", "-n", "shop").out == "No acts.\n"


def test_the_detail_of_an_act_is_shown_on_lines(
    msgcenter: Msgcenter, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_PIPED_WIDTH", 80)
    detail = {"cut": True, "again": 10_150, "queues": [[9, 2_622, 0], [10, 2_533, 0]], "wanted": {"error": "a b"}}
    act_id = put_act(database_url, "cli:ada", {**detail, "ids": [1, 2], "none": []})

    shown = msgcenter("act", "show", str(act_id)).out
    lines = [line.split(maxsplit=1) for line in shown.splitlines() if line.strip()]

    assert ["thing", "SG_ALL"] in [[name, *(text.strip() for text in rest)] for name, *rest in lines]
    after = shown.split("Detail:\n")[1].splitlines()
    assert [" ".join(line.split()) for line in after] == [
        "again 10150",
        "cut yes",
        "ids 1 2",
        "none -",
        "queues 9 2622 0",
        "10 2533 0",
        "wanted error=a b",
    ]
    assert msgcenter("act", "show", str(act_id), "--json").json["detail"] == {**detail, "ids": [1, 2], "none": []}
