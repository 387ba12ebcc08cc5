"""Dead letters, replays and the jobs that carry them out, as operators type them."""

from __future__ import annotations

import asyncio
import re
from functools import partial

import pytest

from confdb import deleted
from confdb.brokers import BrokerRegistry
from msgdb.dead_letters.reading import get_dead_letter
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs.listing import JobStatus, get_job
from msgdb.jobs.records import JobKind, JobState, NewJob
from msgdb.jobs.specs import PurgeSpec
from msgdb.jobs.steering import begin_job
from msgdb.jobs.steps import claim_jobs, end_job
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.integration.msgconsole.cli.conftest import Do, Msgcenter, Outcome
from tests.support.dead_letter_rows import bury
from tests.support.examples import examples_of
from tests.support.jobs import buried
from tests.support.rows import OWNER, make_queue, put_messages
from tests.support.shown_message import put_example

WHY = ("--reason", "the warehouse is open again")


@pytest.fixture
def subscribed(msgcenter: Msgcenter, running_broker: str, database_url: str) -> str:
    """Register a group whose messages died, three of them; return the broker's address."""
    for arguments in (
        ("topic", "create", "TP_TRADE"),
        ("event-code", "create", "TP_TRADE", "EC_PAID"),
        ("group", "create", "SG_POINTS", "--retry-schedule", "none"),
        ("subscription", "create", "SG_POINTS", "TP_TRADE", "EC_PAID"),
    ):
        outcome = msgcenter(*arguments)
        assert outcome.status == 0, outcome.err

    async def die() -> None:
        async with MessageStore.open(database_url, pool_size=2) as store:
            await buried(running_broker, store, 3)

    asyncio.run(die())
    return running_broker


def receive(msgcenter: Msgcenter, count: int) -> list[str]:
    """Return the bodies that the group gets next."""
    arguments = ("subscribe", "--group", "SG_POINTS", "--topic", "TP_TRADE", "--count", str(count), "--json")
    return sorted(re.findall(r'"body": "([^"]*)"', msgcenter(*arguments).out))


@pytest.mark.usefixtures("subscribed")
def test_dead_letters_are_redriven_replayed_and_purged_as_an_operator_types_it(msgcenter: Msgcenter) -> None:
    some = ("--group", "SG_POINTS", "--error", "WAREHOUSE", "--since", "1h")
    tried = msgcenter("dead-letters", "redrive", *some, "--dry-run")
    assert (tried.status, "3 would be delivered again. Nothing was changed." in tried.out) == (0, True)
    assert msgcenter("job", "list", "--json").json == []

    done = msgcenter("dead-letters", "redrive", *some, *WHY, "--json").json
    assert (done["state"], done["done"], done["total"], done["kind"]) == ("DONE", 3, 3, "REDRIVE")
    assert receive(msgcenter, 3) == ["body 0", "body 1", "body 2"]
    listed = msgcenter("dead-letters", "list", "--redriven", "--json").json
    assert [each["redriven_at"] is not None for each in listed] == [True] * 3
    assert msgcenter("dead-letters", "list", "--open", "--json").json == []
    (by_job,) = msgcenter("dead-letters", "show", str(listed[0]["id"]), "--json").json["redriven_by"]
    assert by_job["job_id"] == done["job_id"]
    assert msgcenter("lag", "--json").json[0]["dead_letters"] == 0
    refused = msgcenter("dead-letters", "redrive", *some, *WHY)
    assert (refused.status, "(NOTHING_SELECTED)" in refused.err) == (1, True)

    again = ("message", "replay", "--group", "SG_POINTS", "--topic", "TP_TRADE", "--since", "1h")
    tried = msgcenter(*again, "--dry-run")
    assert "3 of 6 messages would be delivered again" in tried.out
    assert msgcenter(*again, *WHY).out.splitlines()[-1].endswith("3 done of 3.")
    assert receive(msgcenter, 3) == ["body 0", "body 1", "body 2"]

    begun = msgcenter("dead-letters", "purge", "--redriven", "--no-wait", *WHY, "--json").json
    followed = msgcenter("job", "follow", str(begun["job_id"]))
    assert followed.out.endswith(f"Job {begun['job_id']} is DONE: 3 done of 3.\n")
    assert msgcenter("dead-letters", "list", "--json").json == []
    kinds = [each["action"] for each in msgcenter("act", "list", "--action", "job.", "--json").json]
    assert kinds == ["job.purge", "job.replay", "job.redrive"]


