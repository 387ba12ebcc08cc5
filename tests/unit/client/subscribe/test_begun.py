"""What the client says of what it has begun, and how it begins where another has just died."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from msgbroker.client import Message, MessageCenter, Release
from msgbroker.client.handle import turns as turns_module
from msgbroker.client.subscribe.settlements import BegunRanges, RequestRoom, Settlements
from msgbroker.v1 import subscriber_pb2
from tests.support.eventually import eventually
from tests.support.fake_broker import FakeBroker, SubscribeCall
from tests.support.fast_center import center_of

ACK, RELEASE = 1, 3


class Gate:
    """A handler whose calls wait to be let go, message by message."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self._gates: dict[str, asyncio.Event] = {}

    async def handle(self, message: Message) -> None:
        body = message.body.decode()
        self.running.append(body)
        try:
            await self._gate(body).wait()
        finally:
            self.running.remove(body)

    def open(self, *bodies: str) -> None:
        for body in bodies:
            self._gate(body).set()

    def _gate(self, body: str) -> asyncio.Event:
        return self._gates.setdefault(body, asyncio.Event())


# --- who it is --------------------------------------------------------------------------------------------------------


async def test_all_streams_of_a_center_have_one_process_id_and_no_other_center_has_it(broker: FakeBroker) -> None:
    process_ids = []
    for _ in range(2):
        async with center_of(broker, instance_id="same") as center:

            @center.subscriber(group="SG", topic="TP")
            @center.subscriber(group="SG_OTHER", topic="TP")
            async def handle(message: Message) -> None: ...

            await center.start()
            calls = [await broker.subscribe_calls.get() for _ in range(2)]
            calls[0].end()
            calls.append(await broker.subscribe_calls.get())
            hellos = [call.hello for call in calls if call.hello is not None]
            process_ids.append({hello.process_id for hello in hellos})
            assert [hello.says_begun for hello in hellos] == [True] * 3

    assert [len(ids) for ids in process_ids] == [1, 1]
    assert len(set.union(*process_ids)) == 2
    assert all(len(process_id) == 16 for ids in process_ids for process_id in ids)


# --- what it says -----------------------------------------------------------------------------------------------------


async def test_what_takes_a_while_is_said_to_be_begun_alone_and_once(broker: FakeBroker) -> None:
    gate = Gate()
    async with center_of(broker) as center:
        center.subscriber(group="SG", topic="TP", concurrency=2)(gate.handle)
        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"a", b"b", b"waiting", first=5, attempt=3)
        await eventually(lambda: len(call.begun) == 2)
        gate.open("a")
        await call.settled(1)
        await eventually(lambda: len(call.begun) == 3)
        gate.open("b", "waiting")
        await call.settled(3)

    assert call.begun == [(5, 3), (6, 3), (7, 3)]
    assert call.requests_with_begun[0].settlements == []
    (begun,) = call.requests_with_begun[0].begun
    assert (begun.queue_id, begun.epoch, begun.attempt, list(begun.ranges)) == (7, 1, 3, [5, 6])


async def test_what_is_done_soon_is_never_said_to_be_begun(broker: FakeBroker) -> None:
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None: ...

        await center.start()
        call = await broker.subscribe_calls.get()
        for first in range(0, 1_000, 100):
            call.deliver(*[b""] * 100, first=first)
        await call.settled(1_000)

    assert call.begun == []


async def test_handlers_in_threads_are_said_to_have_begun_as_well(broker: FakeBroker) -> None:
    async with center_of(broker) as center:
        said = asyncio.Event()
        loop = asyncio.get_running_loop()

        @center.subscriber(group="SG", topic="TP")
        def handle(message: Message) -> None:
            asyncio.run_coroutine_threadsafe(said.wait(), loop).result(10)

        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"a")
        await eventually(lambda: call.begun == [(0, 1)])
        said.set()
        assert await call.settled(1) == [(0, ACK, 1)]


async def test_what_runs_on_from_an_old_stream_is_not_said_on_the_new_one(broker: FakeBroker) -> None:
    gate = Gate()
    async with center_of(broker) as center:
        center.subscriber(group="SG", topic="TP", concurrency=2)(gate.handle)
        await center.start()
        old = await broker.subscribe_calls.get()
        old.deliver(b"old")
        await eventually(lambda: gate.running == ["old"])
        old.end()
        new = await broker.subscribe_calls.get()
        new.deliver(b"new", first=9)
        await eventually(lambda: new.begun)
        gate.open("old", "new")
        await new.settled(1)

    assert new.begun == [(9, 1)]


def test_what_was_begun_of_a_revoked_lane_is_not_said() -> None:
    settlements = Settlements(lambda: None, lambda do: do())
    lane, other = settlements.lane(7, 3), settlements.lane(8, 3)
    for queue_offset in (3, 1, 2, 9):
        lane.begin(queue_offset, 1)
        other.begin(queue_offset, 2)
    settlements.revoke(7, 3)
    lane.begin(4, 1)

    assert settlements.take_begun(RequestRoom()) == [BegunRanges(8, 3, 2, [1, 3, 9, 9])]
    assert settlements.take_begun(RequestRoom()) == []
    other.begin(5, 1)
    settlements.close()
    assert settlements.take_begun(RequestRoom()) == []


