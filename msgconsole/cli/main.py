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
from msgconsole.cli.exit_status import EXIT_INTERRUPTED, EXIT_REFUSED
from msgconsole.cli.printing import streams
from msgconsole.cli.printing.help_text import CommandsShown, explain


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command: where it is, and what it is good for (here, so that --help imports nothing)."""

    name: str
    place: str
    """Its room and module, below `msgconsole.cli.commands`."""
    summary: str

    @property
    def module(self) -> str:
        """The module that has it."""
        return f"msgconsole.cli.commands.{self.place}"


COMMANDS: Final = (
    CommandEntry("up", "running.up", "Start everything on this machine: PostgreSQL and a broker."),
    CommandEntry("demo", "running.demo", "Show what it does, against a running center."),
    CommandEntry("broker", "running.broker", "Run a broker."),
    CommandEntry("migrate", "running.migrate", "Bring the databases to this version."),
    CommandEntry("check-config", "running.check_config", "Show the settings and try the connections."),
    CommandEntry("namespace", "topics.namespace", "Namespaces: create, list, delete."),
    CommandEntry("topic", "topics.topic", "Topics: create, update, delete, headers, tail, ..."),
    CommandEntry("event-code", "topics.event_code", "Event codes of a topic: create, list, delete."),
    CommandEntry("group", "groups.group", "Groups: create, update, reset, unsettled, drain, ..."),
    CommandEntry("subscription", "groups.subscription", "Subscriptions: create, list, show, update, delete."),
    CommandEntry("stress", "topics.stress", "Stress traffic (tests): its rules, and who may get it."),
    CommandEntry("publish", "messages.publish", "Publish a message."),
    CommandEntry("subscribe", "messages.subscribe", "Print messages as they come."),
    CommandEntry("lag", "watching.lag", "How far each group is behind."),
    CommandEntry("instance", "watching.instance", "Instances that are connected: list, disconnect."),
    CommandEntry("publisher", "watching.publisher", "Publishers that are connected: list, disconnect."),
    CommandEntry("usage", "watching.usage", "How many messages were published and delivered."),
    CommandEntry("alarm", "watching.alarm", "What brokers have set aside, or found at its limit."),
    CommandEntry("dead-letters", "dead_letters.dead_letters", "Messages given up on: list, show, redrive, purge."),
    CommandEntry("message", "messages.message", "Stored messages: find, show, status, trace, ..."),
    CommandEntry("job", "watching.job", "What brokers carry out for operators: list, show, pause, ..."),
    CommandEntry("etl", "etl.etl", "The archive: days as Parquet files, before they are dropped."),
    CommandEntry("act", "watching.act", "What operators did to messages, and why: list, show."),
    CommandEntry("audit", "watching.audit", "Who changed what of the configuration."),
    CommandEntry("bench", "running.bench", "Measure messages per second and latency here."),
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
    # It may quote what clients have said. What prints is imported only where something is to be printed.
    from msgconsole.cli.printing.output import visible

    typer.secho(f"{visible(sentence)} ({reason})", err=True, fg=typer.colors.RED)
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
        cls=CommandsShown,
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
    explain(app)


def _root(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take nothing else: each command has the options it needs."""


def _stub() -> None:
    """Stand in the list of commands; never run, since the command that was typed is imported."""
