"""The committer, with the store played by the test: batches, order, what is held, and what slows publishers down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest

from confdb.routes import TopicRoute
from msgbroker.contract.errors import (
    BrokerBusyError,
    BrokerUnavailableError,
    QueueHeldError,
    StoreUnavailableError,
    TopicSetAsideError,
)
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.log.message import LogMessage
from msgbroker.server.log.topic_queues import Layout
from msgbroker.server.publish.batches import BatchBounds
from msgbroker.server.publish.committer import Committer, CommitterConfig
from msgdb.append.appender import LayoutChangedError, NotTriedError
from msgdb.append.mending import ChooseAgain
from msgdb.append.outcome import FrameOutcome, Refused
from msgdb.append.plan import AppendFrame, FrameResult, Gap, Held, Stored
from tests.support.broker_builders import board, log_message, route, topic_alarm

Answer = list[FrameResult] | Exception


class PlayedStore:
    """Appends when the test says so, with the results that it says."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[tuple[list[AppendFrame], bool, asyncio.Future[Answer]]] = asyncio.Queue()
        self.in_flight = 0
        self.closed = False

    async def append(
        self, frames: Sequence[AppendFrame], *, around_held: bool, follows: bool, choose_again: ChooseAgain
    ) -> list[FrameResult]:
        assert follows or self.in_flight == 0
        self.in_flight += 1
        assert self.in_flight <= 2, "one transaction at a time, and the one that follows it"
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.calls.put_nowait((list(frames), around_held, answer))
        try:
            results = await answer
            if isinstance(results, LayoutChangedError):
                await choose_again(results)
                answer = asyncio.get_running_loop().create_future()
                self.calls.put_nowait((list(frames), around_held, answer))
                results = await answer
        finally:
            self.in_flight -= 1
        if isinstance(results, Exception):
            raise results
        return results

    async def close(self) -> None:
        self.closed = True


class Queues:
    """The layout of each topic."""

    def __init__(self, *queue_ids: int) -> None:
        self.queue_ids = queue_ids
        self.newer: tuple[int, ...] | None = None

    async def ensure(self, _: TopicRoute) -> Layout:
        return Layout(1, self.queue_ids)

    async def load(self) -> None:
        assert self.newer is not None
        self.queue_ids = self.newer


class Scene:
    """A committer at work, and what it told the lanes."""

    def __init__(self, *queue_ids: int, **config: Any) -> None:
        self.store = PlayedStore()
        self.queues = Queues(*(queue_ids or (1,)))
        self.told: list[Mapping[int, list[LogMessage]]] = []
        self.elsewhere: list[FrameOutcome] = []
        self.board = board()
        self.committer = Committer(
            self.store,  # type: ignore[arg-type]
            self.queues,  # type: ignore[arg-type]
            on_stored=self.told.append,
            on_stored_before=self.elsewhere.append,
            topics_aside=SetAside(self.board, topic_alarm),
            config=CommitterConfig(**{"held_pause_seconds": 0.001, **config}),
        )
        self.stop = asyncio.Event()
        self.running = asyncio.create_task(self.committer.run(self.stop))

    def submit(self, *messages: LogMessage, bytes_held: int = 10, **fields: Any) -> asyncio.Future[FrameResult]:
        frame = AppendFrame(fields.get("publisher_id", b"p" * 16), fields.get("sequence", 1), list(messages))
        frame.refusals = fields.get("refusals", ())
        frame.size_bytes = fields.get("size_bytes", 10)
        return self.committer.submit(frame, self.committer.budget.hold_at_once(bytes_held))

    async def call(self) -> tuple[list[AppendFrame], Callable[[Answer], None], bool]:
        async with asyncio.timeout(5):
            frames, around_held, answer = await self.store.calls.get()
        return frames, answer.set_result, around_held

    async def end(self) -> None:
        self.stop.set()
        async with asyncio.timeout(5):
            await self.running


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    yield scene
    await scene.end()


def stored(frame: AppendFrame, first_offset: int = 0, *, duplicate: bool = False) -> Stored:
    places = list(range(first_offset, first_offset + len(frame.messages)))
    for message, place in zip(frame.messages, places, strict=True):
        message.queue_offset = place
    queue_ids = [message.queue_id for message in frame.messages]
    return Stored(FrameOutcome(frame.sequence, b"\0" * 16, 1_000, queue_ids, places), duplicate)


