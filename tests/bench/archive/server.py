"""A PostgreSQL of the benchmark's own, with fsync on and our schema in it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgdb.schema
from msgdb.embedded import EmbeddedPostgres


class Server(NamedTuple):
    """Where it is."""

    url: str
    """Of the store, by TCP: Java knows no Unix sockets."""
    pid: int


@contextlib.contextmanager
def serving_postgres(directory: Path) -> Iterator[Server]:
    """Run it while the block lasts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    with EmbeddedPostgres(directory / "postgres", tcp_port=port) as postgres:
        postgres.create_database("msgdb")
        msgdb.schema.upgrade(postgres.url("msgdb"))
        yield Server(postgres.tcp_url("msgdb"), postgres.pid)
