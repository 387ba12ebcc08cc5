"""Whoever may see one namespace learns nothing of the acts and jobs of another, and changes nothing of them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest

from msgbroker.contract.errors import ThingNotFoundError
from msgdb import acts
from msgdb.acts import get_act, list_acts
from msgdb.jobs import listing, steering, trials
from msgdb.jobs.listing import get_job, get_spec, list_failures, list_jobs
from msgdb.jobs.records import JobKind, JobState, NewJob
from msgdb.jobs.steering import begin_job, set_rate, set_state
from msgdb.jobs.trials import begin_trial, get_trial
from msgdb.postgres.connections import Connection

BY_ADA: dict[str, Any] = {"actor": "ada", "reason": "why"}
MINE, THEIRS = "default", "shop"
BY_ID: Mapping[str, Callable[..., Awaitable[object]]] = {
    "get_act": get_act,
    "get_job": get_job,
    "get_spec": get_spec,
    "get_trial": get_trial,
    "list_failures": list_failures,
    "set_rate": lambda conn, job_id, **of: set_rate(conn, job_id, 7, **BY_ADA, **of),
    "set_state": lambda conn, job_id, **of: set_state(conn, job_id, JobState.CANCELLED, **BY_ADA, **of),
}
"""Each function that is given the id of an act, a job or a trial by somebody from outside."""
OF_BROKERS = {"end_trial", "note_tried", "take_trial", "wait_for_trial"}
"""What those do that carry a trial out or wait for it: nobody else gives them its id."""


async def put_theirs(conn: Connection) -> dict[str, int]:
    """Have the other namespace do something; return the ids of what there is then."""
    job_id = await begin_job(conn, NewJob(JobKind.PURGE, THEIRS, "dead letters of SG_SECRET", {}, 5), **BY_ADA)
    await conn.execute("INSERT INTO job_failure (job_id, item, error) VALUES (%s, 'a', 'no')", (job_id,))
    trial_id = await begin_trial(conn, 7, "a", [], namespace=THEIRS, thing="instance a", **BY_ADA)
    (*_, act) = await list_acts(conn)
    return {"job_id": job_id, "trial_id": trial_id, "act_id": act.act_id}


def functions_of(module: ModuleType) -> Iterator[tuple[str, set[str]]]:
    """Give the functions that a module shows, with the names of what they are given."""
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == module.__name__ and not name.startswith("_"):
            yield name, {*inspect.signature(function).parameters}


def test_no_function_that_is_given_an_id_was_forgotten() -> None:
    ids = {"act_id", "job_id", "trial_id"}

    found = {
        name: "namespace" in given
        for module in (acts, listing, steering, trials)
        for name, given in functions_of(module)
        if ids & given
    }

    assert {name for name, takes_namespace in found.items() if takes_namespace} == {*BY_ID}
    assert {name for name, takes_namespace in found.items() if not takes_namespace} == OF_BROKERS


@pytest.mark.parametrize("name", BY_ID)
async def test_what_is_of_another_namespace_is_not_there_and_stays_as_it_is(conn: Connection, name: str) -> None:
    ids = await put_theirs(conn)
    kind = next(kind for kind in ids if kind in inspect.signature(getattr(_module_of(name), name)).parameters)
    before, acts_before = await get_job(conn, ids["job_id"]), await list_acts(conn)

    with pytest.raises(ThingNotFoundError, match=f"no {kind.removesuffix('_id')} '{ids[kind]}' in namespace '{MINE}'"):
        await BY_ID[name](conn, ids[kind], namespace=MINE)

    assert (await get_job(conn, ids["job_id"]), await list_acts(conn)) == (before, acts_before)
    await BY_ID[name](conn, ids[kind], namespace=THEIRS)


def _module_of(name: str) -> ModuleType:
    return next(module for module in (acts, listing, steering, trials) if hasattr(module, name))


async def test_a_page_has_nothing_of_another_namespace_wherever_it_begins(conn: Connection) -> None:
    ids = await put_theirs(conn)
    beyond = ids["act_id"] + 1_000

    for before_id in (None, beyond):
        assert await list_jobs(conn, namespace=MINE, before_id=before_id) == []
        assert await list_acts(conn, namespace=MINE, before_id=before_id) == []
        assert [each.job_id for each in await list_jobs(conn, namespace=THEIRS, before_id=before_id)] == [ids["job_id"]]
        assert len(await list_acts(conn, namespace=THEIRS, before_id=before_id)) == 2


async def test_an_act_that_concerns_the_center_or_that_nobody_noted_the_namespace_of_is_of_none(
    conn: Connection,
) -> None:
    about: dict[str, Any] = {"namespace": None, "thing": "message 2026-01-01"}
    of_center = await acts.write_act(conn, action="archive.waive", **about, **BY_ADA)
    await conn.execute("INSERT INTO act (actor, action, thing, reason) VALUES ('ada', 'job.purge', 'of before', 'why')")

    for act_id in (of_center, of_center + 1):
        assert (await get_act(conn, act_id)).namespace is None
        with pytest.raises(ThingNotFoundError):
            await get_act(conn, act_id, namespace=MINE)
