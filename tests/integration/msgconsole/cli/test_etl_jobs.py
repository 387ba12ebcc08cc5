"""Jobs of the archive as they are typed, with Spark: each start of it takes seconds, so there are few."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import duckdb
import psutil
import psycopg
import pytest

from msgconsole.local.spark_job import PROGRAM
from msgconsole.local.state_file import State, started_ticks
from msgdb.locks import QUEUE_LOCK_CLASS, queue_lock_key
from msgdb.store import MessageStore
from spark_etl.files.places import Place, check_store
from tests.integration.msgconsole.cli.conftest import Msgcenter
from tests.support.archive_runs import days_ago
from tests.support.eventually import eventually_blocking
from tests.support.processes import left_running
from tests.support.rows import make_queue, put_messages
from tests.support.typed_commands import typed_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SECRET = "hush-7f3c"
ROWS = 4_000


@pytest.fixture
def day() -> date:
    """Return the day that has messages."""
    return days_ago(1)


@pytest.fixture
def queue_id(database_url: str, msgcenter: Msgcenter) -> int:
    """Store messages of yesterday; return their queue."""

    async def store() -> int:
        async with MessageStore.open(database_url, pool_size=1) as store, store.connection() as connection:
            queue_id = await make_queue(connection)
            await put_messages(connection, queue_id, range(ROWS), days_ago=1)
            return queue_id

    return asyncio.run(store())


@pytest.fixture
def center(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, msgcenter: Msgcenter) -> Path:
    """Let a center run here, whose store has a password; return its directory."""
    parts = urlsplit(database_url)
    user = parts.username or "postgres"
    url = urlunsplit(parts._replace(netloc=f"{user}:{SECRET}@{parts.netloc.rpartition('@')[2]}"))
    directory = tmp_path / ".msgcenter"
    directory.mkdir()
    ticks = started_ticks(os.getpid()) or 0
    State(os.getpid(), ticks, "127.0.0.1:1", os.getpid(), ticks, url, url).write(directory)
    for name in ("CONFDB", "MSGDB"):
        monkeypatch.delenv(f"MSGCENTER_{name}_URL")
    return directory


@pytest.fixture
def event_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have Spark keep its event log; return where."""
    settings, log = tmp_path / "spark", tmp_path / "events"
    settings.mkdir()
    log.mkdir()
    text = f"spark.eventLog.enabled true\nspark.eventLog.dir file://{log}\nspark.eventLog.compress false\n"
    (settings / "spark-defaults.conf").write_text(text)
    monkeypatch.setenv("SPARK_CONF_DIR", str(settings))
    return log


@contextmanager
def arguments_seen() -> Iterator[set[str]]:
    """Gather the arguments of all processes that this one has below it, while the block runs."""
    seen: set[str] = set()
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.05):
            for process in psutil.Process().children(recursive=True):
                try:
                    seen.add(" ".join(process.cmdline()))
                except (psutil.NoSuchProcess, psutil.ZombieProcess):
                    # It has ended since.
                    continue

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        is_over.set()
        looking.join()


def assert_secret_in_none_of(texts: list[str]) -> None:
    assert [text for text in texts if SECRET in text] == []


def typed(number: int, day: date) -> list[str]:
    """Return what is typed in a block of the chapter on the archive, for that day."""
    return [line.replace("2026-11-17", f"{day}") for line in typed_in("command-line.md", "The archive", number)]


def test_what_is_typed_of_jobs_does_what_is_said_and_tells_nobody_the_password(
    msgcenter: Msgcenter, queue_id: int, center: Path, event_log: Path, day: date
) -> None:
    with arguments_seen() as seen:
        commands = [shlex.split(command, comments=True)[1:] for command in typed(0, day)]
        archived, listed, shown, verified = (msgcenter(*command) for command in commands)
        assert archived.out.splitlines()[-1].startswith(f"Archived message of {day}: {ROWS:,} rows in 1 file, ")
        assert (archived.status, "ARCHIVED" in listed.out, "VERIFIED" in shown.out) == (0, True, True)
        assert verified.out.splitlines()[-1].startswith(
            f"As it was archived: message of {day}: {ROWS:,} rows in 1 file,"
        )
        first = msgcenter("etl", "show", f"{day}", "--json").json["run_id"]

        place = center / "archive"
        submitted = submit(typed(2, day)[1].replace("s3://bucket/archive", str(place)) + " --again", center)
        (done,) = json.loads(submitted.stdout)["archived"]
    assert (done["table"], done["day"], done["rows"], done["run_id"] > first) == ("message", f"{day}", ROWS, True)
    assert msgcenter("etl", "show", f"{day}", "--json").json["run_id"] == done["run_id"]
    (file,) = place.glob(f"message/day={day}/run={done['run_id']}/*.parquet")
    assert duckdb.read_parquet(str(file)).aggregate("count(DISTINCT queue_offset)").fetchall() == [(ROWS,)]

    assert len([arguments for arguments in seen if "java" in arguments]) >= 3
    assert_secret_in_none_of([*seen, submitted.stdout, submitted.stderr])
    logs = [path for path in (*event_log.rglob("*"), *center.glob("*.log"), *place.rglob("*.json")) if path.is_file()]
    assert {path.name for path in logs} >= {"etl-archive.log", "etl-verify.log", "_manifest.json"}
    assert_secret_in_none_of([path.read_text() for path in logs])


