"""`msgcenter etl`: archiving days before they are dropped, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import typer

from msgconsole.cli.commands.etl import etl_days, etl_jobs, etl_policy

app = typer.Typer(no_args_is_help=True)

_COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "archive": etl_jobs.archive,
    "daily": etl_jobs.daily,
    "verify": etl_jobs.verify,
    "live": etl_jobs.live,
    "list": etl_days.list_,
    "show": etl_days.show,
    "waive": etl_days.waive,
    "require": etl_policy.require,
    "stop-requiring": etl_policy.stop_requiring,
    "policy": etl_policy.policy,
}
for name, command in _COMMANDS.items():
    app.command(name)(command)
