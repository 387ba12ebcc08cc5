"""What instances say of their messages: what a correct client can say is carried out, the rest is refused.

A range costs what is in flight within it, whoever has it. So ranges have a bound in width, may not overlap, and a
request that has many of them lets others have their turn in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidRequestFieldError
from msgbroker.engine.verdicts import Held, Settlement, Verdict
from msgbroker.server import clock
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.v1 import subscriber_pb2
from msgdb.lanes.records import OffsetRange

SaidT = TypeVar("SaidT", subscriber_pb2.Begun, subscriber_pb2.Extension, subscriber_pb2.Settlement)

VERDICTS: Final = {
    subscriber_pb2.VERDICT_ACK: Verdict.ACK,
    subscriber_pb2.VERDICT_RETRY: Verdict.RETRY,
    subscriber_pb2.VERDICT_RELEASE: Verdict.RELEASE,
    subscriber_pb2.VERDICT_REJECT: Verdict.REJECT,
}
_RANGE_OFFSETS_MAX: Final = 100 * limits.LANE_WINDOW_MAX
"""How wide a range may be. A batch is never wider than the window, gaps and all; a client that was held up may have
some of them in a row."""
_STRETCH_WORK_MAX: Final = 50_000
"""How much work is done without a turn for anybody else: a few milliseconds."""
_RANGE_WORK: Final = 100
"""How much work, in offsets, a range counts that covers nothing."""


async def begin_all(group: GroupDelivery, instance: Instance, begun: Iterable[subscriber_pb2.Begun]) -> None:
    """Note what an instance says it has begun. Raises InvalidRequestFieldError; what came before that counts."""
    for stretch in _stretches(begun):
        group.begin(instance, stretch.held)
        if stretch.is_long:
            await asyncio.sleep(0)


async def extend_all(group: GroupDelivery, instance: Instance, extensions: Iterable[subscriber_pb2.Extension]) -> None:
    """Let an instance keep what it is at. Raises InvalidRequestFieldError; what came before that counts."""
    for stretch in _stretches(extensions):
        if stretch.held.ranges:
            group.extend(instance, stretch.held, extension_of(stretch.said), clock.now())
        if stretch.is_long:
            await asyncio.sleep(0)


async def settle_all(
    group: GroupDelivery, instance: Instance, settlements: Iterable[subscriber_pb2.Settlement]
) -> None:
    """Carry out the verdicts of one request. Raises InvalidRequestFieldError; what came before that counts."""
    for stretch in _stretches(settlements):
        said = stretch.said
        group.settle(instance, Settlement(stretch.held, *verdict_of(said), error_text_of(said)), clock.now())
        if stretch.is_long:
            await asyncio.sleep(0)


class _Stretch(NamedTuple, Generic[SaidT]):
    """What is carried out at once of what a request says."""

    said: SaidT
    held: Held
    """All that `said` names, or some of its ranges where they are many."""
    is_long: bool
    """So much was carried out in one go that others are to have their turn now."""


def _stretches(said: Iterable[SaidT]) -> Iterator[_Stretch[SaidT]]:
    """Divide what one request says into stretches. Ranges that cannot be are refused before any of their stretches."""
    ranges_left = limits.SETTLEMENT_RANGES_MAX
    work = 0
    for each in said:
        ranges_left -= max(1, len(each.ranges) // 2)
        if ranges_left < 0:
            raise InvalidRequestFieldError("ranges", f"must be {limits.SETTLEMENT_RANGES_MAX} at most in one request")
        queue_id, epoch, attempt = each.queue_id, each.epoch, each.attempt or 1
        ranges: list[OffsetRange] = []
        for first, end in _ranges_of(each):
            ranges.append((first, end))
            # No more can be in flight, however wide it is.
            work += _RANGE_WORK + min(end - first, limits.LANE_WINDOW_MAX)
            if work > _STRETCH_WORK_MAX:
                yield _Stretch(each, Held(queue_id, epoch, attempt, ranges), is_long=True)
                ranges, work = [], 0
        yield _Stretch(each, Held(queue_id, epoch, attempt, ranges), is_long=False)


def _ranges_of(said: SaidT) -> list[OffsetRange]:
    bounds = list(said.ranges)
    if len(bounds) % 2:
        raise InvalidRequestFieldError("ranges", "must be pairs: first, last")
    ranges: list[OffsetRange] = []
    settled_up_to = -1
    for first, last in zip(bounds[::2], bounds[1::2], strict=True):
        if last < first:
            raise InvalidRequestFieldError("ranges", f"end before they start: {first}-{last}")
        if first <= settled_up_to:
            raise InvalidRequestFieldError("ranges", f"must ascend and not overlap: {first} after {settled_up_to}")
        if last - first >= _RANGE_OFFSETS_MAX:
            raise InvalidRequestFieldError("ranges", f"must cover {_RANGE_OFFSETS_MAX} offsets at most: {first}-{last}")
        settled_up_to = last
        ranges.append((first, last + 1))
    return ranges


def verdict_of(
    said: subscriber_pb2.Settlement | subscriber_pb2.SettleRequest,
) -> tuple[Verdict, float | None]:
    """Return the verdict and its delay; None is the schedule (RETRY) or at once (RELEASE)."""
    verdict = VERDICTS.get(said.verdict)
    if verdict is None:
        raise InvalidRequestFieldError("verdict", "must be ACK, RETRY, RELEASE or REJECT")
    if said.unreadable and verdict is Verdict.REJECT:
        verdict = Verdict.UNREADABLE
    delay_seconds = said.delay_ms / 1_000
    if delay_seconds > limits.SETTLE_DELAY_SECONDS_MAX:
        raise InvalidRequestFieldError("delay_ms", f"must be {limits.SETTLE_DELAY_SECONDS_MAX:g} s at most")
    if said.delay_ms or said.immediately:
        return verdict, delay_seconds
    return verdict, None


def extension_of(said: subscriber_pb2.Extension | subscriber_pb2.ExtendRequest) -> float:
    """Return for how many seconds from now on a message is to be kept."""
    seconds = said.extend_ms / 1_000
    if not 0 < seconds <= limits.HANDLE_SECONDS_CEILING:
        raise InvalidRequestFieldError("extend_ms", f"must be 1 to {limits.HANDLE_SECONDS_CEILING * 1_000:.0f}")
    return seconds


def error_text_of(said: subscriber_pb2.Settlement | subscriber_pb2.SettleRequest) -> str:
    """Return what went wrong, in a form that can be stored: PostgreSQL's text has no NUL, and a limit of ours."""
    return said.error[: limits.ERROR_TEXT_CHARS_MAX].replace("\0", "\N{REPLACEMENT CHARACTER}")
