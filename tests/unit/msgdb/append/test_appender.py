"""The appender's turns, with the transaction played by the test: what follows a batch, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import date

import pytest

from msgbroker.contract.errors import StoreUnavailableError
from msgdb.append.appender import Appender, NotTriedError
from msgdb.append.plan import AppendFrame, FrameResult, Gap
from msgdb.append.transaction import LayoutChangedError

STORED: list[FrameResult] = [Gap(1)]


class PlayedTransaction:
    """Fails as often as the test says, and notes what was stored."""

    def __init__(self) -> None:
        self.problems: list[Exception] = []
        self.stored: list[int] = []

    def store(self, frames: Sequence[AppendFrame], *, around_held: bool) -> list[FrameResult]:
        if self.problems:
            raise self.problems.pop(0)
        self.stored += [frame.sequence for frame in frames]
        return STORED

    def close(self) -> None:
        pass


def batch(sequence: int) -> list[AppendFrame]:
    return [AppendFrame(b"p" * 16, sequence, [])]


@pytest.fixture
def played() -> PlayedTransaction:
    return PlayedTransaction()


@pytest.fixture
async def appender(played: PlayedTransaction) -> AsyncIterator[Appender]:
    async def ensure_partitions(_: Collection[date]) -> None:
        pass

    appender = Appender(lambda: None, ensure_partitions)  # type: ignore[arg-type, return-value]
    appender._transaction = played  # type: ignore[assignment]
    yield appender
    await appender.close()


async def choose_again(_: LayoutChangedError) -> None:
    """Choose as before."""


@pytest.mark.parametrize("problem", [StoreUnavailableError("gone"), LayoutChangedError([1])], ids=["lost", "sealed"])
async def test_what_follows_does_not_overtake_what_is_mended(
    appender: Appender, played: PlayedTransaction, problem: Exception
) -> None:
    played.problems = [problem]
    first, second = await asyncio.gather(
        appender.append(batch(1), choose_again=choose_again),
        appender.append(batch(2), follows=True),
        return_exceptions=True,
    )

    assert first == STORED
    assert isinstance(second, NotTriedError)
    assert await appender.append(batch(2), follows=True) == STORED
    assert played.stored == [1, 2]


async def test_what_follows_is_mended_itself_once_its_turn_has_come(
    appender: Appender, played: PlayedTransaction
) -> None:
    await appender.append(batch(1))
    played.problems = [LayoutChangedError([1])]

    assert await appender.append(batch(2), follows=True, choose_again=choose_again) == STORED
    assert played.stored == [1, 2]


async def test_behind_what_failed_nothing_goes_on_before_it_was_given_again(
    appender: Appender, played: PlayedTransaction
) -> None:
    played.problems = [ValueError("a page is damaged")]
    with pytest.raises(ValueError, match="damaged"):
        await appender.append(batch(1))
    with pytest.raises(NotTriedError):
        await appender.append(batch(2), follows=True)

    assert await appender.append(batch(1)) == STORED
    assert await appender.append(batch(2), follows=True) == STORED
