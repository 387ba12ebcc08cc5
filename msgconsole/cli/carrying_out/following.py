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
from msgconsole.cli.carrying_out.acting import open_stores
from msgconsole.cli.printing.output import console, print_json, print_line
from msgconsole.operations.stores import Stores
from msgdb.jobs.listing import JobStatus, get_job
from msgdb.jobs.records import JobState

_POLL_SECONDS: Final = 0.3
_LINE_SECONDS_MIN: Final = 10.0
"""How long lines are apart, at least: they end up in log files."""


def follow_job(job_id: int, *, is_quiet: bool) -> JobStatus:
    """Show how far a job is until it has ended or was paused, and return how it stands then.

    Where no broker is running that is said, and it is not waited for.
    """
    return asyncio.run(_follow(job_id, is_quiet=is_quiet))


def follow_begun(job_id: int, *, no_wait: bool, as_json: bool) -> None:
    """Print that a job has begun, and (unless *no_wait*) follow it to its end."""
    if no_wait:
        if as_json:
            print_json({"job_id": job_id})
        else:
            print_line(f"Job {job_id} has begun: msgcenter job follow {job_id}")
        return
    if not as_json:
        print_line(f"Job {job_id} has begun. Ctrl-C ends only the looking: msgcenter job follow {job_id}")
    tell_job(follow_job(job_id, is_quiet=as_json), as_json=as_json)


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
        counted.append(f"{status.failed:,} failed (`msgcenter job show {status.job_id}` says why)")
    if status.skipped:
        counted.append(f"{status.skipped:,} not there any more")
    waits = "" if status.last_error is None else f" {status.last_error}."
    return f"Job {status.job_id} is {status.state}: {', '.join(counted)} of {status.total:,}.{waits}"


async def _follow(job_id: int, *, is_quiet: bool) -> JobStatus:
    async with open_stores() as stores:
        status = await _look(stores, job_id)
        if status.state == "RUNNING" and not await BrokerRegistry(stores.config).list_live():
            typer.echo("No broker is running: the job begins when one does.", err=True)
            return status
        columns = (
            TextColumn("{task.description}"),
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
                status = await _look(stores, job_id)
        return status


async def _look(stores: Stores, job_id: int) -> JobStatus:
    async with stores.messages.looking() as conn:
        return await get_job(conn, job_id)


def _counted(status: JobStatus) -> int:
    return status.done + status.failed + status.skipped


def _described(status: JobStatus) -> str:
    waits = f", waits: {status.last_error}" if status.last_error and status.waits_seconds else ""
    return f"Job {status.job_id}{waits}"
