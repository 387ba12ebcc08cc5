"""Faults in the way of an append."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import psycopg
import pytest

from msgdb.append import transaction
from msgdb.postgres.connections import BlockingConnection
from msgdb.postgres.libpq import execute_copying

Write = Callable[[Iterable[bytes]], None]


Fault = Callable[[BlockingConnection, Write, Iterable[bytes]], None]


def die_before(connection: BlockingConnection, write: Write, data: Iterable[bytes]) -> None:
    """Have the server end the session before the rows reach it."""
    _end_session(connection)
    write(data)


def _end_session(connection: BlockingConnection) -> None:
    with psycopg.connect(connection.info.dsn, autocommit=True) as killer:
        killer.execute("SELECT pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,))


def meet(monkeypatch: pytest.MonkeyPatch, *faults: Fault) -> None:
    """Let the next writes of append transactions meet *faults*, one after the other."""
    coming = list(faults)

    def write_or_fail(connection: BlockingConnection, statements: str, data: Iterable[bytes]) -> None:
        def write(pieces: Iterable[bytes]) -> None:
            execute_copying(connection, statements, pieces)

        if coming:
            coming.pop(0)(connection, write, data)
        else:
            write(data)

    monkeypatch.setattr(transaction, "execute_copying", write_or_fail)
