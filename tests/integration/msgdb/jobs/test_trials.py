"""Trials as rows: taken by one broker, written by it alone, ended by whoever waits."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from msgbroker.contract.errors import ThingNotFoundError
from msgdb import schema
from msgdb.acts import list_acts
from msgdb.jobs.specs import Place
from msgdb.jobs.trials import (
    WAITED_SECONDS,
    TrialOutcome,
    TrialState,
    Tried,
    WantedTrial,
    begin_trial,
    end_trial,
    get_trial,
    list_wanted,
    note_tried,
    take_trial,
    wait_for_trial,
)
from msgdb.postgres.connections import Connection
from tests.support.rows import GROUP, OTHER_OWNER, OWNER

PLACES = [Place(1, 7, 1_700_000_000_000_000), Place(1, 9, 1_700_000_000_000_001)]
TRIED = Tried(TrialOutcome.FAILED, 0.25, "no\0t yet")


GIVEN_UP = """
INSERT INTO trial (state, group_id, instance_id, places, created_at, changed_at)
VALUES ('WANTED', 7, 'points-1', %s, now() - interval '21 days', now() - interval '21 days')
"""
LEFT_ALONE = "UPDATE trial SET waited_at = clock_timestamp() - %s * interval '1 second'"


async def begin(conn: Connection) -> int:
    async with conn.transaction():
        said: dict[str, Any] = {"actor": "ada", "reason": "why", "thing": "instance points-1"}
        return await begin_trial(conn, GROUP, "points-1", PLACES, namespace="shop", **said)


async def take(conn: Connection, owner: UUID = OWNER) -> int:
    trial_id = await begin(conn)
    assert await take_trial(conn, trial_id, owner)
    return trial_id


async def test_a_trial_is_wanted_until_one_broker_takes_it(conn: Connection) -> None:
    trial_id = await begin(conn)

    assert await list_wanted(conn) == [WantedTrial(trial_id, GROUP, "points-1", PLACES)]
    assert await take_trial(conn, trial_id, OWNER)
    assert not await take_trial(conn, trial_id, OTHER_OWNER)
    assert await list_wanted(conn) == []
    (act,) = await list_acts(conn)
    assert (act.action, act.namespace, act.detail) == ("message.try", "shop", {"trial_id": trial_id})


async def test_a_trial_of_another_namespace_is_not_there(conn: Connection) -> None:
    trial_id = await begin(conn)

    assert (await get_trial(conn, trial_id, namespace="shop")).state is TrialState.WANTED
    with pytest.raises(ThingNotFoundError):
        await get_trial(conn, trial_id, namespace="default")


async def test_a_trial_that_nobody_waits_for_any_more_is_taken_by_nobody(conn: Connection) -> None:
    trial_id = await begin(conn)
    # Whoever began it was killed; and an instance of that name comes.
    await conn.execute(LEFT_ALONE, (WAITED_SECONDS,))

    assert not await take_trial(conn, trial_id, OWNER)
    assert await list_wanted(conn) == []


async def test_a_trial_that_was_given_up_before_the_migration_is_taken_by_nobody_after_it(
    empty_database_url: str,
) -> None:
    schema.upgrade(empty_database_url, "0022")
    async with await psycopg.AsyncConnection.connect(empty_database_url, autocommit=True) as conn:
        # Whoever began it was killed three weeks ago.
        await conn.execute(GIVEN_UP, (Jsonb([list(place) for place in PLACES]),))
    schema.upgrade(empty_database_url)

    async with await psycopg.AsyncConnection.connect(empty_database_url, autocommit=True) as conn:
        assert await list_wanted(conn) == []


async def test_a_trial_that_nobody_waits_for_is_not_waited_for_until_a_clock_that_was_set_back_has_caught_up(
    conn: Connection,
) -> None:
    trial_id = await begin(conn)
    # Whoever began it was killed, and the database's clock was set back by an hour.
    await conn.execute(LEFT_ALONE, (-3_600,))

    assert not await take_trial(conn, trial_id, OWNER)
    assert await list_wanted(conn) == []


async def test_what_became_of_messages_is_written_by_the_broker_that_has_it_alone(conn: Connection) -> None:
    trial_id = await take(conn)

    assert await note_tried(conn, trial_id, OWNER)
    assert await note_tried(conn, trial_id, OWNER, [TRIED])
    assert not await note_tried(conn, trial_id, OTHER_OWNER, [TRIED])
    status = await get_trial(conn, trial_id)
    assert (status.state, status.tried, status.error) == (TrialState.TRYING, [TRIED._replace(error="not yet")], None)
    assert 0 <= status.silent_seconds < 10


@pytest.mark.parametrize("state", [TrialState.DONE, TrialState.FAILED, TrialState.CANCELLED])
async def test_a_trial_that_has_ended_stays_as_it_is(conn: Connection, state: TrialState) -> None:
    trial_id = await take(conn)
    assert not await end_trial(conn, trial_id, TrialState.FAILED, "nobody", if_in=[TrialState.WANTED])

    assert await end_trial(conn, trial_id, state, "why")

    assert not await end_trial(conn, trial_id, TrialState.CANCELLED)
    assert not await note_tried(conn, trial_id, OWNER, [TRIED])
    status = await get_trial(conn, trial_id)
    assert (status.state, status.error, status.tried) == (state, "why", [])


async def test_what_is_old_goes_with_what_is_new(conn: Connection) -> None:
    old = await begin(conn)
    await conn.execute("UPDATE trial SET created_at = clock_timestamp() - interval '31 days'")

    new = await begin(conn)

    assert [trial.trial_id for trial in await list_wanted(conn)] == [new]
    with pytest.raises(ThingNotFoundError):
        await get_trial(conn, old)


async def test_whoever_tries_hears_that_nobody_waits_any_more_and_what_it_has_is_noted(conn: Connection) -> None:
    trial_id = await take(conn)
    await conn.execute(LEFT_ALONE, (WAITED_SECONDS,))

    assert not await note_tried(conn, trial_id, OWNER, [TRIED])
    assert len((await get_trial(conn, trial_id)).tried) == 1
    await wait_for_trial(conn, trial_id)
    assert await note_tried(conn, trial_id, OWNER)


async def test_to_wait_for_a_trial_that_has_ended_changes_nothing(conn: Connection) -> None:
    trial_id = await take(conn)
    await end_trial(conn, trial_id, TrialState.DONE)
    await conn.execute(LEFT_ALONE, (WAITED_SECONDS,))

    await wait_for_trial(conn, trial_id)

    waited = await conn.execute("SELECT waited_at < clock_timestamp() - interval '5 seconds' FROM trial")
    assert await waited.fetchone() == (True,)
