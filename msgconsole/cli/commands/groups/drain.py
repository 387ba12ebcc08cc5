"""`msgcenter group drain`: wait until a group has settled all that is stored now."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from types import TracebackType
from typing import Annotated, Final, Self

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from msgconsole.cli.carrying_out.acting import open_stores
from msgconsole.cli.printing.output import console, plain, print_json, print_line, print_rows
from msgconsole.cli.typed.options import DEFAULT_NAMESPACE, AsJson, Namespace, OfTopic, SubscriberGroup
from msgconsole.operations.lanes.draining import Drain, drain_group

_LINE_SECONDS_MIN: Final = 10.0
"""How long lines are apart, at least: they end up in log files."""
_COLUMNS: Final = ("topic", "queue_id", "behind", "redeliveries", "shelved", "is_served")


def drain(
    group: SubscriberGroup,
    topic: OfTopic = None,
    timeout_seconds: Annotated[
        float | None, typer.Option("--timeout", min=0.0, metavar="SECONDS", help="Wait no longer than this.")
    ] = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Wait until a group is empty: all that is stored now is settled, what waits for another attempt as well.

    What is published after that is not waited for. It says what it waits for (a paused group, no instance, attempts
    that are due later), and changes nothing: not to publish meanwhile, or to end a pause, is up to you. It ends with
    status 0 once the group is empty, with 1 where that takes longer than --timeout.

    Example: msgcenter group drain SG_POINTS --timeout 0.5
    """

    async def wait() -> Drain:
        with _Progress(group, is_quiet=as_json) as progress:
            async with open_stores() as stores:
                return await drain_group(
                    stores, namespace, group, topic, timeout_seconds=timeout_seconds, on_progress=progress.show
                )

    drained = asyncio.run(wait())
    if as_json:
        print_json(plain(drained) | {"unsettled": drained.unsettled, "is_empty": drained.is_empty})
    elif drained.is_empty:
        print_line(f"Group {group} is empty: all that was stored as the wait began is settled.")
    else:
        left = [each for each in drained.queues if each.unsettled]
        print_rows(left, _COLUMNS, as_json=False, empty="")
        print_line(f"Group {group} is not empty: {_described(drained)}.")
    if not drained.is_empty:
        raise typer.Exit(1)


def _described(drained: Drain) -> str:
    behind = sum(each.behind for each in drained.queues)
    waits = "".join(f"; {reason}" for reason in drained.waits_for)
    return f"{drained.unsettled:,} messages left, {behind:,} of them not tried yet or with an instance{waits}"


class _Progress:
    """Shows how far a group is: a bar in a terminal, a line now and then anywhere else. Nothing where *is_quiet*."""

    def __init__(self, group: str, *, is_quiet: bool) -> None:
        self._group = group
        self._shows_bar = not is_quiet and sys.stdout.isatty()
        self._shows_lines = not is_quiet and not self._shows_bar
        self._line_at = -math.inf
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console(), transient=True, disable=not self._shows_bar)
        self._task = self._bar.add_task(group, total=None)
        self._most = 1

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, drained: Drain) -> None:
        """Show what is left."""
        # It may grow: a group that is put back has more to do.
        self._most = max(self._most, drained.unsettled)
        text = f"{self._group}: {_described(drained)}"
        self._bar.update(self._task, description=text, total=self._most, completed=self._most - drained.unsettled)
        if self._shows_lines and time.monotonic() - self._line_at >= _LINE_SECONDS_MIN:
            self._line_at = time.monotonic()
            print_line(f"{text} ...")
