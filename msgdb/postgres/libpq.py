"""Statements at libpq's level, for the one place where a round trip's price counts: the append transaction.

A cursor of psycopg costs three times as much, waits on an event loop that has other things to do, and cannot send what
comes after a COPY along with it. Everything blocks, without the interpreter's lock: it belongs in a thread of its own.
"""

from __future__ import annotations

import select
from collections.abc import Iterable
from typing import Final

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import TupleRow

_GOOD: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.COPY_IN)


def execute(connection: psycopg.Connection[TupleRow], statements: str) -> PGresult:
    """Run *statements* as one simple query; return the result of the last. Raises psycopg.Error."""
    pgconn = connection.pgconn
    return _checked(pgconn, pgconn.exec_(statements.encode()))


def execute_copying(connection: psycopg.Connection[TupleRow], statements: str, data: Iterable[bytes]) -> None:
    """Run *statements*, the first of which is COPY FROM STDIN, which gets *data*. Raises psycopg.Error.

    The others follow without a word from here: none of them is begun where the data is refused.
    """
    pgconn = connection.pgconn
    _checked(pgconn, pgconn.exec_(statements.encode()))
    poll = select.poll()
    for piece in data:
        pgconn.put_copy_data(piece)
        _flush(pgconn, poll)
    pgconn.put_copy_end()
    _flush(pgconn, poll)
    poll.register(pgconn.socket, select.POLLIN)
    while (result := _next_result(pgconn, poll)) is not None:
        if result.status not in _GOOD:
            _drain(pgconn, poll)
            _checked(pgconn, result)


def _flush(pgconn: PGconn, poll: select.poll) -> None:
    """Send what libpq has kept, and read what comes meanwhile: a server that reports an error is not left waiting."""
    while pgconn.flush():
        poll.register(pgconn.socket, select.POLLIN | select.POLLOUT)
        for _, events in poll.poll():
            if events & ~select.POLLOUT:
                pgconn.consume_input()


def _next_result(pgconn: PGconn, poll: select.poll) -> PGresult | None:
    # libpq's own wait would keep the interpreter's lock.
    while pgconn.is_busy():
        poll.poll()
        pgconn.consume_input()
    return pgconn.get_result()


def _drain(pgconn: PGconn, poll: select.poll) -> None:
    while _next_result(pgconn, poll) is not None:
        continue


def _checked(pgconn: PGconn, result: PGresult) -> PGresult:
    if result.status in _GOOD:
        return result
    if pgconn.status == ConnStatus.BAD and not result.error_field(psycopg.pq.DiagnosticField.SQLSTATE):
        raise psycopg.OperationalError(result.get_error_message())
    raise error_from_result(result, encoding="utf-8")
