"""What is done about each thing that can go wrong while a batch is stored, and how often."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, date, datetime

import psycopg
import pytest
from psycopg import errors as pg_errors

from msgbroker.contract.errors import StoreUnavailableError
from msgdb.append.appender import NotTriedError
from msgdb.append.mending import MENDINGS, Attempt, store_mending
from msgdb.append.plan import FrameResult, Gap
from msgdb.append.transaction import LayoutChangedError, LocksHeldError, PartitionMissingError

STORED: list[FrameResult] = [Gap(1)]
NOON_US = int(datetime(2026, 3, 4, 12, tzinfo=UTC).timestamp() * 1_000_000)

Problem = Callable[[], Exception]


def sealed() -> Exception:
    return LayoutChangedError([7])


def no_day() -> Exception:
    return PartitionMissingError([NOON_US])


def lost() -> Exception:
    return StoreUnavailableError("gone")


held: Problem = LocksHeldError
refused: Problem = pg_errors.CheckViolation


class Scene:
    """A batch whose tries fail as the test says, and what was done in between."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = list(problems)
        self.tries: list[tuple[bool, bool, bool]] = []
        """Of each: whether around what is held, behind others, and refusing first."""
        self.made: list[Collection[date]] = []
        self.chosen: list[tuple[int, ...]] = []
        self.choosing_fails: Exception | None = None

    async def store(self, *, can_choose: bool = True, follows: bool = False) -> list[FrameResult]:
        attempt = Attempt(
            frames=[],
            follows=follows,
            ensure_partitions=self._ensure_partitions,
            choose_again=self._choose_again if can_choose else None,
        )
        return await store_mending(attempt, self._try_once)

    async def _try_once(self, attempt: Attempt) -> list[FrameResult]:
        self.tries.append((attempt.around_held, attempt.follows, attempt.refuses_first))
        if self.problems:
            make_error = self.problems.pop(0)
            raise make_error()
        return STORED

    async def _ensure_partitions(self, days: Collection[date]) -> None:
        self.made.append(days)

    async def _choose_again(self, changed: LayoutChangedError) -> None:
        self.chosen.append(changed.queue_ids)
        if self.choosing_fails is not None:
            raise self.choosing_fails


async def test_what_goes_through_is_tried_once() -> None:
    scene = Scene()

    assert await scene.store(follows=True) == STORED
    assert scene.tries == [(False, True, False)]


@pytest.mark.parametrize(
    "problem, times",
    [(sealed, 4), (no_day, 1), (lost, 1), (held, 1), (refused, 1)],
    ids=["sealed", "no day", "lost", "held", "refused"],
)
async def test_each_thing_is_mended_so_often_and_no_oftener(problem: Problem, times: int) -> None:
    mended = Scene(*[problem] * times)
    assert await mended.store() == STORED
    assert len(mended.tries) == times + 1

    hopeless = Scene(*[problem] * (times + 5))
    with pytest.raises((StoreUnavailableError, type(problem()))):
        await hopeless.store()
    assert len(hopeless.tries) == times + 1


async def test_all_of_them_may_befall_one_batch() -> None:
    every = [sealed] * 4 + [no_day, lost, held, refused]
    scene = Scene(*every)

    assert await scene.store() == STORED
    assert len(every) == sum(mending.times for mending in MENDINGS)


async def test_where_a_queue_was_sealed_others_are_chosen() -> None:
    scene = Scene(sealed, sealed)
    await scene.store()

    assert scene.chosen == [(7,), (7,)]


async def test_where_nobody_can_choose_again_it_is_told_that_a_queue_was_sealed() -> None:
    scene = Scene(sealed)
    with pytest.raises(LayoutChangedError):
        await scene.store(can_choose=False)


async def test_what_fails_while_queues_are_chosen_is_not_taken_for_a_lost_connection() -> None:
    scene = Scene(sealed)
    scene.choosing_fails = StoreUnavailableError("no queues to be had")
    with pytest.raises(StoreUnavailableError, match="no queues"):
        await scene.store()

    assert len(scene.tries) == 1


async def test_the_days_of_all_times_are_made() -> None:
    scene = Scene(no_day)
    await scene.store()

    assert scene.made == [{date(2026, 3, 4)}]


async def test_once_locks_were_held_it_goes_around_them_whatever_comes_next() -> None:
    scene = Scene(held, lost)
    await scene.store()

    assert [around_held for around_held, _, _ in scene.tries] == [False, True, True]


async def test_what_is_refused_is_found_before_the_next_try() -> None:
    scene = Scene(refused)
    await scene.store()

    assert [refuses_first for _, _, refuses_first in scene.tries] == [False, True]


async def test_what_was_tried_itself_follows_nobody_any_more() -> None:
    scene = Scene(lost)
    await scene.store(follows=True)

    assert [follows for _, follows, _ in scene.tries] == [True, False]


@pytest.mark.parametrize(
    "problem, words",
    [(sealed, "keep changing"), (no_day, "cannot be made"), (lost, "gone")],
    ids=["sealed", "no day", "lost"],
)
async def test_what_was_mended_in_vain_is_an_outage_that_says_so(problem: Problem, words: str) -> None:
    with pytest.raises(StoreUnavailableError, match=words):
        await Scene(*[problem] * 6).store()


async def test_what_postgresql_still_refuses_is_told_as_it_is() -> None:
    with pytest.raises(psycopg.IntegrityError):
        await Scene(refused, refused).store()


@pytest.mark.parametrize("error", [NotTriedError, ValueError, MemoryError])
async def test_what_nobody_foresaw_is_not_tried_again(error: type[Exception]) -> None:
    scene = Scene(error)
    with pytest.raises(error):
        await scene.store()

    assert len(scene.tries) == 1
