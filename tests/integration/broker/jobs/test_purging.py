"""Dead letters are deleted for good: those that are meant, and none that an archive still needs."""

from __future__ import annotations

from typing import Any

import pytest

from msgbroker.contract.errors import NothingSelectedError
from msgbroker.server.app import Broker
from msgconsole.operations.dead_letters.purge import plan_purge, purge
from msgconsole.operations.stores import Stores
from msgdb.acts import list_acts
from msgdb.dead_letters.choosing import Landing, note_redriven
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs.listing import list_failures
from msgdb.names import DEAD_LETTER
from tests.support.archive_rows import require_archive
from tests.support.archive_runs import claim_day, days_ago
from tests.support.dead_letter_rows import all_dead_letters, bury
from tests.support.jobs import ended

BY_ADA: dict[str, Any] = {"actor": "ada", "reason": "a load test"}
ALL = WantedDeadLetters(namespace="default")


async def ids_left(stores: Stores) -> list[int]:
    async with stores.messages.connection() as conn:
        return [letter.dead_letter_id for letter in await all_dead_letters(conn)][::-1]


async def test_what_is_meant_goes_and_who_did_it_is_known(broker: Broker, stores: Stores) -> None:
    async with stores.messages.connection() as conn:
        kept = await bury(conn, 2, topic="TP_STOCK")
        ids = await bury(conn, 450)
        await note_redriven(conn, 1, [Landing(ids[0], 1, 1)])
    wanted = WantedDeadLetters(namespace="default", topic="TP_TRADE")

    plan = await plan_purge(stores, wanted)
    status = await ended(stores, (await purge(stores, wanted, **BY_ADA)).job_id)

    assert (plan.purged, plan.unarchived, plan.sums[0].redriven) == (450, 0, 1)
    assert (status.state, status.total, status.done, status.failed) == ("DONE", 450, 450, 0)
    assert await ids_left(stores) == kept
    async with stores.messages.connection() as conn:
        (act,) = await list_acts(conn)
    assert (act.action, act.thing) == ("job.purge", "450 dead letters of SG_POINTS")
    with pytest.raises(NothingSelectedError):
        await purge(stores, wanted, **BY_ADA)


async def test_what_dies_after_the_job_began_stays(broker: Broker, stores: Stores) -> None:
    async with stores.messages.connection() as conn:
        await bury(conn, 3)
        begun = await purge(stores, ALL, **BY_ADA, rate=20)
        later = await bury(conn, 2)

    assert (await ended(stores, begun.job_id)).done == 3
    assert await ids_left(stores) == later


async def test_what_must_be_archived_first_stays_unless_it_is_to_go_without(broker: Broker, stores: Stores) -> None:
    async with stores.messages.connection() as conn:
        ids = await bury(conn, 2, age="24 hours")
        ids += await bury(conn, 1)
        await require_archive(conn, DEAD_LETTER)

    assert (await plan_purge(stores, ALL)).purged == 0
    assert (await plan_purge(stores, ALL, include_unarchived=True)).purged == 3
    job_id = (await purge(stores, ALL, **BY_ADA)).job_id
    status = await ended(stores, job_id)
    assert (status.state, status.done, status.failed) == ("DONE", 0, 3)
    assert await ids_left(stores) == ids
    async with stores.messages.connection() as conn:
        assert {failure.error for failure in await list_failures(conn, job_id)} == {
            f"dead letters of {days_ago(1)} must be archived first",
            f"dead letters of {days_ago(0)} must be archived first",
        }

    begun = await purge(stores, ALL, **BY_ADA, include_unarchived=True)
    assert (await ended(stores, begun.job_id)).done == 3
    assert await ids_left(stores) == []


async def test_what_a_run_is_just_reading_stays_whatever_is_said(broker: Broker, stores: Stores) -> None:
    async with stores.messages.connection() as conn:
        archived = await bury(conn, 2, age="24 hours")
        await bury(conn, 1)
        await claim_day(conn, days_ago(1), table=DEAD_LETTER)

    job_id = (await purge(stores, ALL, **BY_ADA, include_unarchived=True)).job_id
    status = await ended(stores, job_id)

    assert (status.done, status.failed) == (1, 2)
    assert await ids_left(stores) == archived
    async with stores.messages.connection() as conn:
        assert "just being archived by" in (await list_failures(conn, job_id))[0].error
