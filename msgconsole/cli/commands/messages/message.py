"""`msgcenter message`: what is stored."""

from __future__ import annotations

import typer

from msgconsole.cli.commands.messages import (
    message_export,
    message_find,
    message_replay,
    message_show,
    message_status,
    message_steering,
    message_trace,
    message_try,
)

app = typer.Typer(no_args_is_help=True)
app.command("find")(message_find.find)
app.command("show")(message_show.show)
app.command("body")(message_show.body)
app.command("status")(message_status.status)
app.command("trace")(message_trace.trace)
app.command("export")(message_export.export)
app.command("replay")(message_replay.replay)
app.command("try")(message_try.try_)
app.command("skip")(message_steering.skip)
app.command("retry-now")(message_steering.retry_now)
