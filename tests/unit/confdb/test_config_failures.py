"""Which errors of the driver mean that confdb is out of reach: the same as for msgdb."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors
from sqlalchemy.exc import DBAPIError

from confdb.store import translated
from msgbroker.contract.errors import ConfigUnavailableError, NotMigratedError
from tests.support.driver_errors import MISTAKES, OUTAGES

ABSENCES = (errors.UndefinedTable, errors.UndefinedColumn)


def wrapped(kind: type[psycopg.Error]) -> DBAPIError:
    return DBAPIError("SELECT 1", None, kind("no"))


@pytest.mark.parametrize("kind", OUTAGES)
def test_an_outage_is_translated(kind: type[psycopg.Error]) -> None:
    with pytest.raises(ConfigUnavailableError), translated():
        raise kind("no")
    with pytest.raises(ConfigUnavailableError), translated():
        raise wrapped(kind)


@pytest.mark.parametrize("kind", [kind for kind in MISTAKES if kind not in ABSENCES])
def test_a_mistake_is_not(kind: type[psycopg.Error]) -> None:
    with pytest.raises(kind), translated():
        raise kind("no")
    with pytest.raises(DBAPIError), translated():
        raise wrapped(kind)


@pytest.mark.parametrize("kind", ABSENCES)
def test_tables_that_are_not_there_are_said_to_be_missing(kind: type[psycopg.Error]) -> None:
    with pytest.raises(NotMigratedError), translated():
        raise wrapped(kind)