@pytest.mark.usefixtures("subscribed")
def test_one_is_mended_by_hand_and_delivered(msgcenter: Msgcenter) -> None:
    newest = str(msgcenter("dead-letters", "list", "--json").json[0]["id"])
    mended = msgcenter("dead-letters", "redrive", newest, "--body", '{"mended": 1}', "--header", "a=b=c", *WHY)
    assert mended.status == 0, mended.err

    arguments = ("subscribe", "--group", "SG_POINTS", "--topic", "TP_TRADE", "--count", "1", "--json")
    message = msgcenter(*arguments).json
    assert (message["body"], message["headers"]) == ('{"mended": 1}', {"a": "b=c"})


def test_every_example_of_these_commands_works_as_typed(msgcenter: Msgcenter, do: Do, database_url: str) -> None:
    async def prepare(conn: Connection) -> None:
        await bury(conn, 20, group_name="SG_POINTS", last_error="Timeout")
        for _ in range(3):
            spec = PurgeSpec(WantedDeadLetters(), 0).as_json()
            await begin_job(conn, NewJob(JobKind.PURGE, "default", "nothing", spec, 0), actor="ada", reason="why")

    do(prepare)
    put_example(database_url)
    msgcenter("topic", "create", "TP_TRADE")
    msgcenter("group", "create", "SG_POINTS", "--no-wait")
    assert msgcenter("subscription", "create", "SG_POINTS", "TP_TRADE", "--no-wait").status == 0
    topic_id = msgcenter("topic", "show", "TP_TRADE", "--json").json["topic_id"]
    do(lambda conn: one_message(conn, topic_id))
    cancel = ["job", "cancel", "3"]
    # Trying needs an instance: test_message_try has one.
    typed = [each for each in examples_of("dead-letters", "job", "message", "act") if each[:2] != ["message", "try"]]
    for example in sorted(typed, key=lambda each: each[:3] == cancel):
        done = msgcenter(*example)
        assert done.status == 0, (example, done.err)
    assert msgcenter("job", "show", "3", "--json").json["state"] == "CANCELLED"


async def one_message(conn: Connection, topic_id: int) -> None:
    """Store a message in the first queue that there is."""
    assert await put_messages(conn, await make_queue(conn, topic_id), range(1))


def flat(outcome: Outcome) -> str:
    return " ".join(outcome.err.replace("│", " ").split())


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("dead-letters", "redrive", "--all"), "say why"),
        (("dead-letters", "redrive", *WHY), "say which ones"),
        (("dead-letters", "purge", *WHY), "say which ones"),
        (("dead-letters", "list", "--since", "noon"), "'noon' is no time"),
        (("dead-letters", "redrive", "1", "--body", "x", "--body-file", __file__, *WHY), "given twice"),
        (("dead-letters", "redrive", "1", "--header", "x", *WHY), "is not name=value"),
        (("job", "pause", "1"), "say why"),
        (("message", "replay", "--group", "SG", "--topic", "TP", *WHY), "give the ids of messages, or"),
        (("message", "replay", "--group", "SG", "not-an-id", *WHY), "UUID"),
    ],
)
def test_what_is_mistyped_is_said(msgcenter: Msgcenter, arguments: tuple[str, ...], said: str) -> None:
    outcome = msgcenter(*arguments)
    assert outcome.status == 2
    assert said in flat(outcome)


def test_a_job_that_cannot_go_on_is_a_command_that_failed(msgcenter: Msgcenter, do: Do) -> None:
    async def fail(conn: Connection) -> int:
        new = NewJob(JobKind.REPLAY, "default", "something", {}, 5)
        job_id = await begin_job(conn, new, actor="ada", reason="why")
        (job,) = await claim_jobs(conn, OWNER, 1, 30)
        await end_job(conn, job, JobState.FAILED, "another history")
        return job_id

    job_id = do(fail)
    followed = msgcenter("job", "follow", str(job_id))
    assert (followed.status, followed.err) == (1, f"job {job_id} cannot go on: another history (JOB_STOPPED)\n")
    refused = msgcenter("job", "pause", str(job_id), *WHY)
    assert (refused.status, refused.err.endswith("(JOB_STATE)\n")) == (1, True)