async def test_what_comes_while_a_transaction_is_in_flight_joins_the_next(scene: Scene) -> None:
    first = scene.submit(log_message())
    frames, commit, _ = await scene.call()
    later = [scene.submit(log_message()), scene.submit(log_message())]
    assert len(frames) == 1
    assert scene.store.calls.empty()

    commit([stored(frames[0])])
    frames, commit, _ = await scene.call()
    assert len(frames) == 2
    commit([stored(frame, index + 1) for index, frame in enumerate(frames)])

    assert [(await answer).outcome.queue_offsets for answer in (first, *later)] == [[0], [1], [2]]  # type: ignore[union-attr]


async def test_nothing_is_told_to_the_lanes_before_it_is_committed(scene: Scene) -> None:
    answer = scene.submit(log_message(body=b"a"), log_message(body=b"b"))
    frames, commit, _ = await scene.call()
    assert scene.told == []
    assert not answer.done()

    commit([stored(frames[0], 7)])
    await answer
    (by_queue,) = scene.told
    assert [(message.queue_offset, bool(message.wire)) for message in by_queue[1]] == [(7, True), (8, True)]


async def test_a_store_that_is_away_fails_the_batch_and_not_what_comes_after_it(scene: Scene) -> None:
    lost = scene.submit(log_message())
    _, fail, _ = await scene.call()
    later = scene.submit(log_message())
    fail(StoreUnavailableError("gone"))
    with pytest.raises(StoreUnavailableError):
        await lost
    frames, commit, _ = await scene.call()
    commit([stored(frames[0])])

    assert isinstance(await later, Stored)
    assert scene.committer.is_idle


async def test_a_duplicate_is_not_handed_to_the_lanes_again(scene: Scene) -> None:
    answer = scene.submit(log_message())
    frames, commit, _ = await scene.call()
    commit([stored(frames[0], 3, duplicate=True)])

    result = await answer
    assert isinstance(result, Stored)
    assert scene.told == []
    assert scene.elsewhere == [result.outcome]


async def test_a_gap_is_answered_and_told_to_nobody(scene: Scene) -> None:
    answer = scene.submit(log_message())
    _, commit, _ = await scene.call()
    commit([Gap(1)])

    assert await answer == Gap(1)
    assert scene.told == []


async def test_ids_skip_what_was_refused(scene: Scene) -> None:
    refusals = (Refused(0, "R", "S", "m"), Refused(2, "R", "S", "m"))
    scene.submit(log_message(), log_message(), refusals=refusals)
    frames, commit, _ = await scene.call()
    for place, message in enumerate(frames[0].messages):
        message.queue_offset = place
    outcome = FrameOutcome(1, b"\0" * 16, 1_000, [0, 1, 0, 1], [0, 0, 0, 1], refusals)
    commit([Stored(outcome)])
    await scene.end()

    (by_queue,) = scene.told
    wires = [b"".join(message.wire) for message in by_queue[1]]
    assert [(1).to_bytes(16, "big") in wires[0], (3).to_bytes(16, "big") in wires[1]] == [True, True]


async def test_a_held_frame_is_tried_again_before_those_behind_it(scene: Scene) -> None:
    held = scene.submit(log_message(key="a"), sequence=1)
    free = scene.submit(log_message(key="b"), publisher_id=b"q" * 16)
    frames, commit, around_held = await scene.call()
    behind = scene.submit(log_message(key="a"), sequence=2)
    assert not around_held
    commit([Held(1), stored(frames[1])])
    await free
    assert not held.done()

    frames, commit, around_held = await scene.call()
    assert [frame.sequence for frame in frames] == [1, 2]
    assert around_held
    commit([stored(frame, index + 1) for index, frame in enumerate(frames)])
    assert [isinstance(await answer, Stored) for answer in (held, behind)] == [True, True]


async def test_a_message_without_a_key_goes_around_a_queue_that_is_held() -> None:
    scene = Scene(1, 2)
    keyless = scene.submit(log_message())
    frames, commit, _ = await scene.call()
    first_choice = frames[0].messages[0].queue_id
    commit([Held(first_choice)])
    frames, commit, _ = await scene.call()

    assert frames[0].messages[0].queue_id == 3 - first_choice
    commit([stored(frames[0])])
    await keyless
    await scene.end()


async def test_a_frame_that_is_held_for_too_long_is_given_back() -> None:
    scene = Scene(held_seconds_max=0.0)
    answer = scene.submit(log_message(key="a"))
    _, commit, _ = await scene.call()
    commit([Held(1)])

    with pytest.raises(QueueHeldError):
        await answer
    assert scene.committer.is_idle
    await scene.end()


