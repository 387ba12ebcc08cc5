"""`msgcenter message`: what is stored."""

from __future__ import annotations

import typer

from msgconsole.cli.commands import message_replay, message_status, message_steering, message_trace, message_try

app = typer.Typer(no_args_is_help=True)
app.command("status")(message_status.status)
app.command("trace")(message_trace.trace)
app.command("replay")(message_replay.replay)
app.command("try")(message_try.try_)
app.command("skip")(message_steering.skip)
app.command("retry-now")(message_steering.retry_now)


@app.callback()
def _message() -> None:
    """Have commands of its own, even while there is a single one."""
