"""The answers of a publisher that reads them slowly, or not at all."""

from __future__ import annotations

import asyncio

import pytest

from msgbroker.server.deliver.outgoing import Outgoing, OutgoingConfig, Outlet
from msgbroker.server.edge.publishing.answers import Answers
from msgdb.append.plan import FrameResult, Gap


class Told:
    """The answers of one stream."""

    def __init__(self, outlet: Outlet | None = None) -> None:
        self.outgoing = Outgoing(OutgoingConfig(bytes_max=1_000))
        self.outlet = outlet or self.outgoing.open(lambda _: None)
        self.answers = Answers(self.outlet, self._encode)
        self.results: list[asyncio.Future[FrameResult]] = []

    def expect(self, refusals: int = 0) -> asyncio.Future[FrameResult]:
        result: asyncio.Future[FrameResult] = asyncio.get_running_loop().create_future()
        self.results.append(result)
        self.answers.expect(len(self.results), result, refusals)
        return result

    def write(self) -> bytes:
        answer = self.answers.next()
        if answer:
            self.answers.begin_write(answer)
            self.answers.written()
        return answer

    @staticmethod
    def _encode(sequence: int, result: asyncio.Future[FrameResult]) -> bytes:
        result.result()
        return b"answer %d" % sequence


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def has_room(told: Told) -> bool:
    waiting = asyncio.create_task(told.answers.room())
    await turns()
    is_there = waiting.done()
    waiting.cancel()
    return is_there


async def test_answers_are_given_in_the_order_of_their_frames() -> None:
    told = Told()
    first, second = told.expect(), told.expect()
    second.set_result(Gap(1))
    await turns()
    assert told.answers.next() == b""
    first.set_result(Gap(1))
    await turns()

    assert told.answers.wake.is_set()
    assert [told.write(), told.write(), told.write()] == [b"answer 1", b"answer 2", b""]
    assert told.answers.are_given
    assert told.outgoing.bytes_held == 0


async def test_an_answer_that_is_known_counts_until_it_has_been_taken_over() -> None:
    told = Told()
    told.expect().set_result(Gap(1))
    await turns()
    assert told.outgoing.bytes_held == len(b"answer 1")
    answer = told.answers.next()
    told.answers.begin_write(answer)
    assert told.outgoing.bytes_held == 2 * len(answer)
    told.answers.written()
    assert told.outgoing.bytes_held == 0


async def test_a_stream_with_16_unanswered_frames_is_read_no_further() -> None:
    told = Told()
    for _ in range(15):
        told.expect()
    assert await has_room(told)
    told.expect()
    assert not await has_room(told)
    told.results[0].set_result(Gap(1))
    await turns()
    assert not await has_room(told)
    told.write()
    assert await has_room(told)


async def test_a_stream_with_many_refusals_that_it_was_not_told_is_read_no_further() -> None:
    told = Told()
    told.expect(refusals=200)
    assert await has_room(told)
    told.expect(refusals=1_000)
    assert not await has_room(told)
    for result in told.results:
        result.set_result(Gap(1))
    await turns()
    told.write()
    assert not await has_room(told)
    told.write()
    assert await has_room(told)


async def test_while_too_much_waits_for_clients_a_stream_with_answers_is_read_no_further_until_there_is_room() -> None:
    told = Told()
    told.expect()
    greedy = told.outgoing.open(lambda _: None)
    greedy.hold(1_000)
    waiting = asyncio.create_task(told.answers.room())
    await turns()
    assert not waiting.done()
    greedy.close()
    await turns()

    assert waiting.done()


async def test_what_no_error_of_ours_explains_is_raised_in_its_turn() -> None:
    told = Told()
    first, second = told.expect(), told.expect()
    second.set_exception(RuntimeError("a mistake"))
    first.set_result(Gap(1))
    await turns()
    assert told.write() == b"answer 1"
    with pytest.raises(RuntimeError, match="a mistake"):
        told.answers.next()


async def test_when_the_stream_has_ended_nothing_is_held_whatever_comes_later() -> None:
    told = Told()
    first, second = told.expect(), told.expect()
    first.set_result(Gap(1))
    told.answers.forget()
    told.outlet.close()
    await turns()

    assert second.cancelled()
    assert told.outgoing.bytes_held == 0
