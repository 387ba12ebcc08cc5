"""`msgcenter up`: a whole center on this machine, until Ctrl-C."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from msgbroker.contract.addresses import split_address
from msgconsole.cli.printing.output import print_line
from msgconsole.local.center import LocalCenter, LocalCenterConfig, command_name
from msgconsole.local.places import (
    CONFDB_VARIABLE,
    DEFAULT_BROKER,
    DIRECTORY,
    MSGDB_VARIABLE,
    check_database_url,
    without_password,
)
from msgconsole.local.settings_check import load_broker_settings
from msgconsole.local.stopping import StoppedBySignals

_CHECK_SECONDS: Final = 0.5
_TO_COME: Final = "postgresql://"


def command(
    listen: Annotated[
        str, typer.Option("--listen", envvar="MSGCENTER_LISTEN", help="Where the broker listens, host:port.")
    ] = DEFAULT_BROKER,
    directory: Annotated[
        Path, typer.Option("--directory", envvar="MSGCENTER_DIRECTORY", help="Where data and logs are kept.")
    ] = Path(DIRECTORY),
) -> None:
    """Start everything on this machine: PostgreSQL and a broker. Ctrl-C stops it; the data stays.

    With MSGCENTER_CONFDB_URL and MSGCENTER_MSGDB_URL it uses those databases (PostgreSQL 15 or later) instead of its
    own.

    Example: msgcenter up --listen 127.0.0.1:7500
    """
    # What the broker will refuse, or cannot be found by, is refused before anything runs.
    split_address("--listen", listen)
    confdb_url, msgdb_url = _given_url(CONFDB_VARIABLE), _given_url(MSGDB_VARIABLE)
    load_broker_settings(os.environ, confdb_url=confdb_url or _TO_COME, msgdb_url=msgdb_url or _TO_COME, listen=listen)
    serve(
        LocalCenterConfig(
            directory=directory,
            listen=listen,
            confdb_url=confdb_url,
            msgdb_url=msgdb_url,
        )
    )


def _given_url(variable: str) -> str | None:
    url = os.environ.get(variable)
    if url:
        check_database_url(variable, url)
    return url or None


def serve(config: LocalCenterConfig) -> None:
    """Run a center until a signal says stop."""
    with StoppedBySignals(), LocalCenter(config, print_line) as center:
        _print_what_next(config, center.broker_log)
        while True:
            center.check()
            time.sleep(_CHECK_SECONDS)
    print_line("Stopped.")


def _print_what_next(config: LocalCenterConfig, broker_log: Path) -> None:
    name = command_name()
    own = config.directory / "postgres"
    print_line("")
    print_line("The message center is up.")
    print_line(f"  broker      {config.listen}  (log: {broker_log})")
    if config.confdb_url and config.msgdb_url:
        print_line(f"  databases   {without_password(config.confdb_url)}, {without_password(config.msgdb_url)}")
    else:
        print_line(f"  PostgreSQL  {own}  (log: {own / 'postgres.log'}; data stays between runs)")
    print_line("")
    print_line("In another terminal, in this directory:")
    print_line(f"  {name} demo                      shows what it does")
    print_line(f"  {name} topic create TP_TRADE     registers a topic")
    print_line(f"  {name} --help                    lists the rest")
    print_line("")
    print_line("Ctrl-C stops it.")