async def test_a_handler_that_hangs_does_not_fill_memory_with_what_others_have_by_now(broker: FakeBroker) -> None:
    broker.attached.ack_timeout_ms = 20
    gate = Gate()
    async with center_of(broker) as center:
        center.subscriber(group="SG", topic="TP", concurrency=1)(gate.handle)
        await center.start()
        call = await broker.subscribe_calls.get()
        (runner,) = _runners(center)
        call.deliver(b"hangs")
        await eventually(lambda: gate.running)
        most = 0
        for number in range(20):
            call.deliver(*[b"again"] * 100, first=number * 100)
            await eventually(
                lambda: runner._waiting and not runner._waiting[0].is_live(asyncio.get_running_loop().time())
            )
            most = max(most, len(runner._waiting))
        gate.open("hangs", "again")

    assert most <= 200


# --- with care --------------------------------------------------------------------------------------------------------


@pytest.fixture
def careful(broker: FakeBroker) -> FakeBroker:
    broker.attached.careful_ms = 60_000
    return broker


async def test_with_care_a_message_is_known_to_be_begun_before_its_handler_is_called(careful: FakeBroker) -> None:
    calls: list[SubscribeCall] = []
    known: list[bool] = []
    async with center_of(careful) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            verdicts = calls[0].verdicts
            # Itself, and what became of those before it.
            known.append(
                (message.queue_offset, 1) in calls[0].begun
                and [offset for offset, _, _ in verdicts] == list(range(message.queue_offset))
            )

        await center.start()
        calls.append(await careful.subscribe_calls.get())
        calls[0].deliver(*[b""] * 100)
        await calls[0].settled(100)

    assert known == [True] * 100


async def test_with_care_one_message_is_begun_at_a_time_over_all_handlers_of_the_group(careful: FakeBroker) -> None:
    gate = Gate()
    async with center_of(careful) as center:
        for event_code in ("EC", "EC_OTHER"):
            center.subscriber(group="SG", topic="TP", event_code=event_code)(gate.handle)
        await center.start()
        call = await careful.subscribe_calls.get()
        call.deliver(b"0", b"1")
        call.deliver(b"2", b"3", event_code="EC_OTHER", first=2)
        order = []
        for _ in range(4):
            (body,) = await eventually(lambda: list(gate.running))
            order.append(body)
            gate.open(body)
            await eventually(lambda: body not in gate.running)  # noqa: B023
        await call.settled(4)

    assert sorted(order) == ["0", "1", "2", "3"]


async def test_with_care_a_handler_that_takes_long_holds_the_others_up_for_a_moment_only(
    careful: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "TURN_SECONDS", 0.02)
    gate = Gate()
    async with center_of(careful) as center:
        center.subscriber(group="SG", topic="TP", concurrency=3)(gate.handle)
        await center.start()
        call = await careful.subscribe_calls.get()
        call.deliver(*(str(n).encode() for n in range(10)))
        await eventually(lambda: len(gate.running) == 3)
        assert gate.running == ["0", "1", "2"]
        gate.open(*(str(n) for n in range(10)))
        await call.settled(10)


async def test_care_ends_after_a_while(broker: FakeBroker) -> None:
    broker.attached.careful_ms = 1
    gate = Gate()
    async with center_of(broker) as center:
        center.subscriber(group="SG", topic="TP")(gate.handle)
        await center.start()
        call = await broker.subscribe_calls.get()
        await asyncio.sleep(0.01)
        call.deliver(*(str(n).encode() for n in range(10)))
        await eventually(lambda: len(gate.running) == 10)
        gate.open(*(str(n) for n in range(10)))
        await call.settled(10)


async def test_care_ends_after_many_messages(careful: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "START_TURNS_MAX", 3)
    gate = Gate()
    async with center_of(careful) as center:
        center.subscriber(group="SG", topic="TP")(gate.handle)
        gate.open("0", "1", "2")
        await center.start()
        call = await careful.subscribe_calls.get()
        call.deliver(*(str(n).encode() for n in range(10)))
        await eventually(lambda: len(gate.running) == 7)
        gate.open(*(str(n) for n in range(10)))
        await call.settled(10)


async def test_with_care_a_broker_that_confirms_nothing_holds_nothing_up_for_ever(
    careful: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "TURN_SECONDS", 0.01)
    careful.confirms = False
    async with center_of(careful) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None: ...

        await center.start()
        call = await careful.subscribe_calls.get()
        call.deliver(*[b""] * 5)
        assert await call.settled(5) == [(offset, ACK, 1) for offset in range(5)]


