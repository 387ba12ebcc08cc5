"""Failures of expressions, counted until they are written: bounded, by subscription, with the last header."""

from __future__ import annotations

from typing import Any, Self
from unittest.mock import MagicMock

import pytest

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server.deliver.expressions.failures import ExpressionFailures, FailureWriter
from msgdb.reports.expression_failures import ExpressionFailure

MISSING = 'NOT_FOUND: Key not found in map : "{}"'


class FakeStore:
    """A store that is away, or takes what it is given."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.written: list[dict[str, Any]] = []

    def connection(self) -> FakeStore:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def execute(self, _: str, parameters: dict[str, Any]) -> MagicMock:
        if self.error is not None:
            raise self.error
        self.written.append(parameters)
        return MagicMock()


@pytest.fixture
def failures() -> ExpressionFailures:
    return ExpressionFailures()


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


def writer_of(failures: ExpressionFailures, store: FakeStore) -> FailureWriter:
    return FailureWriter(failures, store)  # type: ignore[arg-type]


def test_failures_are_summed_by_subscription_and_the_last_header_stays(failures: ExpressionFailures) -> None:
    failures.note(1, 10, 2, MISSING.format("region"))
    failures.note(1, 11, 1, "INVALID_ARGUMENT: cannot convert string to int")
    failures.note(1, 10, 3, MISSING.format("vip"))

    assert failures.take(10) == [
        ExpressionFailure(1, 10, 5, "vip", MISSING.format("vip")),
        ExpressionFailure(1, 11, 1, None, "INVALID_ARGUMENT: cannot convert string to int"),
    ]
    assert len(failures) == 0


def test_a_failure_of_which_nothing_is_known_keeps_what_was_known_before(failures: ExpressionFailures) -> None:
    failures.note(1, 10, 1, MISSING.format("region"))
    failures.note(1, 10, 1, "")

    assert [failure.last_header for failure in failures.take(10)] == ["region"]


def test_what_is_counted_is_bounded_and_so_is_what_is_said_of_it() -> None:
    failures = ExpressionFailures(count_max=2)
    for subscription_id in (1, 2, 3):
        failures.note(1, subscription_id, 1, MISSING.format("x" * 5_000) + "\0")

    taken = failures.take(10)
    assert [failure.subscription_id for failure in taken] == [1, 2]
    assert all(len(failure.last_error) <= 300 and failure.last_header for failure in taken)


def test_what_could_not_be_written_is_counted_on(failures: ExpressionFailures) -> None:
    failures.note(1, 10, 2, MISSING.format("region"))
    taken = failures.take(10)
    failures.note(1, 10, 1, MISSING.format("vip"))
    failures.give_back(taken)

    assert failures.take(10) == [ExpressionFailure(1, 10, 3, "vip", MISSING.format("vip"))]


async def test_while_the_store_is_away_failures_are_kept_and_written_later(
    failures: ExpressionFailures, store: FakeStore
) -> None:
    writer = writer_of(failures, store)
    failures.note(1, 10, 2, MISSING.format("region"))
    store.error = StoreUnavailableError("away")
    assert not await writer.write_once()
    store.error = ValueError("nobody knows")
    with pytest.raises(ValueError, match="nobody knows"):
        await writer.write_once()
    store.error = None

    await writer.leave()

    (written,) = store.written
    assert (written["failures"], written["last_header"]) == ([2], ["region"])


async def test_who_leaves_writes_all_there_is_and_nothing_where_nothing_failed(
    failures: ExpressionFailures, store: FakeStore
) -> None:
    writer = writer_of(failures, store)
    await writer.leave()
    assert store.written == []
    for subscription_id in range(2_500):
        failures.note(1, subscription_id, 1, "")

    await writer.leave()

    assert [len(written["group_id"]) for written in store.written] == [1_000, 1_000, 500]
