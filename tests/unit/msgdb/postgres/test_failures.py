"""Which errors of the driver mean that the store is out of reach."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from msgbroker.contract.errors import StoreUnavailableError
from msgdb.postgres.failures import store_failures, translate
from tests.support.driver_errors import MISTAKES, OUTAGES


@pytest.mark.parametrize("kind", OUTAGES)
def test_an_outage_is_translated(kind: type[psycopg.Error]) -> None:
    original = kind("server said\nno")

    with pytest.raises(StoreUnavailableError, match="server said no") as caught, store_failures():
        raise original

    assert caught.value.__cause__ is original


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_not(kind: type[psycopg.Error]) -> None:
    with pytest.raises(kind), store_failures():
        raise kind("no")


def test_the_state_is_shown_where_there_is_one() -> None:
    translated = translate(errors.AdminShutdown("terminating"))

    assert translated is not None
    assert "57P01" in translated.message


def test_errors_of_others_are_none_of_its_business() -> None:
    assert translate(ValueError("no")) is None