def submit(command: str, center: Path) -> subprocess.CompletedProcess[str]:
    """Type *command* in a shell that finds this Python first, with the center's store in its environment."""
    url = json.loads((center / "state.json").read_text())["msgdb_url"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "MSGCENTER_MSGDB_URL": url, "PATH": path}
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_ctrl_c_ends_it_in_good_order_and_the_day_stays_pending(
    msgcenter: Msgcenter, queue_id: int, database_url: str, tmp_path: Path, day: date
) -> None:
    command = [sys.executable, "-m", "msgconsole.cli", "etl", "archive", "--place", str(tmp_path / "archive")]
    pipe = subprocess.PIPE
    with (
        psycopg.connect(database_url) as writer,
        subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process,
    ):
        # Somebody is in the middle of an append: the day cannot be closed meanwhile.
        writer.execute("SELECT pg_advisory_xact_lock(%s, %s)", (QUEUE_LOCK_CLASS, queue_lock_key(queue_id)))
        assert process.stdout is not None
        next(line for line in process.stdout if "waiting for what is in flight" in line)
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert (process.returncode, said) == (130, f"Interrupted: {day} of message stays pending.\n")
    assert len(started) >= 2
    eventually_blocking(lambda: left_running(started) == [])
    found = msgcenter("etl", "show", f"{day}", "--json").json
    assert (found["state"], [run["state"] for run in found["runs"]]) == ("PENDING", ["FAILED"])
    assert found["reason"] == "it was interrupted"


# --- refused before Spark starts --------------------------------------------------------------------------------------


def test_a_day_that_is_not_over_is_refused(msgcenter: Msgcenter, queue_id: int) -> None:
    done = msgcenter("etl", "archive", "--day", f"{days_ago(0)}", "--place", "archive")
    assert (done.status, done.err.count("(DAY_STILL_OPEN)")) == (1, 1)


def test_a_day_that_the_store_does_not_have_is_refused(msgcenter: Msgcenter) -> None:
    done = msgcenter("etl", "archive", "--day", "2026-01-01", "--place", "archive")
    assert (done.status, done.err) == (1, "there is no day of message '2026-01-01' (THING_NOT_FOUND)\n")


def test_nothing_is_archived_nowhere(msgcenter: Msgcenter) -> None:
    done = msgcenter("etl", "archive", "--day", "2026-01-01")
    assert (done.status, done.err) == (1, "no archive: give --place, or set MSGCENTER_ARCHIVE (ARCHIVE_PLACE)\n")


def test_a_database_that_is_not_migrated_is_told_in_a_sentence(
    msgcenter: Msgcenter, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSGCENTER_MSGDB_URL", empty_database_url)
    sentence = "the message store does not have the tables of this version: run `msgcenter migrate` (NOT_MIGRATED)\n"
    for command in (("archive", "--day", "2026-01-01"), ("daily",)):
        done = msgcenter("etl", *command, "--place", "archive")
        assert (done.status, done.err) == (1, sentence)


def test_without_java_one_sentence_says_what_to_install(
    msgcenter: Msgcenter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = msgcenter("etl", "verify", "--day", "2026-01-01", "--place", "archive")
    assert (done.status, len(done.err.splitlines())) == (1, 1)
    assert "install the package openjdk-17-jre-headless" in done.err


def test_the_program_itself_refuses_without_a_store_or_a_place(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MSGCENTER_")}
    for arguments, reason in ((["daily"], "ARCHIVE_PLACE"), (["daily", "--place", str(tmp_path)], "NO_DATABASE")):
        done = subprocess.run([*PROGRAM, *arguments], env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, json.loads(done.stdout)["error"]["reason"]) == (1, reason)
        assert re.search("Traceback", done.stderr) is None


@pytest.mark.parametrize("job", ["live", "daily"])
def test_the_place_of_another_store_is_refused_before_spark_starts(database_url: str, tmp_path: Path, job: str) -> None:
    async def meet() -> None:
        async with MessageStore.open(database_url, pool_size=1) as store:
            await store.follow_history()

    asyncio.run(meet())
    check_store(Place.at(str(tmp_path)), UUID(int=1))
    environment = {**os.environ, "MSGCENTER_MSGDB_URL": database_url, "MSGCENTER_ARCHIVE": str(tmp_path)}

    done = subprocess.run([*PROGRAM, job], env=environment, capture_output=True, text=True, check=False)

    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["reason"]) == (1, "ARCHIVE_PLACE")
    assert "another message store" in error["message"]
    assert "Spark" not in done.stderr
