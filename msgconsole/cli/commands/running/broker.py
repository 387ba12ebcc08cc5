"""`msgcenter broker`: run a broker, or several processes of one on one port."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import ExitStack
from typing import Annotated, Final

import typer
import uvloop

from msgbroker.server.settings import BrokerSettings
from msgconsole.cli.printing.output import print_line
from msgconsole.local import places
from msgconsole.local.broker_process import BROKER_COMMAND, check_port_is_free
from msgconsole.local.settings_check import load_broker_settings
from msgconsole.local.stopping import StoppedBySignals
from msgconsole.local.worker_pool import WorkerPool
from msgdb.embedded.signals import signals_held_back

_CHECK_SECONDS: Final = 0.2


def command(
    listen: Annotated[
        str | None, typer.Option("--listen", help="host:port to serve on. Default: $MSGCENTER_LISTEN, 127.0.0.1:7400.")
    ] = None,
    advertise: Annotated[
        str | None, typer.Option("--advertise", help="host:port that clients and other brokers reach it at.")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="So many processes, on one port.")] = 1,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C; it drains, and ends with status 0.

    Its other settings are environment variables: `msgcenter check-config` lists them.

    Example: msgcenter broker --listen 0.0.0.0:7400 --workers 4
    """
    given: dict[str, object] = {"listen": listen, "advertise": advertise}
    overrides = {name: value for name, value in given.items() if value is not None}
    settings = load_broker_settings(
        os.environ, confdb_url=places.confdb_url(), msgdb_url=places.msgdb_url(), **overrides
    )
    if workers == 1:
        _run_one(settings)
    else:
        _run_many(settings, workers)


def _run_one(settings: BrokerSettings) -> None:
    from msgbroker.server.app import run_broker

    if not settings.shared_port:
        check_port_is_free(settings.listen)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_broker(settings, on_ready=lambda address: print_line(f"The broker serves on {address}.")))


def _run_many(settings: BrokerSettings, count: int) -> None:
    check_port_is_free(settings.listen)
    environment = {
        **os.environ,
        places.CONFDB_VARIABLE: settings.confdb_url.get_secret_value(),
        places.MSGDB_VARIABLE: settings.msgdb_url.get_secret_value(),
        "MSGCENTER_LISTEN": settings.listen,
        "MSGCENTER_SHARED_PORT": "true",
    }
    with StoppedBySignals(), ExitStack() as stack:
        with signals_held_back():
            pool = WorkerPool(BROKER_COMMAND, count, environment)
            stack.callback(pool.stop)
        while True:
            pool.check()
            time.sleep(_CHECK_SECONDS)
