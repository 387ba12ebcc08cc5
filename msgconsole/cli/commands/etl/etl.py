"""`msgcenter etl`: archiving days before they are dropped, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import typer

from msgconsole.cli.commands.etl import days, jobs, policy

app = typer.Typer(no_args_is_help=True)

_COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "archive": jobs.archive,
    "daily": jobs.daily,
    "verify": jobs.verify,
    "live": jobs.live,
    "list": days.list_,
    "show": days.show,
    "waive": days.waive,
    "require": policy.require,
    "stop-requiring": policy.stop_requiring,
    "policy": policy.policy,
}
for name, command in _COMMANDS.items():
    app.command(name)(command)
