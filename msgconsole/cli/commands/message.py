"""`msgcenter message`: what is stored."""

from __future__ import annotations

import typer

from msgconsole.cli.commands import message_export, message_find, message_replay, message_show

app = typer.Typer(no_args_is_help=True)
app.command("find")(message_find.find)
app.command("show")(message_show.show)
app.command("body")(message_show.body)
app.command("export")(message_export.export)
app.command("replay")(message_replay.replay)
