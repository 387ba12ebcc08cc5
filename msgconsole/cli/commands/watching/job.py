"""`msgcenter job`: what brokers carry out for operators, and how far each is."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from msgconsole.cli.carrying_out.following import follow_job, tell_job
from msgconsole.cli.carrying_out.service import actor, check_known
from msgconsole.cli.carrying_out.store import change_store, read_store
from msgconsole.cli.printing.incomplete import tell_more
from msgconsole.cli.printing.output import plain, print_json, print_line, print_rows, print_thing
from msgconsole.cli.typed.options import (
    DEFAULT_NAMESPACE,
    AsJson,
    Limit,
    Namespace,
    OfNamespace,
    ReasonAlways,
    require_reason,
)
from msgdb.jobs import listing, steering
from msgdb.jobs.listing import JobStatus
from msgdb.jobs.records import RATE_MAX, JobFailure, JobState
from msgdb.postgres.connections import Connection

app = typer.Typer(no_args_is_help=True)

_COLUMNS: Final = ("job_id", "kind", "state", "thing", "done", "failed", "total", "created_at", "actor")
_WITH_NAMESPACE: Final = (*_COLUMNS[:3], "namespace", *_COLUMNS[3:])

_Id = Annotated[int, typer.Argument(metavar="ID", help="As listed.")]


@app.command("list")
def list_(
    is_open: Annotated[bool, typer.Option("--open", help="Only those that have not ended.")] = False,
    before: Annotated[int | None, typer.Option("--before", help="Only jobs older than this id.")] = None,
    limit: Limit = 50,
    namespace: OfNamespace = None,
    as_json: AsJson = False,
) -> None:
    """List jobs (redrive, purge, replay), the newest first. Kept for 90 days after they ended. Times are UTC.

    Example: msgcenter job list --open
    """
    found = read_store(
        lambda conn: listing.list_jobs(conn, namespace=namespace, only_open=is_open, before_id=before, limit=limit)
    )
    if not found:
        check_known(namespace)
    columns = _WITH_NAMESPACE if len({status.namespace for status in found}) > 1 else _COLUMNS
    print_rows(found, columns, as_json=as_json, empty="No jobs.", long=["thing"], least=["actor"])
    tell_more(found, limit, f"go on with --before {found[-1].job_id if found else 0}")


@app.command("show")
def show(job_id: _Id, namespace: Namespace = DEFAULT_NAMESPACE, as_json: AsJson = False) -> None:
    """Show a job: how far it is, what it goes by, and which messages it could not do (the first thousand).

    Example: msgcenter job show 3
    """

    async def read(conn: Connection) -> tuple[JobStatus, dict[str, Any], list[JobFailure]]:
        status = await listing.get_job(conn, job_id, namespace=namespace)
        spec = await listing.get_spec(conn, job_id, namespace=namespace)
        return status, spec, await listing.list_failures(conn, job_id, namespace=namespace)

    status, spec, failures = read_store(read)
    record: dict[str, Any] = plain(status) | {"spec": {name: value for name, value in spec.items() if value}}
    if as_json:
        print_json(record | {"failures": failures})
    else:
        print_thing(record, as_json=False)
    if failures and not as_json:
        print_line("")
        print_rows(failures, ("item", "error"), as_json=False, empty="")
    if len(failures) < status.failed:
        typer.echo(f"These are the first {len(failures):,} of {status.failed:,} that failed.", err=True)


@app.command("follow")
def follow(job_id: _Id, namespace: Namespace = DEFAULT_NAMESPACE, as_json: AsJson = False) -> None:
    """Show how far a job is until it has ended. Ctrl-C ends only the looking.

    Example: msgcenter job follow 3
    """
    tell_job(follow_job(job_id, namespace, is_quiet=as_json), as_json=as_json)


@app.command("pause")
def pause(
    job_id: _Id, reason: ReasonAlways = None, namespace: Namespace = DEFAULT_NAMESPACE, as_json: AsJson = False
) -> None:
    """Let a job rest. What is on its way into the store is ended first.

    Example: msgcenter job pause 3 --reason "the warehouse is slow"
    """
    _steer(job_id, JobState.PAUSED, reason, namespace, as_json=as_json)


@app.command("resume")
def resume(
    job_id: _Id, reason: ReasonAlways = None, namespace: Namespace = DEFAULT_NAMESPACE, as_json: AsJson = False
) -> None:
    """Let a job that was paused go on.

    Example: msgcenter job resume 3 --reason "the warehouse is back"
    """
    _steer(job_id, JobState.RUNNING, reason, namespace, as_json=as_json)


@app.command("cancel")
def cancel(
    job_id: _Id, reason: ReasonAlways = None, namespace: Namespace = DEFAULT_NAMESPACE, as_json: AsJson = False
) -> None:
    """End a job. What it did before stays done.

    Example: msgcenter job cancel 3 --reason "the wrong group"
    """
    _steer(job_id, JobState.CANCELLED, reason, namespace, as_json=as_json)


@app.command("rate")
def rate(
    job_id: _Id,
    messages: Annotated[float, typer.Argument(metavar="RATE", help=f"Messages a second, up to {RATE_MAX:,.0f}.")],
    reason: ReasonAlways = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Let a job do so many messages a second at most, from its next step on.

    Example: msgcenter job rate 3 500 --reason "it slows the others down"
    """
    why = require_reason(reason)
    change_store(lambda conn: steering.set_rate(conn, job_id, messages, actor=actor(), reason=why, namespace=namespace))
    tell_job(read_store(lambda conn: listing.get_job(conn, job_id, namespace=namespace)), as_json=as_json)


def _steer(job_id: int, state: JobState, reason: str | None, namespace: str, *, as_json: bool) -> None:
    why = require_reason(reason)
    change_store(lambda conn: steering.set_state(conn, job_id, state, actor=actor(), reason=why, namespace=namespace))
    tell_job(read_store(lambda conn: listing.get_job(conn, job_id, namespace=namespace)), as_json=as_json)
