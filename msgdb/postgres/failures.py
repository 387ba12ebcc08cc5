"""The one place where errors of the database driver become ours: store out of reach, or something else.

Out of reach is what passes (`msgbroker.contract.sqlstates`), and nothing else: an unreadable block that was taken for
an outage would be waited for by everybody, for good, where it is one lane's or one day's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.contract.sqlstates import is_outage


class RowsHeldError(StoreUnavailableError):
    """Somebody else has locked rows for too long: whoever wanted many may try with fewer of them.

    Caught by what sets lanes aside one by one (`msgbroker.server.alarms.set_aside`), which halves its work, and here by
    `whole_tables`. To everybody else it is the outage that it is a kind of.
    """


@contextmanager
def whole_tables() -> Iterator[None]:
    """Take what is held for an outage: inside, rows are only read. So a whole table is held, and fewer do not help."""
    try:
        yield
    except RowsHeldError as error:
        raise StoreUnavailableError("somebody holds a whole table") from error


def translate(error: BaseException) -> StoreUnavailableError | None:
    """Return what *error* means for a caller of the store; None if it is not about the store being out of reach."""
    if not isinstance(error, psycopg.Error) or not _is_outage(error):
        return None
    detail = " ".join(str(error).split()) or type(error).__name__
    kind = RowsHeldError if isinstance(error, errors.LockNotAvailable) else StoreUnavailableError
    return kind(f"{detail} [{error.sqlstate}]" if error.sqlstate else detail)


@contextmanager
def store_failures() -> Iterator[None]:
    """Raise `StoreUnavailableError` for whatever means that the store is out of reach; let the rest through."""
    try:
        yield
    except psycopg.Error as error:
        unavailable = translate(error)
        if unavailable is None:
            raise
        raise unavailable from error


def _is_outage(error: psycopg.Error) -> bool:
    return is_outage(error.sqlstate, is_operational=isinstance(error, psycopg.OperationalError))
