"""`msgcenter dead-letters redrive` and `purge`: what is done about dead letters."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from msgconsole.cli.carrying_out.acting import act
from msgconsole.cli.carrying_out.following import follow_begun
from msgconsole.cli.carrying_out.service import actor
from msgconsole.cli.commands.dead_letters.options import (
    AllOfThem,
    DiedOf,
    DiedSince,
    DiedUntil,
    Earlier,
    Ids,
    OfError,
    check_earlier,
    tell_earlier,
)
from msgconsole.cli.printing.output import plain, print_json, print_line, print_rows
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    DoNotFollow,
    DryRun,
    Namespace,
    OfEventCode,
    OfGroup,
    OfKey,
    OfTopic,
    Rate,
    Reason,
    read_headers,
    require_reason,
)
from msgconsole.operations.dead_letters import purge as purging
from msgconsole.operations.dead_letters import redrive as redriving
from msgconsole.operations.dead_letters.meant import Begun, LetterSum, count_earlier, resolve_group
from msgconsole.operations.dead_letters.purge import PurgePlan
from msgconsole.operations.dead_letters.redrive import RedrivePlan
from msgconsole.operations.stores import Stores
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs.records import RATE_DEFAULT
from msgdb.jobs.specs import Edit

_SUM_COLUMNS: Final = ("group", "topic", "event_code", "stress", "letters", "redriven", "problem")


def redrive(
    ids: Ids = None,
    group: OfGroup = None,
    topic: OfTopic = None,
    event_code: OfEventCode = None,
    key: OfKey = None,
    why: DiedOf = None,
    error: OfError = None,
    since: DiedSince = None,
    until: DiedUntil = None,
    all_of_them: AllOfThem = False,
    again: Annotated[bool, typer.Option("--again", help="Also those that were redriven before.")] = False,
    body: Annotated[str | None, typer.Option("--body", help="With this body instead (of a single one).")] = None,
    body_file: Annotated[
        Path | None, typer.Option("--body-file", exists=True, dir_okay=False, help="With the bytes of this file.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="With these headers instead of all it had (of a single)."),
    ] = None,
    reason: Reason = None,
    rate: Rate = RATE_DEFAULT,
    dry_run: DryRun = False,
    no_wait: DoNotFollow = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Deliver dead letters again, each to the group it failed in and to no other.

    A message keeps its id, and its attempts begin anew; handlers see how often (`message.redrives`). The dead letter
    stays, marked, until it is purged. A job does it: it goes on when this command is ended, and when a broker dies.

    Example: msgcenter dead-letters redrive --group SG_POINTS --error timeout --since 10:00 --until 11:00 --dry-run
    """
    who = require_reason(reason, dry_run=dry_run)
    wanted = WantedDeadLetters(
        ids=tuple(ids) if ids else None, topic=topic, event_code=event_code, key=key, why=why, error=error,
        died_from=since, died_before=until,
    )  # fmt: skip
    _require_some(wanted, group, all_of_them=all_of_them)
    wanted = wanted if again else replace(wanted, is_open=True)
    edit = _edit(body, body_file, header)

    async def begin(stores: Stores) -> Begun | RedrivePlan:
        resolved = await resolve_group(stores, wanted, namespace, group)
        gone = "they cannot be delivered any more (`dead-letters list --earlier` shows these)"
        tell_earlier(group, await count_earlier(stores, resolved, group), gone)
        if dry_run:
            return await redriving.plan_redrive(stores, resolved)
        return await redriving.redrive(stores, resolved, actor=actor(), reason=who, rate=rate, edit=edit)

    done = act(begin)
    if isinstance(done, Begun):
        follow_begun(done.job_id, namespace, no_wait=no_wait, as_json=as_json)
        return
    said = f"{done.redriven:,} would be delivered again"
    said += f", {done.impossible:,} cannot be" if done.impossible else ""
    _tell_plan(done, done.sums, said, as_json=as_json)


def purge(
    ids: Ids = None,
    group: OfGroup = None,
    topic: OfTopic = None,
    event_code: OfEventCode = None,
    key: OfKey = None,
    why: DiedOf = None,
    error: OfError = None,
    since: DiedSince = None,
    until: DiedUntil = None,
    all_of_them: AllOfThem = False,
    is_earlier: Earlier = False,
    redriven: Annotated[bool, typer.Option("--redriven", help="Only those that were redriven.")] = False,
    include_unarchived: Annotated[
        bool, typer.Option("--include-unarchived", help="Also those that must be archived first, and are not.")
    ] = False,
    reason: Reason = None,
    rate: Rate = RATE_DEFAULT,
    dry_run: DryRun = False,
    no_wait: DoNotFollow = False,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Delete dead letters for good. Their messages stay in the log for as long as it is kept.

    Those of a day that is just being archived stay, and so do those that must be archived first (`etl require`).

    Example: msgcenter dead-letters purge --group SG_POINTS --redriven --until yesterday --dry-run
    """
    who = require_reason(reason, dry_run=dry_run)
    wanted = WantedDeadLetters(
        ids=tuple(ids) if ids else None, topic=topic, event_code=event_code, key=key, why=why, error=error,
        died_from=since, died_before=until, is_open=False if redriven else None,
    )  # fmt: skip
    check_earlier(group, is_earlier=is_earlier)
    _require_some(wanted, group, all_of_them=all_of_them)

    async def begin(stores: Stores) -> Begun | PurgePlan:
        resolved = await resolve_group(stores, wanted, namespace, group, is_earlier=is_earlier)
        tell_earlier(group, await count_earlier(stores, resolved, group), "--earlier purges these")
        if dry_run:
            return await purging.plan_purge(stores, resolved, include_unarchived=include_unarchived)
        return await purging.purge(
            stores, resolved, actor=actor(), reason=who, rate=rate, include_unarchived=include_unarchived
        )

    done = act(begin)
    if isinstance(done, Begun):
        follow_begun(done.job_id, namespace, no_wait=no_wait, as_json=as_json)
        return
    said = f"{done.purged:,} would be deleted"
    if done.unarchived and not include_unarchived:
        said += f", {done.unarchived:,} must be archived first"
    _tell_plan(done, done.sums, said, as_json=as_json)


def _tell_plan(planned: object, sums: Sequence[LetterSum], said: str, *, as_json: bool) -> None:
    if as_json:
        print_json(plain(planned))
        return
    print_rows(sums, _SUM_COLUMNS, as_json=False, empty="No dead letters are meant.")
    for note in sorted({each.note for each in sums if each.note is not None}):
        print_line(f"Note: {note}.")
    print_line(f"{said}. Nothing was changed.")


def _require_some(wanted: WantedDeadLetters, group: str | None, *, all_of_them: bool) -> None:
    """Refuse what means all dead letters by chance."""
    is_narrowed = group is not None or wanted != WantedDeadLetters(is_open=wanted.is_open)
    if not is_narrowed and wanted.is_open is not False and not all_of_them:
        raise typer.BadParameter("say which ones, by id or by a condition; or --all")


def _edit(body: str | None, body_file: Path | None, header: list[str] | None) -> Edit | None:
    if body is not None and body_file is not None:
        raise typer.BadParameter("is given twice", param_hint="--body")
    content = None if body_file is None else body_file.read_bytes()
    if body is not None:
        # What the shell gave that is not UTF-8 goes out as it came.
        content = body.encode(errors="surrogateescape")
    if content is None and header is None:
        return None
    encoded = None if content is None else base64.b64encode(content).decode()
    return Edit(encoded, None if header is None else read_headers(header))