async def test_when_the_layout_changed_queues_are_chosen_again(scene: Scene) -> None:
    scene.queues.newer = (8, 9)
    answer = scene.submit(log_message(key="a"))
    _, fail, _ = await scene.call()
    fail(LayoutChangedError([1]))
    frames, commit, _ = await scene.call()

    assert frames[0].messages[0].queue_id in {8, 9}
    commit([stored(frames[0])])
    assert isinstance(await answer, Stored)


async def test_batches_are_bounded_and_keep_the_order() -> None:
    scene = Scene(batch=BatchBounds(messages_max=3, bytes_max=100, publishers_max=2))
    blocker = scene.submit(log_message())
    frames, commit, _ = await scene.call()
    for sequence in range(1, 6):
        scene.submit(log_message(), sequence=sequence)
    scene.submit(log_message(), sequence=6, size_bytes=99)
    scene.submit(*[log_message()] * 10, sequence=7)
    for sequence in (8, 9, 10):
        scene.submit(log_message(), publisher_id=bytes([sequence]) * 16, sequence=sequence)
    commit([stored(frames[0])])
    await blocker
    batches = []
    for _ in range(5):
        frames, commit, _ = await scene.call()
        batches.append([frame.sequence for frame in frames])
        commit([stored(frame) for frame in frames])

    assert batches == [[1, 2, 3], [4, 5], [6], [7], [8, 9]]
    frames, commit, _ = await scene.call()
    commit([stored(frame) for frame in frames])
    await scene.end()


async def test_a_batch_takes_frames_in_their_order_as_long_as_they_are_in_few_queues() -> None:
    scene = Scene(*range(1, 41), batch=BatchBounds(queues_max=20))
    blocker = scene.submit(log_message())
    frames, commit, _ = await scene.call()
    for sequence in range(1, 11):
        # One frame is in more queues than a batch may be: it is one by itself.
        count = 400 if sequence == 5 else 8
        scene.submit(*[log_message(key=f"{sequence} {n}") for n in range(count)], sequence=sequence)
    for sequence in range(11, 101):
        # They are all in one of the topic's queues.
        scene.submit(log_message(), sequence=sequence)
    commit([stored(frames[0])])
    await blocker
    batches: list[list[int]] = []
    while sum(map(len, batches)) < 100:
        frames, commit, _ = await scene.call()
        batches.append([frame.sequence for frame in frames])
        queue_ids = {message.queue_id for frame in frames for message in frame.messages}
        assert len(queue_ids) <= 20 or [frame.sequence for frame in frames] == [5]
        commit([stored(frame) for frame in frames])

    assert batches == [[1, 2, 3, 4], [5], [6, 7, 8], [*range(9, 101)]]
    await scene.end()


async def follower(**bounds: int) -> tuple[Scene, list[asyncio.Future[FrameResult]], list[Callable[[Answer], None]]]:
    """Return a committer with a batch in flight, a whole one that follows it, and one frame behind that."""
    scene = Scene(batch=BatchBounds(**(bounds or {"messages_max": 2})))
    answers = [scene.submit(log_message(key="a"), sequence=1)]
    _, first, _ = await scene.call()
    answers += [scene.submit(log_message(key="a"), sequence=sequence) for sequence in (2, 3, 4)]
    frames, second, _ = await scene.call()
    assert [frame.sequence for frame in frames] == [2, 3]
    return scene, answers, [first, second]


@pytest.mark.parametrize("bounds", [{"messages_max": 2}, {"bytes_max": 20}])
async def test_a_whole_batch_is_ready_to_follow_and_no_third_one(bounds: dict[str, int]) -> None:
    scene, answers, (first, second) = await follower(**bounds)
    assert scene.store.calls.empty()

    first([stored(AppendFrame(b"p" * 16, 1, []))])
    second([stored(AppendFrame(b"p" * 16, 2, [])), stored(AppendFrame(b"p" * 16, 3, []))])
    frames, third, _ = await scene.call()
    assert [frame.sequence for frame in frames] == [4]
    third([stored(frames[0])])

    assert [(await answer).outcome.sequence for answer in answers] == [1, 2, 3, 4]  # type: ignore[union-attr]
    await scene.end()


