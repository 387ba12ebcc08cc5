"""Find the messages of a frame that PostgreSQL will not take, so that their neighbours can be stored.

The edge refuses all it knows to be bad; this is for the rest (a value that a constraint, an index or a type of the
database refuses). Rare, hence simple: try halves, in transactions that are rolled back. What is tried has the time of
the database's clock, whatever this machine's says: only what the message itself holds may speak against it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

import psycopg

from msgdb.append import sql
from msgdb.append.copy_rows import SIGNATURE, TRAILER, row_head
from msgdb.append.plan import Appendable, AppendFrame, Buffer
from msgdb.postgres.connections import BlockingConnection
from msgdb.postgres.failures import translate

REFUSED_ERRORS: Final = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.StatementTooComplex,
)

_CLOCK_US: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


def find_refused(
    connection: BlockingConnection,
    frame: AppendFrame,
    transaction_settings: str,
    errors: tuple[type[psycopg.Error], ...] = REFUSED_ERRORS,
) -> dict[int, str]:
    """Return the places in `frame.messages` that PostgreSQL refuses with one of *errors*, and its words."""
    refused: dict[int, str] = {}
    halves = [(0, len(frame.messages))]
    while halves:
        first, end = halves.pop()
        problem = _try(connection, frame.messages[first:end], transaction_settings, errors)
        if problem is None:
            continue
        if end - first == 1:
            refused[first] = problem
        else:
            middle = (first + end) // 2
            halves += [(first, middle), (middle, end)]
    return refused


def is_missing_partition(error: psycopg.Error) -> bool:
    """Return whether a row was refused because there is no partition for its time."""
    # PostgreSQL reports it as the violation of a check, but of one without a name.
    return isinstance(error, psycopg.errors.CheckViolation) and error.diag.constraint_name is None


def _try(
    connection: BlockingConnection,
    messages: Sequence[Appendable],
    transaction_settings: str,
    errors: tuple[type[psycopg.Error], ...],
) -> str | None:
    """Return what PostgreSQL says against *messages*, or None; store nothing."""
    if not messages:
        return None
    connection.execute(sql.begin(transaction_settings, (), ()).encode())
    try:
        rows = _rows_of(messages, _clock_us(connection))
        with connection.cursor() as cursor, cursor.copy(sql.COPY_MESSAGES) as copy:
            copy.write(b"".join(rows))
    except errors as error:
        if translate(error) is not None:
            # The store is out of reach: that says nothing of the messages.
            raise
        # Midnight, perhaps: no fault of the messages, and seen to when they are stored.
        return None if is_missing_partition(error) else error.diag.message_primary or str(error)
    finally:
        connection.execute("ROLLBACK")
    return None


def _rows_of(messages: Sequence[Appendable], now_us: int) -> list[Buffer]:
    # A queue that does not exist: no lock is needed, and no offset can be taken.
    queue_id = -1 - secrets.randbits(40)
    rows: list[Buffer] = [SIGNATURE]
    for queue_offset, message in enumerate(messages):
        head = row_head(queue_id, queue_offset, now_us, secrets.token_bytes(16))
        rows += (head, message.row_middle, message.body)
    rows.append(TRAILER)
    return rows


def _clock_us(connection: BlockingConnection) -> int:
    row = connection.execute(_CLOCK_US).fetchone()
    assert row is not None, "it is one row"
    return int(row[0])
