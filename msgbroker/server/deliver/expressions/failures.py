"""How often subscriptions' expressions fail on messages, and of which header: counted here, written to msgdb.

A failure is no match, and nobody hears of it otherwise. Counting costs what a failure costs and no message that has
none: lanes count by themselves, and what they counted comes here once for each batch. It is written in one statement,
ten seconds apart at least; a broker that is killed takes with it what was counted since.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Final

import structlog

from confdb.expressions.compiled import missing_header
from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.server import clock
from msgbroker.server.loops import pause
from msgdb.reports.expression_failures import ExpressionFailure, write_expression_failures
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

SUBSCRIPTIONS_MAX: Final = 10_000
"""So many subscriptions are counted at a time. Failures of further ones are counted once these are written."""
_PROBLEM_CHARS_MAX: Final = 300
_WRITTEN_MAX: Final = 1_000
_WRITE_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 1.0

_Subscription = tuple[int, int]
"""Names a subscription: group_id, subscription_id."""


class ExpressionFailures:
    """How often expressions failed since that was written last."""

    def __init__(self, count_max: int = SUBSCRIPTIONS_MAX) -> None:
        self._count_max = count_max
        self._counted: dict[_Subscription, tuple[int, str]] = {}
        """How often each subscription failed, with the last problem."""

    def __len__(self) -> int:
        return len(self._counted)

    def note(self, group_id: int, subscription_id: int, count: int, problem: str) -> None:
        """Count *count* failures of a subscription, the last of them because of *problem*."""
        name = (group_id, subscription_id)
        known = self._counted.get(name)
        if known is not None:
            self._counted[name] = (known[0] + count, problem[:_PROBLEM_CHARS_MAX] or known[1])
        elif len(self._counted) < self._count_max:
            self._counted[name] = (count, problem[:_PROBLEM_CHARS_MAX])

    def take(self, count_max: int) -> list[ExpressionFailure]:
        """Return what is to be written, of so many subscriptions at most; it is not counted here any more."""
        names = [*itertools.islice(self._counted, count_max)]
        return [_failure(*name, *self._counted.pop(name)) for name in names]

    def give_back(self, failures: list[ExpressionFailure]) -> None:
        """Count again what could not be written. What has failed since is newer."""
        for failure in failures:
            name = (failure.group_id, failure.subscription_id)
            since, problem = self._counted.get(name, (0, failure.last_error))
            if since or len(self._counted) < self._count_max:
                self._counted[name] = (since + failure.failures, problem)


class FailureWriter:
    """Adds how often expressions failed in msgdb, now and then."""

    def __init__(self, failures: ExpressionFailures, store: MessageStore, now: Callable[[], float] = clock.now) -> None:
        self._failures = failures
        self._store = store
        self._now = now
        self._write_at = now()

    async def run(self, stop: asyncio.Event) -> None:
        """Write what failed until *stop* is set."""
        while not stop.is_set():
            if len(self._failures) and self._now() >= self._write_at:
                await self.write_once()
            await pause(stop, _LOOK_SECONDS)

    async def write_once(self) -> bool:
        """Write what failed, as much as one statement takes; return whether the store took it."""
        self._write_at = self._now() + _WRITE_SECONDS
        failures = self._failures.take(_WRITTEN_MAX)
        is_written = False
        try:
            async with self._store.connection() as connection:
                await write_expression_failures(connection, failures)
            is_written = True
        except StoreUnavailableError:
            log.warning("expression_failures.store_unavailable")
        finally:
            # However it ended: counted twice, where the answer to a commit was lost, is better than not at all.
            if not is_written:
                self._failures.give_back(failures)
        return is_written

    async def leave(self) -> None:
        """Write the rest, if the store takes it: this broker stops."""
        while len(self._failures) and await self.write_once():
            pass


def _failure(group_id: int, subscription_id: int, count: int, problem: str) -> ExpressionFailure:
    problem = problem.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return ExpressionFailure(group_id, subscription_id, count, missing_header(problem), problem)
