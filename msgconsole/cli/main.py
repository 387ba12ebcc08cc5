"""The `msgcenter` command: finds the module of the command that was typed, and imports no other."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Final

import typer

from msgbroker.contract.errors import MessageCenterError
from msgconsole.cli import streams

EXIT_REFUSED: Final = 1
EXIT_INTERRUPTED: Final = 130
"""The exit status after Ctrl-C, as shells have it."""


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command: where it is, and what it is good for (here, so that --help imports nothing)."""

    name: str
    module: str
    summary: str


COMMANDS: Final = (
    CommandEntry("up", "msgconsole.cli.commands.up", "Start everything on this machine: PostgreSQL and a broker."),
    CommandEntry("demo", "msgconsole.cli.commands.demo", "Show what it does, against a running center."),
    CommandEntry("broker", "msgconsole.cli.commands.broker", "Run a broker."),
    CommandEntry("migrate", "msgconsole.cli.commands.migrate", "Bring the databases to this version."),
    CommandEntry("check-config", "msgconsole.cli.commands.check_config", "Show the settings and try the connections."),
    CommandEntry("namespace", "msgconsole.cli.commands.namespace", "Namespaces: create, list, delete."),
    CommandEntry("topic", "msgconsole.cli.commands.topic", "Topics: create, list, show, update, delete, tail."),
    CommandEntry("event-code", "msgconsole.cli.commands.event_code", "Event codes of a topic: create, list, delete."),
    CommandEntry(
        "group", "msgconsole.cli.commands.group", "Groups: create, list, show, update, delete, reset, errors."
    ),
    CommandEntry(
        "subscription", "msgconsole.cli.commands.subscription", "Subscriptions: create, list, show, update, delete."
    ),
    CommandEntry("stress", "msgconsole.cli.commands.stress", "Stress traffic (tests): its rules, and who may get it."),
    CommandEntry("publish", "msgconsole.cli.commands.publish", "Publish a message."),
    CommandEntry("subscribe", "msgconsole.cli.commands.subscribe", "Print messages as they come."),
    CommandEntry("lag", "msgconsole.cli.commands.lag", "How far each group is behind."),
    CommandEntry("instance", "msgconsole.cli.commands.instance", "Instances that are connected: list, disconnect."),
    CommandEntry("publisher", "msgconsole.cli.commands.publisher", "Publishers that are connected: list."),
    CommandEntry("usage", "msgconsole.cli.commands.usage", "How many messages were published and delivered."),
    CommandEntry("alarm", "msgconsole.cli.commands.alarm", "What brokers have set aside, or found at its limit."),
    CommandEntry(
        "dead-letters", "msgconsole.cli.commands.dead_letters", "Messages given up on: list, show, redrive, purge."
    ),
    CommandEntry("message", "msgconsole.cli.commands.message", "Stored messages: find, show, status, trace, ..."),
    CommandEntry("job", "msgconsole.cli.commands.job", "What brokers carry out for operators: list, show, pause, ..."),
    CommandEntry("etl", "msgconsole.cli.commands.etl", "The archive: days as Parquet files, before they are dropped."),
    CommandEntry("act", "msgconsole.cli.commands.act", "What operators did to messages, and why: list, show."),
    CommandEntry("audit", "msgconsole.cli.commands.audit", "Who changed what of the configuration."),
    CommandEntry("bench", "msgconsole.cli.commands.bench", "Measure messages per second and latency here."),
)


def main() -> None:
    """Run the command line of this process."""
    try:
        streams.prepare()
        _check_environment(sys.argv[1:])
        build_app(sys.argv[1:])(prog_name="msgcenter")
    except MessageCenterError as error:
        # libpq continues its sentences on a line of their own.
        _refuse(error.message.replace("\n\t", " "), error.reason)
    except OSError as error:
        # A directory that cannot be written, a process that cannot be started, a help text that nobody takes.
        streams.drop_output()
        of_what = "" if error.filename is None else f": {error.filename}"
        _refuse(f"{error.strerror or error}{of_what}", "SYSTEM_ERROR")
    except KeyboardInterrupt:
        # While the command was being imported; what it does itself, typer ends in the same way.
        sys.exit(EXIT_INTERRUPTED)


def _refuse(sentence: str, reason: str) -> None:
    typer.secho(f"{sentence} ({reason})", err=True, fg=typer.colors.RED)
    sys.exit(EXIT_REFUSED)


def _check_environment(arguments: Sequence[str]) -> None:
    """Refuse misspelt variables, whichever command was typed; `--help` always helps."""
    ours = [name for name in os.environ if name.startswith("MSGCENTER_")]
    if not ours or not arguments or {"--help", "-h", "--version"} & {*arguments}:
        return
    # Knowing all settings costs an import that is not worth it without a variable.
    from msgconsole.local.settings_check import check_names

    check_names(ours)


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """Return the command line for *arguments*: the command they name in full, of the others the summary."""
    app = typer.Typer(
        name="msgcenter",
        help="A database-backed message center: publish, subscribe, and watch over it.",
        epilog="Start with: msgcenter up, and in another terminal: msgcenter demo",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    typed = next((argument for argument in arguments if not argument.startswith("-")), None)
    completing = "_MSGCENTER_COMPLETE" in os.environ
    app.callback()(_root)
    for entry in COMMANDS:
        if completing or entry.name == typed:
            _add(app, entry)
        elif find_spec(entry.module) is not None:
            app.command(entry.name, help=entry.summary)(_stub)
    return app


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"msgcenter {version('msgcenter')}")
        raise typer.Exit


def _add(app: typer.Typer, entry: CommandEntry) -> None:
    module = import_module(entry.module)
    if hasattr(module, "app"):
        app.add_typer(module.app, name=entry.name, help=entry.summary)
    else:
        app.command(entry.name)(module.command)


def _root(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take nothing else: each command has the options it needs."""


def _stub() -> None:
    """Stand in the list of commands; never run, since the command that was typed is imported."""
