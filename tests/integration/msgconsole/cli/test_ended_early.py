"""A change that is waited for stands, whoever ends the waiting: the command says so."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from dataclasses import replace

import psycopg
import pytest

from confdb.brokers import BrokerRegistry
from confdb.store import ConfigStore
from msgconsole.cli.printing.waiting import stands_though_ended
from msgdb.acts import list_acts
from msgdb.lanes.leases import claim
from msgdb.lanes.records import LaneToClaim
from msgdb.postgres.connections import Connection
from tests.integration.msgconsole.cli.conftest import Do, Msgcenter
from tests.integration.msgconsole.operations.configuration.test_archive_switch import beat_of
from tests.support.eventually import eventually_blocking
from tests.support.rows import OWNER

_UPDATE = ("update", "SG_POINTS", "TP_TRADE", "--expression", 'headers.region == "hz"')
_CREATE = ("create", "SG_STOCK", "TP_TRADE")


_WAITS = """
SELECT count(*) FROM pg_stat_activity, config_version
WHERE datname = current_database() AND pid <> pg_backend_pid() AND version > %s AND query_start > changed_at
  AND query LIKE '%%FROM broker%%'
"""


def version_of(url: str) -> int:
    with psycopg.connect(url) as connection:
        ((version,),) = connection.execute("SELECT version FROM config_version").fetchall()
    return int(version)


def waits(url: str, version: int) -> bool:
    """Return whether the change after *version* is made, and brokers are asked for whether they know of it."""
    with psycopg.connect(url) as connection:
        return connection.execute(_WAITS, (version,)).fetchone() != (0,)


@pytest.fixture
def url(msgcenter: Msgcenter, topic: str) -> str:
    """Register two groups, one with a subscription, and a broker that stays as it is; return the database's URL."""
    for arguments in (("group", "create", "SG_STOCK"), ("subscription", "create", "SG_POINTS", "TP_TRADE")):
        assert msgcenter(*arguments, "--no-wait").status == 0

    async def beat() -> None:
        async with ConfigStore.open(topic) as store:
            await BrokerRegistry(store).beat(replace(beat_of(1), broker_id=OWNER))

    asyncio.run(beat())
    return topic


@pytest.mark.parametrize("change", [_UPDATE, _CREATE, (*_CREATE, "--json")])
def test_a_subscription_that_is_registered_is_told_of_though_the_waiting_is_ended(
    url: str, change: tuple[str, ...]
) -> None:
    before = version_of(url)
    command = [sys.executable, "-m", "msgconsole.cli", "subscription", *change]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        eventually_blocking(lambda: waits(url, before))
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=30)

    assert (process.returncode, out) == (130, "")
    stands = f"The subscription of {change[1]} to TP_TRADE/* is registered; perhaps not everywhere yet."
    assert stands in said.splitlines()


def test_where_a_commit_was_not_answered_it_is_said_that_it_may_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(asyncio.CancelledError), stands_though_ended("The subscription"):
        raise asyncio.CancelledError
    assert capsys.readouterr().err == "The subscription may be registered: that was not waited for.\n"


def test_a_group_that_is_reset_is_told_of_though_the_waiting_is_ended(url: str, do: Do) -> None:
    async def serve(conn: Connection) -> None:
        ((group_id,),) = await (await conn.execute("SELECT group_id FROM subscription")).fetchall()
        ((queue_id,),) = await (await conn.execute("SELECT queue_id FROM queue LIMIT 1")).fetchall()
        await claim(conn, OWNER, [LaneToClaim(group_id, "", queue_id, 0)], 60.0)

    do(serve)
    command = [sys.executable, "-m", "msgconsole.cli", "group", "reset", "SG_POINTS", "--to-end", "--reason", "why"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)

    assert told == "It is done, and stands. Waiting for broker 127.0.0.1:1 ...\n"
    assert (process.returncode, out) == (130, "")
    (act,) = do(list_acts)
    assert act.action == "group.reset"
