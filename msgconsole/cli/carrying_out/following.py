"""Follow a job that brokers carry out: a bar in a terminal, a line now and then anywhere else."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from typing import Final

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from confdb.brokers import BrokerRegistry
from msgbroker.contract.errors import JobStoppedError
from msgbroker.contract.names import DEFAULT_NAMESPACE
from msgconsole.cli.carrying_out.acting import open_stores
from msgconsole.cli.printing.output import console, on_one_line, print_json, print_line
from msgconsole.operations.stores import Stores
from msgdb.jobs.listing import JobStatus, get_job
from msgdb.jobs.records import JobState

_POLL_SECONDS: Final = 0.3
_LINE_SECONDS_MIN: Final = 10.0
"""How long lines are apart, at least: they end up in log files."""


def follow_job(job_id: int, namespace: str, *, is_quiet: bool) -> JobStatus:
    """Show how far a job of a namespace is until it has ended or was paused, and return how it stands then.

    Where no broker is running that is said, and it is not waited for.
    """
    return asyncio.run(_follow(job_id, namespace, is_quiet=is_quiet))


def how_to(act: str, job_id: int, namespace: str) -> str:
    """Return what is typed to do something with a job."""
    return f"msgcenter job {act} {job_id}" + ("" if namespace == DEFAULT_NAMESPACE else f" -n {namespace}")


def follow_begun(job_id: int, namespace: str, *, no_wait: bool, as_json: bool) -> None:
    """Print that a job has begun, and (unless *no_wait*) follow it to its end."""
    follow = how_to("follow", job_id, namespace)
    if no_wait:
        if as_json:
            print_json({"job_id": job_id})
        else:
            print_line(f"Job {job_id} has begun: {follow}")
        return
    if not as_json:
        print_line(f"Job {job_id} has begun. Ctrl-C ends only the looking: {follow}")
    tell_job(follow_job(job_id, namespace, is_quiet=as_json), as_json=as_json)


def tell_job(status: JobStatus, *, as_json: bool) -> None:
    """Print how a job stands; a job that failed is a command that failed."""
    if as_json:
        print_json(status)
    else:
        print_line(_said_of(status))
    if status.state == JobState.FAILED:
        raise JobStoppedError(status.job_id, status.last_error or "nobody knows why")


def _said_of(status: JobStatus) -> str:
    """Return in a sentence how a job stands."""
    counted = [f"{status.done:,} done"]
    if status.failed:
        counted.append(f"{status.failed:,} failed (`{how_to('show', status.job_id, status.namespace)}` says why)")
    if status.skipped:
        counted.append(f"{status.skipped:,} not there any more")
    waits = "" if status.last_error is None else f" {status.last_error}."
    return f"Job {status.job_id} is {status.state}: {', '.join(counted)} of {status.total:,}.{waits}"


async def _follow(job_id: int, namespace: str, *, is_quiet: bool) -> JobStatus:
    async with open_stores() as stores:
        status = await _look(stores, job_id, namespace)
        if status.state == "RUNNING" and not await BrokerRegistry(stores.config).list_live():
            typer.echo("No broker is running: the job begins when one does.", err=True)
            return status
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        shows_bar = not is_quiet and sys.stdout.isatty()
        with Progress(*columns, console=console(), transient=True, disable=not shows_bar) as bar:
            task = bar.add_task(f"Job {job_id}", total=max(status.total, 1))
            line_at = -math.inf
            while status.state == "RUNNING" or status.is_in_step:
                bar.update(task, completed=_counted(status), description=_described(status))
                if not is_quiet and not shows_bar and time.monotonic() - line_at >= _LINE_SECONDS_MIN:
                    line_at = time.monotonic()
                    print_line(f"{_described(status)}: {_counted(status):,} of {status.total:,} ...")
                await asyncio.sleep(_POLL_SECONDS)
                status = await _look(stores, job_id, namespace)
        return status


async def _look(stores: Stores, job_id: int, namespace: str) -> JobStatus:
    async with stores.messages.looking() as conn:
        return await get_job(conn, job_id, namespace=namespace)


def _counted(status: JobStatus) -> int:
    return status.done + status.failed + status.skipped


def _described(status: JobStatus) -> str:
    waits = f", waits: {on_one_line(status.last_error)}" if status.last_error and status.waits_seconds else ""
    return f"Job {status.job_id}{waits}"
