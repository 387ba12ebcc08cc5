"""Redriving dead letters: what would happen, and the job that does it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from confdb.features import Feature
from confdb.snapshot import load_snapshot
from msgbroker.contract import limits, names
from msgbroker.contract.errors import BodyTooLargeError, InvalidSettingError, NothingSelectedError
from msgconsole.operations.dead_letters.meant import Begun, LetterSum, namespace_of, sum_letters, thing_of
from msgconsole.operations.stores import Stores
from msgdb.dead_letters.reading import get_dead_letter
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs.records import RATE_DEFAULT, JobKind, NewJob
from msgdb.jobs.specs import Edit, RedriveSpec
from msgdb.jobs.steering import begin_job


@dataclass(frozen=True, slots=True)
class RedrivePlan:
    """What redriving would do."""

    sums: Sequence[LetterSum]
    redriven: int
    """How many messages would be delivered again."""
    impossible: int
    """How many could not be: they stay as they are, and the job says why."""
    last_id: int


async def plan_redrive(stores: Stores, wanted: WantedDeadLetters) -> RedrivePlan:
    """Return what redriving the dead letters that are *wanted* would do. Changes nothing.

    Raises InvalidSettingError where it is not said of which namespace, LookTooLongError.
    """
    sums, last_id = await sum_letters(stores, wanted)
    impossible = sum(each.letters for each in sums if each.problem is not None)
    return RedrivePlan(sums, sum(each.letters for each in sums) - impossible, impossible, last_id)


async def redrive(
    stores: Stores,
    wanted: WantedDeadLetters,
    *,
    actor: str,
    reason: str,
    rate: float = RATE_DEFAULT,
    edit: Edit | None = None,
) -> Begun:
    """Begin a job that delivers the dead letters that are *wanted* again, each to the group it failed in.

    *edit*: with another body or other headers, of a single one. Raises NothingSelectedError where there are none,
    InvalidSettingError where it is not said of which namespace, and FeatureNotEverywhereError while a broker is running
    that would not keep them to their groups.
    """
    namespace = namespace_of(wanted)
    if edit is not None:
        await _check_edit(stores, wanted, edit)
    await stores.service(actor).check_everywhere(Feature.JOBS)
    plan = await plan_redrive(stores, wanted)
    total = plan.redriven + plan.impossible
    if not total:
        raise NothingSelectedError("open dead letter" if wanted.is_open else "dead letter")
    job = NewJob(
        kind=JobKind.REDRIVE,
        namespace=namespace,
        thing=thing_of(plan.sums, total),
        spec=RedriveSpec(wanted, plan.last_id, edit).as_json(),
        total=total,
        rate=rate,
    )
    edited = [] if edit is None else [name for name in ("body", "headers") if _is_edited(edit, name)]
    detail = {"wanted": wanted.as_json(), "impossible": plan.impossible, "edited": edited}
    async with stores.messages.transaction() as conn:
        return Begun(await begin_job(conn, job, actor=actor, reason=reason, detail=detail), total)


def _is_edited(edit: Edit, name: str) -> bool:
    return (edit.body_base64 if name == "body" else edit.headers) is not None


async def _check_edit(stores: Stores, wanted: WantedDeadLetters, edit: Edit) -> None:
    if wanted.ids is None or len(wanted.ids) != 1:
        raise InvalidSettingError("edit", "is for a single dead letter, named by its id")
    if edit.headers is not None:
        names.check_headers(edit.headers)
    if edit.body_base64 is None:
        return
    async with stores.messages.looking() as conn:
        summary = (await get_dead_letter(conn, wanted.ids[0], namespace=wanted.namespace)).summary
    topic = (await load_snapshot(stores.config)).topics.get((summary.namespace, summary.topic))
    # What it was taken with it may have again, whatever the topic's limit is by now.
    body_bytes_max = max(summary.body_bytes, limits.BODY_BYTES_DEFAULT if topic is None else topic.body_bytes_max)
    body_bytes = len(base64.b64decode(edit.body_base64))
    if body_bytes > body_bytes_max:
        raise BodyTooLargeError(summary.topic, body_bytes, body_bytes_max)
