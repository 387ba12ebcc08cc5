"""`msgcenter check-config`: what a broker started here would be told, and whether it can reach its databases."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import typer

from msgbroker.contract.errors import MessageCenterError
from msgconsole.cli.exit_status import EXIT_REFUSED
from msgconsole.cli.printing.output import print_json, print_line, print_rows
from msgconsole.cli.typed.options import AsJson, Broker
from msgconsole.local import places
from msgconsole.local.broker_process import is_serving
from msgconsole.local.databases import confdb_state, msgdb_state
from msgconsole.local.settings_check import describe, load_broker_settings

_BROKER_TIMEOUT_SECONDS = 2.0


def command(
    broker: Broker = None,
    offline: Annotated[bool, typer.Option("--offline", help="Only the settings: connect to nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show all settings (without secrets), refuse misspelt ones, and try the connections.

    Beside a running `msgcenter up` it shows that one's databases and address.

    Example: msgcenter check-config --json
    """
    confdb_url, msgdb_url = places.confdb_url(), places.msgdb_url()
    running = None if os.environ.get(places.CONFDB_VARIABLE) else places.find_state()
    of_running: dict[str, object] = {"listen": running.broker} if running else {}
    if running and "MSGCENTER_CLIENT_REGISTRATION" not in os.environ:
        of_running["client_registration"] = True
    settings = describe(
        load_broker_settings(os.environ, confdb_url=confdb_url, msgdb_url=msgdb_url, **of_running), os.environ
    )
    connections: list[dict[str, object]] = []
    if not offline:
        connections = [
            _tried("confdb", confdb_url, lambda: confdb_state(confdb_url)),
            _tried("msgdb", msgdb_url, lambda: msgdb_state(msgdb_url)),
            *map(_broker_row, places.broker_address(broker).split(",")),
        ]
    if as_json:
        print_json({"settings": settings, "connections": connections})
    else:
        print_rows(settings, ("variable", "value", "meaning"), as_json=False, empty="")
        if connections:
            print_rows(connections, ("what", "where", "is_ok", "state"), as_json=False, empty="")
    # A broker that does not run yet is no mistake in the settings; a database out of reach is.
    if not all(row["is_ok"] for row in connections if row["what"] != "broker"):
        raise typer.Exit(EXIT_REFUSED)
    if as_json:
        return
    if running:
        print_line(
            f"`msgcenter up` runs (process {running.pid}): its databases, address and client registration are"
            " shown; what else it was told is in the environment that it was started with."
        )
    print_line("The settings are fine.")


def _tried(what: str, url: str, state: Callable[[], str]) -> dict[str, object]:
    try:
        said, is_ok = state(), True
    except MessageCenterError as error:
        said, is_ok = error.message, False
    return {"what": what, "where": places.without_password(url), "is_ok": is_ok, "state": said}


def _broker_row(address: str) -> dict[str, object]:
    is_ok = is_serving(address, _BROKER_TIMEOUT_SECONDS)
    state = "serves" if is_ok else "does not answer"
    return {"what": "broker", "where": address, "is_ok": is_ok, "state": state}
