"""What can go wrong while a batch is stored, what mends it, and how often: the one place where storing is tried again.

The transaction (`msgdb.append.transaction`) is tried once and raises; `MENDINGS` says what is done then, and the batch
is tried again. Whatever is not in that table, or was mended as often as it says, is the caller's to hear of.

Each try runs in the appender's thread, and the mending between two tries on the event loop, which makes a day or
chooses queues: so no thread ever waits for an event loop, which might have ended meanwhile. What follows the batch is
not tried before the batch has gone through (`NotTriedError`), so nothing overtakes it while it is mended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple

import structlog

from msgbroker.contract.errors import StoreUnavailableError
from msgdb.append.plan import AppendFrame, FrameResult
from msgdb.append.refused_rows import REFUSED_ERRORS
from msgdb.append.transaction import LayoutChangedError, LocksHeldError, PartitionMissingError

log = structlog.get_logger(__name__)

EnsurePartitions = Callable[[Collection[date]], Awaitable[None]]
ChooseAgain = Callable[[LayoutChangedError], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class Attempt:
    """A batch, and how it is tried next."""

    frames: Sequence[AppendFrame]
    around_held: bool = False
    """Store what is free, and do not wait for locks."""
    follows: bool = False
    """It comes behind others whose results are not known yet."""
    refuses_first: bool = False
    """PostgreSQL will not take some of it: that is found and refused before the rest is stored."""
    ensure_partitions: EnsurePartitions
    choose_again: ChooseAgain | None
    """Gives the messages other queues; None where nobody can."""


async def _choose_again(attempt: Attempt, changed: LayoutChangedError) -> None:
    if attempt.choose_again is None:
        raise changed
    await attempt.choose_again(changed)


async def _make_days(attempt: Attempt, missing: PartitionMissingError) -> None:
    days = {datetime.fromtimestamp(time_us / 1_000_000, UTC).date() for time_us in missing.times_us}
    log.warning("append.partition_missing", days=sorted(str(day) for day in days))
    await attempt.ensure_partitions(days)


async def _connect_again(_: Attempt, lost: StoreUnavailableError) -> None:
    # The transaction has given its connection up, and opens another one. That also settles what became of a COMMIT
    # whose answer was lost: the locks wait for the old transaction's end, and its frames are found as stored before.
    log.warning("append.connection_lost", exc_info=lost)


async def _go_around_held(attempt: Attempt, _: LocksHeldError) -> None:
    attempt.around_held = True


async def _refuse_first(attempt: Attempt, _: Exception) -> None:
    attempt.refuses_first = True


class _Mending(NamedTuple):
    """One way in which a batch fails, and what is done about it."""

    errors: type[Exception] | tuple[type[Exception], ...]
    """As the transaction raises them."""
    mend: Callable[[Attempt, Any], Awaitable[None]]
    times: int
    """So often for one batch."""
    in_vain: str = ""
    """What the store is said to lack if that was not enough; without it, the error itself is raised."""


MENDINGS: Final = (
    _Mending(LayoutChangedError, _choose_again, 4, "the queues of these messages keep changing"),
    _Mending(PartitionMissingError, _make_days, 1, "the partition of a day cannot be made"),
    _Mending(StoreUnavailableError, _connect_again, 1),
    _Mending(LocksHeldError, _go_around_held, 1),
    _Mending(REFUSED_ERRORS, _refuse_first, 1),
)


async def store_mending(
    attempt: Attempt, try_once: Callable[[Attempt], Awaitable[list[FrameResult]]]
) -> list[FrameResult]:
    """Try until it is stored, mending in between what can be mended; return what became of each frame."""
    mended: Counter[_Mending] = Counter()
    while True:
        try:
            return await try_once(attempt)
        except Exception as error:
            mending = next((mending for mending in MENDINGS if isinstance(error, mending.errors)), None)
            if mending is None:
                raise
            mended[mending] += 1
            if mended[mending] > mending.times:
                if mending.in_vain:
                    raise StoreUnavailableError(mending.in_vain) from error
                raise
            await mending.mend(attempt, error)
        attempt.follows = False