def test_where_no_broker_is_running_that_is_said_and_nothing_is_waited_for(msgcenter: Msgcenter, do: Do) -> None:
    do(lambda conn: bury(conn, 2))
    done = msgcenter("dead-letters", "purge", "--all", *WHY)
    assert done.status == 0
    assert "No broker is running: the job begins when one does." in done.err
    assert done.out.splitlines()[-1] == "Job 1 is RUNNING: 0 done of 2."


def test_where_there_are_more_it_is_said_how_to_go_on(msgcenter: Msgcenter, do: Do) -> None:
    ids = do(lambda conn: bury(conn, 3))
    listed = msgcenter("dead-letters", "list", "--limit", "2")
    assert listed.err == f"There may be more: go on with --before {ids[1]}.\n"
    assert msgcenter("dead-letters", "list", "--limit", "2", "--before", str(ids[1])).err == ""


@pytest.fixture
def made_again(msgcenter: Msgcenter, do: Do) -> tuple[list[int], list[int]]:
    """Register a group anew that has left dead letters; return the ids of these, and of its own."""
    ids: list[list[int]] = []
    for _ in range(2):
        assert msgcenter("group", "create", "SG_POINTS", "--no-wait").status == 0
        group_id = msgcenter("group", "show", "SG_POINTS", "--json").json["group_id"]
        ids.append(do(partial(bury, count=3, group_id=group_id)))
        if len(ids) == 1:
            assert msgcenter("group", "delete", "SG_POINTS", "--force", "--no-wait", *WHY).status == 0
    return ids[0], ids[1]


def test_dead_letters_of_an_earlier_group_of_that_name_are_told_and_shown(
    msgcenter: Msgcenter, made_again: tuple[list[int], list[int]]
) -> None:
    earlier, own = made_again
    of_group = ("dead-letters", "list", "--group", "SG_POINTS")

    told = msgcenter(*of_group, "--json")
    assert [each["id"] for each in told.json] == own[::-1]
    assert told.err == "3 more are of an earlier group SG_POINTS, which was deleted: --earlier shows these.\n"
    shown = msgcenter(*of_group, "--earlier", "--json")
    assert ([each["id"] for each in shown.json], shown.err) == (earlier[::-1], "")
    assert {each["is_registered"] for each in shown.json} == {False}
    assert msgcenter(*of_group, "--error", "timeout").err == ""
    listed = msgcenter("dead-letters", "list").out
    assert (listed.count("SG_POINTS (deleted)"), listed.count("SG_POINTS")) == (3, 6)
    assert "SG_POINTS (deleted)" in msgcenter("dead-letters", "show", str(earlier[0])).out
    assert msgcenter("dead-letters", "show", str(own[0]), "--json").json["is_registered"] is True


