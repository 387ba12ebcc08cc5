"""Purging dead letters: what would happen, and the job that does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from confdb.features import Feature
from msgbroker.contract.errors import NothingSelectedError
from msgconsole.operations.dead_letters.meant import (
    COUNT_SECONDS_MAX,
    Begun,
    LetterSum,
    namespace_of,
    sum_letters,
    thing_of,
)
from msgconsole.operations.stores import Stores
from msgdb import names
from msgdb.archive.listing import list_all_days
from msgdb.archive.policy import find_policy
from msgdb.archive.records import DayState
from msgdb.dead_letters.choosing import count_by_day
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs.records import RATE_DEFAULT, JobKind, NewJob
from msgdb.jobs.specs import PurgeSpec
from msgdb.jobs.steering import begin_job

_ARCHIVED: frozenset[DayState] = frozenset({DayState.ARCHIVED, DayState.WAIVED, DayState.DROPPING})


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """What purging would do."""

    sums: Sequence[LetterSum]
    purged: int
    """How many dead letters would be deleted."""
    unarchived: int
    """How many must be archived first: they stay, unless they are to go without."""
    last_id: int


async def plan_purge(stores: Stores, wanted: WantedDeadLetters, *, include_unarchived: bool = False) -> PurgePlan:
    """Return what purging the dead letters that are *wanted* would do. Changes nothing.

    Raises InvalidSettingError where it is not said of which namespace, LookTooLongError.
    """
    sums, last_id = await sum_letters(stores, wanted)
    unarchived = await _count_unarchived(stores, wanted)
    total = sum(each.letters for each in sums)
    return PurgePlan(sums, total if include_unarchived else total - unarchived, unarchived, last_id)


async def purge(
    stores: Stores,
    wanted: WantedDeadLetters,
    *,
    actor: str,
    reason: str,
    rate: float = RATE_DEFAULT,
    include_unarchived: bool = False,
) -> Begun:
    """Begin a job that deletes the dead letters that are *wanted* for good.

    Raises NothingSelectedError, or InvalidSettingError where it is not said of which namespace.

    *include_unarchived*: also those that must be archived before they go, and are not.
    """
    namespace = namespace_of(wanted)
    await stores.service(actor).check_everywhere(Feature.JOBS)
    plan = await plan_purge(stores, wanted, include_unarchived=include_unarchived)
    total = sum(each.letters for each in plan.sums)
    if not total:
        raise NothingSelectedError("dead letter")
    job = NewJob(
        kind=JobKind.PURGE,
        namespace=namespace,
        thing=thing_of(plan.sums, total),
        spec=PurgeSpec(wanted, plan.last_id, include_unarchived).as_json(),
        total=total,
        rate=rate,
    )
    detail = {"wanted": wanted.as_json(), "unarchived": plan.unarchived, "include_unarchived": include_unarchived}
    async with stores.messages.transaction() as conn:
        return Begun(await begin_job(conn, job, actor=actor, reason=reason, detail=detail), total)


async def _count_unarchived(stores: Stores, wanted: WantedDeadLetters) -> int:
    """Return how many of those that are *wanted* must be archived, and are not."""
    async with stores.messages.looking(COUNT_SECONDS_MAX) as conn:
        policy = await find_policy(conn, names.DEAD_LETTER)
        if policy is None:
            return 0
        by_day = await count_by_day(conn, wanted)
        archived = {status.day for status in await list_all_days(conn, names.DEAD_LETTER) if status.state in _ARCHIVED}
    return sum(count for day, count in by_day.items() if day >= policy.required_from and day not in archived)
