"""Find the messages of a frame that PostgreSQL will not take, so that their neighbours can be stored.

The edge refuses all it knows to be bad; this is for the rest (a value that a constraint, an index or a type of the
database refuses). Rare, hence simple: try halves, in transactions that are rolled back.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Final

import psycopg

from msgdb import append_sql
from msgdb.append_plan import Appendable, AppendFrame, Buffer
from msgdb.connections import BlockingConnection
from msgdb.copy_rows import SIGNATURE, TRAILER, row_head

REFUSED_ERRORS: Final = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded)


def find_refused(connection: BlockingConnection, frame: AppendFrame, transaction_settings: str) -> dict[int, str]:
    """Return the places in `frame.messages` that PostgreSQL refuses, with its words."""
    refused: dict[int, str] = {}
    halves = [(0, len(frame.messages))]
    while halves:
        first, end = halves.pop()
        problem = _try(connection, frame.messages[first:end], transaction_settings)
        if problem is None:
            continue
        if end - first == 1:
            refused[first] = problem
        else:
            middle = (first + end) // 2
            halves += [(first, middle), (middle, end)]
    return refused


def _try(connection: BlockingConnection, messages: Sequence[Appendable], transaction_settings: str) -> str | None:
    """Return what PostgreSQL says against *messages*, or None; store nothing."""
    if not messages:
        return None
    # A queue that does not exist: no lock is needed, and no offset can be taken.
    queue_id = -1 - secrets.randbits(40)
    now_us = time.time_ns() // 1_000
    rows: list[Buffer] = [SIGNATURE]
    for queue_offset, message in enumerate(messages):
        head = row_head(queue_id, queue_offset, now_us, secrets.token_bytes(16))
        rows += (head, message.row_middle, message.body)
    rows.append(TRAILER)
    connection.execute(append_sql.begin(transaction_settings, (), ()).encode())
    try:
        with connection.cursor() as cursor, cursor.copy(append_sql.COPY_MESSAGES) as copy:
            copy.write(b"".join(rows))
    except REFUSED_ERRORS as error:
        return error.diag.message_primary or str(error)
    finally:
        connection.execute("ROLLBACK")
    return None