def test_of_more_earlier_groups_than_are_known_it_is_not_said_that_those_are_all(
    msgcenter: Msgcenter, made_again: tuple[list[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert msgcenter("group", "delete", "SG_POINTS", "--force", *WHY).status == 0
    assert msgcenter("group", "create", "SG_POINTS").status == 0
    whole = msgcenter("dead-letters", "list", "--group", "SG_POINTS").err
    monkeypatch.setattr(deleted, "EARLIER_MAX", 1)

    cut = msgcenter("dead-letters", "list", "--group", "SG_POINTS").err

    assert whole.startswith("6 more are of an earlier group")
    assert cut.startswith("3 or more are of an earlier group")
    assert len(made_again) == 2


def test_what_expired_after_its_group_was_deleted_is_told_and_shown_alike(
    msgcenter: Msgcenter, made_again: tuple[list[int], list[int]], do: Do
) -> None:
    earlier, _ = made_again

    async def expire(conn: Connection) -> list[int]:
        # As maintenance does: it knows the names of registered groups only.
        letter = (await get_dead_letter(conn, earlier[0])).summary
        return await bury(conn, 2, group_id=letter.group_id, group_name="", reason="EXPIRED")

    expired = do(expire)
    of_group = ("dead-letters", "list", "--group", "SG_POINTS")

    told = msgcenter(*of_group).err
    shown = msgcenter(*of_group, "--earlier", "--json").json

    assert told.startswith("5 more are of an earlier group SG_POINTS")
    assert sorted(each["id"] for each in shown) == sorted([*earlier, *expired])


def test_dead_letters_of_an_earlier_group_are_purged_by_name_and_not_redriven(
    msgcenter: Msgcenter, made_again: tuple[list[int], list[int]]
) -> None:
    earlier, own = made_again
    of_group = ("--group", "SG_POINTS")

    tried = msgcenter("dead-letters", "redrive", *of_group, "--dry-run")
    assert "3 more are of an earlier group SG_POINTS, which was deleted: they cannot be delivered any more" in tried.err
    tried = msgcenter("dead-letters", "purge", *of_group, "--dry-run")
    assert (tried.out.splitlines()[-1].startswith("3 would be deleted"), "--earlier" in tried.err) == (True, True)
    done = msgcenter("dead-letters", "purge", *of_group, "--earlier", "--no-wait", *WHY, "--json").json
    spec = msgcenter("job", "show", str(done["job_id"]), "--json").json["spec"]
    assert spec["wanted"]["group_name"] == "SG_POINTS"
    sums = msgcenter("dead-letters", "purge", *of_group, "--earlier", "--dry-run", "--json").json["sums"]
    assert [(each["group"], each["letters"]) for each in sums] == [("SG_POINTS", len(earlier))]
    refused = msgcenter("dead-letters", "list", "--earlier")
    assert (refused.status, "--group" in flat(refused)) == (2, True)
    assert len(own) == 3


@pytest.mark.parametrize("command", ["show", "follow", "pause", "resume", "cancel", "rate"])
def test_a_job_of_another_namespace_is_not_there(msgcenter: Msgcenter, do: Do, command: str) -> None:
    async def begin(conn: Connection) -> int:
        spec = PurgeSpec(WantedDeadLetters(namespace="shop"), 0).as_json()
        new = NewJob(JobKind.PURGE, "shop", "dead letters of SG_SECRET", spec, 5)
        return await begin_job(conn, new, actor="ada", reason="why")

    job_id = str(do(begin))
    others = {"show": (), "follow": (), "rate": ("7", *WHY)}.get(command, WHY)

    refused = msgcenter("job", command, job_id, *others)

    assert (refused.status, refused.out) == (1, "")
    assert refused.err == f"there is no job '{job_id}' in namespace 'default' (THING_NOT_FOUND)\n"
    assert msgcenter("job", "list", "-n", "default", "--json").json == []
    (listed,) = msgcenter("job", "list", "-n", "shop", "--json").json
    assert (listed["state"], listed["rate"]) == ("RUNNING", 1_000)
    assert msgcenter("job", "list", "--json").json == [listed]
    assert len(msgcenter("act", "list", "--action", "job.", "--json").json) == 1
    own = msgcenter("job", command, job_id, *others, "-n", "shop")
    assert own.status == 0, own.err


def test_jobs_are_listed_with_their_namespaces_where_there_are_several(msgcenter: Msgcenter, do: Do) -> None:
    async def begin(conn: Connection, namespace: str) -> None:
        await begin_job(conn, NewJob(JobKind.PURGE, namespace, "dead letters", {}, 5), actor="ada", reason="why")

    do(partial(begin, namespace="default"))
    assert "namespace" not in msgcenter("job", "list").out
    do(partial(begin, namespace="shop"))

    head, _, of_shop, of_default = msgcenter("job", "list").out.splitlines()

    assert ("namespace" in head, "shop" in of_shop, "default" in of_default) == (True, True, True)
    assert "namespace" not in msgcenter("job", "list", "-n", "shop").out
    misspelt = msgcenter("job", "list", "-n", "shpo")
    assert (misspelt.status, "(NAMESPACE_NOT_FOUND)" in misspelt.err) == (1, True)


def test_a_job_is_named_with_its_namespace_where_it_is_said_how_to_look_at_it(msgcenter: Msgcenter, do: Do) -> None:
    do(partial(bury, count=1, namespace="shop"))
    assert msgcenter("namespace", "create", "shop").status == 0

    begun = msgcenter("dead-letters", "purge", "--all", "-n", "shop", "--no-wait", *WHY)

    assert begun.out == "Job 1 has begun: msgcenter job follow 1 -n shop\n"
    assert msgcenter(*begun.out.split("msgcenter ")[1].split()).status == 0


_SOME = """
INSERT INTO alarm (broker_id, broker, kind, thing, detail)
SELECT gen_random_uuid(), '', 'LANE_SET_ASIDE', 'thing ' || n, '' FROM generate_series(1, 3) n
"""


def test_a_list_that_ends_at_its_limit_says_that_there_may_be_more(msgcenter: Msgcenter, do: Do) -> None:
    async def put(conn: Connection) -> None:
        await conn.execute(_SOME)
        for _ in range(3):
            spec = PurgeSpec(WantedDeadLetters(), 0).as_json()
            await begin_job(conn, NewJob(JobKind.PURGE, "default", "nothing", spec, 0), actor="ada", reason="why")

    do(put)
    for name in ("TP_A", "TP_B", "TP_C"):
        assert msgcenter("topic", "create", name, "--no-wait").status == 0
    for command, id_of in (("job list", "job_id"), ("act list", "act_id"), ("audit", "audit_id")):
        cut = msgcenter(*command.split(), "--limit", "2", "--json")
        last = cut.json[-1][id_of]
        assert cut.err == f"There may be more: go on with --before {last}.\n"
        assert len(msgcenter(*command.split(), "--limit", "2", "--before", str(last), "--json").json) == 1
        assert msgcenter(*command.split()).err == ""
    assert msgcenter("alarm", "list", "--limit", "2").err == "There may be more: --limit shows up to 1,000.\n"
    assert msgcenter("alarm", "list").err == ""


def test_a_job_that_could_not_do_more_than_are_kept_says_so(msgcenter: Msgcenter, do: Do) -> None:
    async def put(conn: Connection) -> None:
        spec = PurgeSpec(WantedDeadLetters(), 0).as_json()
        await begin_job(conn, NewJob(JobKind.PURGE, "default", "nothing", spec, 5), actor="ada", reason="why")
        await conn.execute("UPDATE job SET failed = 3")
        await conn.execute("INSERT INTO job_failure (job_id, item, error) VALUES (1, 'a', 'no'), (1, 'b', 'no')")

    do(put)
    shown = msgcenter("job", "show", "1")
    assert shown.err == "These are the first 2 of 3 that failed.\n"
    do(lambda conn: conn.execute("UPDATE job SET failed = 2"))
    assert msgcenter("job", "show", "1").err == ""


def test_what_stops_a_job_is_shown_and_not_obeyed(
    msgcenter: Msgcenter, do: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "[/b]\x1b[2J\u202e"
    spec = PurgeSpec(WantedDeadLetters(namespace="default"), 1, include_unarchived=False).as_json()
    job = NewJob(JobKind.PURGE, "default", "1 dead letter", spec, 1)
    job_id = do(partial(begin_job, job=job, actor="ada", reason="why"))
    do(lambda conn: conn.execute("UPDATE job SET state = 'FAILED', last_error = %s", (said,)))

    failed = msgcenter("job", "follow", str(job_id))

    assert failed.status == 1
    assert "[/b]\\x1b[2J\\u202e" in failed.out
    assert "[/b]\\x1b[2J\\u202e" in failed.err
    assert not {"\x1b", "\u202e"} & set(failed.out + failed.err)

    status: JobStatus = do(partial(get_job, job_id=job_id))
    looks = [status._replace(state="RUNNING", waits_seconds=5.0), status._replace(state="PAUSED")]

    async def look(*_: object) -> JobStatus:
        return looks.pop(0)

    async def list_live(_: object) -> list[str]:
        return ["a broker"]

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("msgconsole.cli.carrying_out.following._look", look)
    monkeypatch.setattr(BrokerRegistry, "list_live", list_live)
    followed = msgcenter("job", "follow", str(job_id))
    assert (followed.status, "waits: [/b]\\x1b[2J\\u202e" in followed.out) == (0, True)