async def test_care_ends_with_its_stream(careful: FakeBroker) -> None:
    careful.confirms = False
    gate = Gate()
    async with center_of(careful) as center:
        center.subscriber(group="SG", topic="TP")(gate.handle)
        await center.start()
        old = await careful.subscribe_calls.get()
        old.deliver(b"not confirmed", b"waiting")
        await eventually(lambda: old.begun)
        careful.attached.careful_ms = 0
        old.end()
        new = await careful.subscribe_calls.get()
        new.deliver(*(str(n).encode() for n in range(10)))
        await eventually(lambda: len(gate.running) == 10)
        gate.open(*(str(n) for n in range(10)))
        await new.settled(10)

    assert "not confirmed" not in gate._gates


async def test_closing_gives_back_what_waits_for_its_turn(careful: FakeBroker) -> None:
    gate = Gate()
    center = center_of(careful, drain_timeout_seconds=0.05)
    center.subscriber(group="SG", topic="TP")(gate.handle)
    await center.start()
    call = await careful.subscribe_calls.get()
    call.deliver(b"running", b"waiting", b"waiting")
    await eventually(lambda: gate.running)
    await center.close()

    assert await call.settled(3) == [(offset, RELEASE, 1) for offset in range(3)]


async def test_closing_gives_back_what_waits_to_be_confirmed(careful: FakeBroker) -> None:
    careful.confirms = False
    gate = Gate()
    center = center_of(careful, drain_timeout_seconds=0.05)
    center.subscriber(group="SG", topic="TP")(gate.handle)
    await center.start()
    call = await careful.subscribe_calls.get()
    call.deliver(b"not confirmed", b"waiting")
    await eventually(lambda: call.begun)
    await center.close()

    assert await call.settled(2) == [(0, RELEASE, 1), (1, RELEASE, 1)]
    assert gate.running == []


async def test_a_message_that_is_given_back_with_care_leaves_the_turn_to_the_next(careful: FakeBroker) -> None:
    numbers = itertools.count()
    async with center_of(careful) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            if next(numbers) % 2:
                raise Release

        await center.start()
        call = await careful.subscribe_calls.get()
        call.deliver(*[b""] * 4)
        call.push(subscriber_pb2.SubscribeResponse(revoked=[subscriber_pb2.LaneRevoked(queue_id=7, epoch=2)]))
        settled = await call.settled(4)

    assert [verdict for _, verdict, _ in settled] == [ACK, RELEASE, ACK, RELEASE]


# --- suspects ---------------------------------------------------------------------------------------------------------


async def test_suspects_are_known_to_be_begun_before_their_handlers_are_called_and_the_others_are_not(
    broker: FakeBroker,
) -> None:
    calls: list[SubscribeCall] = []
    known: list[bool] = []
    async with center_of(broker) as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            known.append((message.queue_offset, 1) in calls[0].begun)

        await center.start()
        calls.append(await broker.subscribe_calls.get())
        calls[0].deliver(*[b"suspect"] * 20, suspect=True)
        await calls[0].settled(20)
        calls[0].deliver(*[b"other"] * 20, first=20)
        await calls[0].settled(40)

    assert known == [True] * 20 + [False] * 20


async def test_suspects_go_before_others_that_wait_and_are_begun_one_at_a_time(broker: FakeBroker) -> None:
    gate = Gate()
    async with center_of(broker) as center:
        center.subscriber(group="SG", topic="TP", concurrency=3)(gate.handle)
        await center.start()
        call = await broker.subscribe_calls.get()
        call.deliver(b"0", b"1", b"2", b"3", b"4")
        await eventually(lambda: gate.running == ["0", "1", "2"])
        call.deliver(b"s5", b"s6", first=5, suspect=True)
        await eventually(lambda: _waiting(center) == ["s5", "s6", "3", "4"])
        gate.open("0", "1", "2")
        await eventually(lambda: gate.running == ["s5"])
        gate.open("s5")
        await eventually(lambda: gate.running == ["s6"])
        gate.open("s6", "3", "4")
        assert [verdict for _, verdict, _ in await call.settled(7)] == [ACK] * 7


async def test_suspects_that_wait_are_given_back_and_forgotten_like_others(broker: FakeBroker) -> None:
    gate = Gate()
    center = center_of(broker, drain_timeout_seconds=0.05)
    center.subscriber(group="SG", topic="TP", concurrency=1)(gate.handle)
    await center.start()
    old = await broker.subscribe_calls.get()
    old.deliver(b"running", b"waiting")
    old.deliver(b"suspect", first=2, suspect=True)
    await eventually(lambda: len(_waiting(center)) == 2)
    old.end()
    new = await broker.subscribe_calls.get()
    await eventually(lambda: not _waiting(center))
    gate.open("running")
    new.deliver(b"s", b"s", first=3, suspect=True)
    await eventually(lambda: gate.running == ["s"])
    await center.close()

    assert await new.settled(2) == [(3, RELEASE, 1), (4, RELEASE, 1)]


def _waiting(center: MessageCenter) -> list[str]:
    return [message.body.decode() for runner in _runners(center) for message in runner._waiting]


def _runners(center: MessageCenter) -> list[Any]:
    streams: Any = center._core._subscribers._streams.values()
    return [runner for stream in streams for runner in stream._handlers._runners.values()]