@pytest.mark.parametrize("outcome", [[Held(1)], [Gap(1)], StoreUnavailableError("gone")], ids=["held", "gap", "lost"])
async def test_a_batch_that_was_not_tried_goes_on_in_its_place(outcome: Answer) -> None:
    scene, answers, (first, second) = await follower()
    first(outcome)
    second(NotTriedError())
    frames, commit, _ = await scene.call()

    if isinstance(outcome, list) and isinstance(outcome[0], Held):
        assert [frame.sequence for frame in frames] == [1, 2]
        commit([stored(frames[0]), stored(frames[1])])
        frames, commit, _ = await scene.call()
        assert [frame.sequence for frame in frames] == [3, 4]
    else:
        assert [frame.sequence for frame in frames] == [2, 3]
        commit([stored(frames[0]), stored(frames[1])])
        frames, commit, _ = await scene.call()
        assert [frame.sequence for frame in frames] == [4]
    commit([stored(frame) for frame in frames])
    results = await asyncio.gather(*answers, return_exceptions=True)
    assert [isinstance(result, Stored) for result in results[1:]] == [True] * 3
    await scene.end()


async def test_too_much_waiting_slows_streams_and_refuses_calls_until_it_is_stored() -> None:
    scene = Scene(waiting_bytes_max=100)
    scene.committer.check_room()
    answer = scene.submit(log_message(), bytes_held=100)
    waiting = asyncio.ensure_future(scene.committer.budget.hold(10))
    await asyncio.sleep(0)
    with pytest.raises(BrokerBusyError) as raised:
        scene.committer.check_room()
    assert raised.value.retry_after_seconds == 0.5
    frames, commit, _ = await scene.call()
    assert not waiting.done()

    commit([stored(frames[0])])
    await answer
    hold = await waiting
    scene.committer.check_room()
    hold.release()
    assert scene.committer.is_idle
    await scene.end()


async def test_a_publisher_that_went_away_disturbs_nobody(scene: Scene) -> None:
    gone, here = scene.submit(log_message()), scene.submit(log_message())
    frames, commit, _ = await scene.call()
    gone.cancel()
    commit([stored(frame, index) for index, frame in enumerate(frames)])

    assert isinstance(await here, Stored)
    # Stored is stored: the lanes get both.
    assert [len(messages) for messages in scene.told[0].values()] == [2]


async def test_stopping_stores_what_waits_and_takes_nothing_more() -> None:
    scene = Scene()
    answer = scene.submit(log_message())
    scene.stop.set()
    frames, commit, _ = await scene.call()
    commit([stored(frames[0])])
    await scene.end()

    assert isinstance(await answer, Stored)
    assert scene.store.closed
    with pytest.raises(BrokerUnavailableError):
        await scene.submit(log_message())


async def test_brokers_that_begin_at_different_turns_write_different_queues_first() -> None:
    chosen: list[int] = []
    for first_turn in (0, 1, 6):
        scene = Scene(11, 12, 13, 14, first_turn=first_turn)
        scene.submit(log_message())
        frames, commit, _ = await scene.call()
        chosen += [message.queue_id for message in frames[0].messages]
        commit([stored(frames[0])])
        await scene.end()

    assert chosen == [11, 12, 13]


async def test_a_batch_that_fails_for_an_unknown_reason_is_stored_frame_by_frame_and_one_topic_set_aside(
    scene: Scene,
) -> None:
    first = scene.submit(log_message())
    frames, commit_first, _ = await scene.call()
    bad_topic = route(2, name="TP_BAD")
    good, bad, late = (scene.submit(log_message(topic=topic)) for topic in (route(), bad_topic, route()))
    commit_first([stored(frames[0])])
    await first
    frames, fail, _ = await scene.call()
    assert len(frames) == 3
    fail(ValueError("a page is damaged"))

    for offset in (1, None, 2):
        frames, answer, _ = await scene.call()
        assert len(frames) == 1
        answer([stored(frames[0], offset)] if offset is not None else ValueError("a page is damaged"))
    with pytest.raises(TopicSetAsideError, match="TP_BAD"):
        await bad
    assert isinstance(await good, Stored)
    assert isinstance(await late, Stored)
    assert [alarm.thing for alarm in scene.board.standing] == ["topic 2"]

    # For a while it is not even tried.
    with pytest.raises(TopicSetAsideError, match="TP_BAD"):
        await scene.submit(log_message(topic=bad_topic))
    assert scene.committer.is_idle


async def test_what_a_former_history_of_the_store_committed_is_not_believed(scene: Scene) -> None:
    answer = scene.submit(log_message())
    frames, commit, _ = await scene.call()
    scene.committer.forget_log()
    commit([stored(frames[0])])

    with pytest.raises(StoreUnavailableError, match="history"):
        await answer
    assert scene.told == []
