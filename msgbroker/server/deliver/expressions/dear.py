"""Expressions that are too dear for the event loop, evaluated in the helper process: one lane's messages at a time.

A group that has such a subscription gets that topic more slowly; its other topics, and all other groups, notice
nothing. Nothing is settled for being dear: what the helper process cannot finish, because a message takes more time or
memory than it may, is tried again. Then it is asked for one message at a time, so that all before that one are decided;
and when it dies again the lane is set aside with an alarm, and tried again later and later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from msgbroker.contract.errors import StoreUnavailableError
from msgbroker.engine.matching import Outcome
from msgbroker.server import clock
from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.deliver.expressions.evaluations import Evaluations
from msgbroker.server.deliver.expressions.helper_frames import Answer, Question, Request
from msgbroker.server.deliver.expressions.helper_process import HelperDiedError, HelperProcess
from msgbroker.server.deliver.expressions.lane_line import LaneInLine
from msgbroker.server.deliver.lanes.owned_lane import OwnedLane
from msgbroker.server.deliver.lanes.work import LaneWork, Work
from msgbroker.server.log.cache import BLOCK_OFFSETS, LogCache
from msgbroker.server.log.message import LogMessage
from msgbroker.server.loops import woken
from msgdb.reports.alarms import Alarm

log = structlog.get_logger(__name__)

_REQUEST_SECONDS: Final = 0.1
_REQUEST_MESSAGES_MAX: Final = 256
_REQUEST_MESSAGES_FIRST: Final = 8
"""So many are asked for at first, where nobody knows yet how long one takes."""
_REQUEST_BYTES_MAX: Final = 64 * 1024
_LOOK_SECONDS: Final = 1.0
_DEATHS_MAX: Final = 1
"""The first death of the helper may be anybody's doing; from the second on it is the lane's."""


@dataclass(slots=True)
class _Trouble:
    """A lane during whose evaluation the helper process died."""

    deaths: int
    careful_until: int
    """The offset below which the helper process is asked about one message at a time."""


class NamesLanes(Protocol):
    """Who knows which group and topic a lane is of, in the words of its alarms: the hub."""

    def alarm_of(self, unit: LaneWork) -> Alarm:
        """Return the alarm that work on a lane fails, without its detail."""
        ...


class DearExpressions:
    """Takes one lane after the other out of the line of `Evaluations`, and has its next messages evaluated."""

    def __init__(
        self,
        *,
        evaluations: Evaluations,
        cache: LogCache,
        lanes: NamesLanes,
        helper: HelperProcess,
        board: AlarmBoard,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self.aside: SetAside[OwnedLane] = SetAside(
            board, lambda owned: lanes.alarm_of(LaneWork(owned.lane.key, Work.EVALUATING)), now
        )
        self._evaluations = evaluations
        self._cache = cache
        self._helper = helper
        self._waiting: dict[OwnedLane, LaneInLine] = {}
        """The lanes that wait for their next try, because they are set aside."""
        self._troubles: dict[OwnedLane, _Trouble] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Evaluate for the lanes in line until *stop* is set."""
        try:
            while not stop.is_set():
                self.tend()
                if not await self.evaluate_once():
                    await woken(stop, self._evaluations.line.wake, _LOOK_SECONDS)
                # However many lanes there are about which nothing needs to be asked.
                await asyncio.sleep(0)
        finally:
            self._helper.close()

    def tend(self) -> None:
        """Let those that were set aside long enough stand in line again, and forget those that are not served here."""
        for owned, lane in list(self._waiting.items()):
            if owned.lane.is_stopped or not self._evaluations.measured(owned).is_slow:
                del self._waiting[owned]
                self._forget(owned)
                # Where its expressions are cheap by now, it needs nobody here.
                lane.activate()
            elif not self.aside.is_waiting(owned):
                del self._waiting[owned]
                self._evaluations.line.add(lane)
        # Those as well that stand in line again: nobody will take them from there.
        for owned in [owned for owned in {*self._troubles, *self.aside.units} if owned.lane.is_stopped]:
            self._forget(owned)

    async def evaluate_once(self) -> bool:
        """Have the next lane's messages evaluated; return whether there was something to do, and somebody to do it."""
        if not len(self._evaluations.line):
            await self._helper.rest()
            return False
        is_ready = await self._helper.is_ready()
        self._evaluations.problem = self._helper.problem
        if not is_ready:
            return False
        lane = self._evaluations.line.take()
        if lane is None:
            return False
        if self.aside.is_waiting(lane.owned):
            self._waiting[lane.owned] = lane
            return True
        try:
            with self.aside.contained(lane.owned):
                await self._evaluate(lane)
        except StoreUnavailableError:
            # As with any read: the next tick tries again.
            lane.owned.is_read_failed = True
            lane.activate()
        if self.aside.is_waiting(lane.owned):
            self._waiting[lane.owned] = lane
        return True

    async def _evaluate(self, lane: LaneInLine) -> None:
        owned = lane.owned
        measured = self._evaluations.measured(owned)
        asked = self._to_ask(owned, await self._messages(owned))
        if asked:
            request = _request(asked)
            try:
                answer = await self._helper.ask(request)
            except HelperDiedError as error:
                self._died(lane, asked[-1][0].queue_offset + 1, error)
                return
            self._take(asked, request, answer)
            measured.add_elsewhere(answer.seconds, answer.evaluations, answer.longest_seconds)
            if not measured.is_slow:
                log.warning("expressions.moved_back", lane=owned.lane.key, seconds=round(measured.seconds_each, 6))
            self._worked(owned)
        elif owned not in self._troubles or self._is_past_trouble(owned):
            self._forget(owned)
        lane.activate()

    async def _messages(self, owned: OwnedLane) -> Sequence[LogMessage]:
        """Return the messages that the lane reads next, from memory or from msgdb."""
        cache, queue_id = self._cache, owned.lane.key.queue_id
        offset = owned.lane.next_offset
        if owned.lane.is_stopped or offset >= cache.end_of(queue_id):
            return ()
        messages = cache.find(queue_id, offset, BLOCK_OFFSETS)
        if messages is not None:
            return messages
        # It was in memory when the lane came to the line, and is not any more. That may happen again before its turn
        # comes, so it is not sent back to read it.
        await cache.read(queue_id, offset, owned.reader)
        return cache.find(queue_id, offset, BLOCK_OFFSETS) or ()

    def _to_ask(self, owned: OwnedLane, messages: Sequence[LogMessage]) -> list[tuple[LogMessage, tuple[str, ...]]]:
        """Return the first messages of which something must be evaluated, with what that is."""
        find = self._evaluations.known.find
        asked: list[tuple[LogMessage, tuple[str, ...]]] = []
        count_max, bytes_left = self._count_max(owned), _REQUEST_BYTES_MAX
        for message, texts in zip(messages, owned.matcher.questions(messages, owned.lane.key.queue_id), strict=False):
            known = [find(text, message) for text in texts]
            if not texts or Outcome.MATCH in known or None not in known:
                continue
            bytes_left -= sum(len(name) + len(value) for name, value in message.headers.items())
            if asked and (len(asked) >= count_max or bytes_left < 0):
                break
            asked.append((message, tuple(text for text, outcome in zip(texts, known, strict=True) if outcome is None)))
        return asked

    def _count_max(self, owned: OwnedLane) -> int:
        if owned in self._troubles and not self._is_past_trouble(owned):
            return 1
        seconds_each = self._evaluations.measured(owned).seconds_each
        if not seconds_each:
            return _REQUEST_MESSAGES_FIRST
        return min(_REQUEST_MESSAGES_MAX, int(_REQUEST_SECONDS / seconds_each) + 1)

    def _take(self, asked: list[tuple[LogMessage, tuple[str, ...]]], request: Request, answer: Answer) -> None:
        for (message, texts), outcomes in zip(asked, answer.outcomes, strict=False):
            for text, outcome in zip(texts, outcomes, strict=False):
                self._evaluations.known.put(text, message, Outcome(outcome))
        for text, problem in zip(request.expressions, answer.problems, strict=False):
            if problem:
                self._evaluations.known.put_problem(text, problem)

    def _died(self, lane: LaneInLine, end: int, error: HelperDiedError) -> None:
        """Ask again with more care, or set the lane aside."""
        trouble = self._troubles.setdefault(lane.owned, _Trouble(0, 0))
        trouble.deaths += 1
        trouble.careful_until = max(trouble.careful_until, end)
        log.warning("expressions.not_finished", lane=lane.owned.lane.key, deaths=trouble.deaths, problem=str(error))
        if trouble.deaths > _DEATHS_MAX:
            self.aside.failed(lane.owned, error)
        else:
            self._evaluations.line.add(lane)

    def _worked(self, owned: OwnedLane) -> None:
        self.aside.worked(owned)
        if owned in self._troubles:
            self._troubles[owned].deaths = 0
            if self._is_past_trouble(owned):
                del self._troubles[owned]

    def _is_past_trouble(self, owned: OwnedLane) -> bool:
        return owned.lane.next_offset >= self._troubles[owned].careful_until

    def _forget(self, owned: OwnedLane) -> None:
        self.aside.worked(owned)
        self._troubles.pop(owned, None)


def _request(asked: list[tuple[LogMessage, tuple[str, ...]]]) -> Request:
    numbers: dict[str, int] = {}
    questions = tuple(
        Question(dict(message.headers), tuple(numbers.setdefault(text, len(numbers)) for text in texts))
        for message, texts in asked
    )
    return Request(tuple(numbers), questions, _REQUEST_SECONDS)
