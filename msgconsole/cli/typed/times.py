"""Times as people type them: one way for all commands. Pure but for the default of *now*."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from typing import Annotated, Final

import typer

_AGO: Final = re.compile(r"-?(\d{1,9})\s*([smhd])\Z")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_CLOCK: Final = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d{1,6})?)?\Z")
_HOUR: Final = timedelta(hours=1)
_DAYS: Final = {"today": 0, "yesterday": 1}
FORMS: Final = "10m, 2h or 3d ago, 10:00 today, yesterday, 2026-11-17, 2026-11-17T10:00, 2026-11-17T10:00+08:00"


def read_time(text: str, now: datetime | None = None) -> datetime:
    """Return the time that somebody typed, in UTC: so long ago, a clock time of today, or a day and a time.

    Without a zone it is UTC. Raises ValueError with a sentence.
    """
    now = now or datetime.now(UTC)
    said = text.strip()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if said == "now":
        return now
    if said in _DAYS:
        return midnight - timedelta(days=_DAYS[said])
    try:
        if ago := _AGO.match(said):
            return now - timedelta(seconds=int(ago[1]) * _SECONDS[ago[2]])
        if _CLOCK.match(said):
            return datetime.combine(midnight.date(), time.fromisoformat(said if said[2] == ":" else f"0{said}"), UTC)
        found = datetime.fromisoformat(said)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is no time: {FORMS}") from error


def hour_before(end: datetime) -> datetime:
    """Return when the hour began that ends then; of the first hour of all, its beginning."""
    return end - min(_HOUR, end - datetime.min.replace(tzinfo=UTC))


def parse_time(text: str) -> datetime:
    """Return the time that was typed, for an option."""
    try:
        return read_time(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Since = Annotated[
    datetime | None,
    typer.Option("--since", parser=parse_time, metavar="TIME", help=f"From this time on, in UTC: {FORMS}."),
]
Until = Annotated[
    datetime | None,
    typer.Option("--until", parser=parse_time, metavar="TIME", help="Before this time, given in the same way."),
]
