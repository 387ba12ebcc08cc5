"""`msgcenter message`: what is stored."""

from __future__ import annotations

import typer

from msgconsole.cli.commands import message_replay, message_status

app = typer.Typer(no_args_is_help=True)
app.command("replay")(message_replay.replay)
app.command("status")(message_status.status)


@app.callback()
def _message() -> None:
    """Have commands of its own, even while there is a single one."""
