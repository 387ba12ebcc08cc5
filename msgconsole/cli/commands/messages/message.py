"""`msgcenter message`: what is stored."""

from __future__ import annotations

import typer

from msgconsole.cli.commands.messages import export, find, replay, show, status, steering, trace, trying

app = typer.Typer(no_args_is_help=True)
app.command("find")(find.find)
app.command("show")(show.show)
app.command("body")(show.body)
app.command("status")(status.status)
app.command("trace")(trace.trace)
app.command("export")(export.export)
app.command("replay")(replay.replay)
app.command("try")(trying.try_)
app.command("skip")(steering.skip)
app.command("retry-now")(steering.retry_now)
