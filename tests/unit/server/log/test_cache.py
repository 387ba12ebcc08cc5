"""The log cache: what is found in memory is what was committed, and memory is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.server.log import cache as log_cache
from msgbroker.server.log.cache import BLOCK_OFFSETS, LogCache, LogCacheConfig
from msgbroker.server.log.message import MESSAGE_OVERHEAD_BYTES, LogMessage
from tests.support.broker_builders import log_message

GROUP = "SG"


class FakeStore:
    """Lends connections that nobody uses."""

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[None]:
        yield


class Reads:
    """Stands for msgdb.log.reads: a queue of so many messages; counts the reads."""

    def __init__(self, end: int, first: int = 0, *, limit: int = 10_000) -> None:
        self.end = end
        self.first = first
        self.limit = limit
        self.asked: list[tuple[int, int]] = []

    async def first_offsets(self, _: object, queue_ids: Sequence[int]) -> dict[int, int]:
        return dict.fromkeys(queue_ids, self.first)

    async def next_offsets(self, _: object, queue_ids: Sequence[int]) -> dict[int, int]:
        return dict.fromkeys(queue_ids, max(self.first, self.end))

    async def read_range(
        self, _: object, queue_id: int, first: int, limit: int, bytes_max: int
    ) -> Sequence[LogMessage]:
        self.asked.append((first, limit))
        first = max(first, self.first)
        return [log_message(offset, queue_id=queue_id) for offset in range(first, min(first + limit, self.end))][
            : self.limit
        ]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    reads = Reads(2_000)
    for name in ("read_range", "first_offsets", "next_offsets"):
        monkeypatch.setattr(log_cache, name, getattr(reads, name))
    monkeypatch.setattr(log_cache, "messages_of_rows", lambda rows: rows)
    return reads


def make_cache(end: int = 0, **config: Any) -> LogCache:
    cache = LogCache(FakeStore(), LogCacheConfig(**config))  # type: ignore[arg-type]
    cache.learn_end(1, end)
    return cache


def committed(first: int, count: int, queue_id: int = 1, body: bytes = b"body") -> dict[int, list[LogMessage]]:
    return {queue_id: [log_message(offset, queue_id=queue_id, body=body) for offset in range(first, first + count)]}


def offsets(messages: Sequence[LogMessage] | None) -> list[int]:
    return [message.queue_offset for message in messages or ()]


def test_what_was_committed_here_is_found_in_memory() -> None:
    cache = make_cache()
    cache.add(committed(10, 5))
    cache.add(committed(15, 5))

    assert cache.end_of(1) == 20
    assert offsets(cache.find(1, 12, 4)) == [12, 13, 14, 15]
    assert offsets(cache.find(1, 18, 10)) == [18, 19]
    assert cache.find(1, 9, 1) is None
    assert cache.find(1, 20, 1) is None
    assert cache.find(2, 0, 1) is None


def test_where_others_wrote_in_between_only_the_newest_run_is_in_memory() -> None:
    cache = make_cache()
    cache.add(committed(0, 5))
    cache.add(committed(8, 2))

    assert cache.end_of(1) == 10
    assert cache.find(1, 4, 1) is None
    assert offsets(cache.find(1, 8, 9)) == [8, 9]


def test_an_end_that_was_heard_of_never_goes_back() -> None:
    cache = make_cache()
    told: list[int] = []
    cache.on_went_on(told.append)

    for end in (7, 7, 3):
        cache.learn_end(1, end)
    cache.add(committed(0, 2))
    assert (cache.end_of(1), told) == (7, [1])


async def by_a_commit(cache: LogCache) -> None:
    cache.add(committed(100, 5))


async def by_a_read(cache: LogCache) -> None:
    await cache.read(1, 90, GROUP)


async def by_a_read_of_nothing(cache: LogCache) -> None:
    cache.hint_end(1, 10**18)
    await cache.read(1, 3_000, GROUP)


async def by_asking(cache: LogCache) -> None:
    await cache.refresh_ends([1])


@pytest.mark.parametrize("learn", [by_a_commit, by_a_read, by_a_read_of_nothing, by_asking])
async def test_however_it_is_found_that_a_queue_went_on_its_readers_hear_of_it_once(
    reads: Reads, learn: Callable[[LogCache], Awaitable[None]]
) -> None:
    cache = make_cache(100)
    told: list[int] = []
    cache.on_went_on(told.append)

    await learn(cache)
    assert cache.end_of(1) > 100
    assert told == [1]
    cache.learn_end(1, cache.end_of(1))
    assert told == [1]


def test_what_somebody_says_of_an_end_is_worth_a_read_and_not_believed() -> None:
    cache = make_cache(7)

    assert not cache.hint_end(1, 7)
    assert cache.hint_end(1, 10**18)
    assert not cache.hint_end(1, 9)
    assert (cache.end_of(1), cache.may_reach(1)) == (7, 10**18)


async def test_a_hint_that_nothing_came_of_is_dropped_and_no_end_is_lost(reads: Reads) -> None:
    cache = make_cache(2_000)
    lost: list[int] = []
    cache.on_lost_end(lost.append)
    cache.hint_end(1, 10**18)
    block = await cache.read(1, 2_000, GROUP)

    assert (block.first, block.end, lost) == (2_000, 2_000, [])
    assert cache.may_reach(1) == cache.end_of(1) == 2_000


async def test_a_hint_that_came_true_is_known_by_the_read(reads: Reads) -> None:
    cache = make_cache(1_990)
    cache.hint_end(1, 2_000)
    block = await cache.read(1, 1_990, GROUP)

    assert (block.end, cache.end_of(1), cache.may_reach(1)) == (2_000, 2_000, 2_000)


async def test_a_hint_that_comes_while_one_is_read_is_read_as_well(
    reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = make_cache(2_000)
    cache.hint_end(1, 2_010)

    async def read_and_hear(_: object, queue_id: int, first: int, limit: int, bytes_max: int) -> list[LogMessage]:
        # Committed and announced after the read has looked.
        cache.hint_end(1, 2_020)
        return []

    monkeypatch.setattr(log_cache, "read_range", read_and_hear)
    await cache.read(1, 2_000, GROUP)

    assert cache.may_reach(1) == 2_020


async def test_what_is_forgotten_while_it_is_read_is_not_kept(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = make_cache(2_000)
    read_range = reads.read_range

    async def read_and_forget(*asked: Any) -> Sequence[LogMessage]:
        rows = await read_range(*asked)
        cache.forget()
        return rows

    monkeypatch.setattr(log_cache, "read_range", read_and_forget)
    block = await cache.read(1, 0, GROUP)

    assert (block.first, block.end) == (0, 0)
    assert cache.find(1, 0, 1) is None
    assert cache.end_of(1) == 0


def test_forgetting_a_queue_costs_the_same_however_much_is_remembered() -> None:
    """Two brokers that take turns at a queue leave a hole at every commit: this must not look at all that is there."""
    cache = make_cache()
    for offset in range(3_000):
        cache.add(committed(offset, 1, queue_id=2))
    for turn in range(5_000):
        cache.add(committed(2 * turn, 1))

    assert offsets(cache.find(1, 9_998, 1)) == [9_998]
    assert offsets(cache.find(2, 0, 3_000)) == list(range(3_000))
    assert len(cache._tail._segments) < 8_000
    assert cache._tail.size_bytes == 3_001 * log_message(0).held_bytes


def test_the_tail_forgets_the_oldest_first() -> None:
    cache = make_cache(tail_bytes_max=40 * (100 + MESSAGE_OVERHEAD_BYTES))
    for first in range(0, 50, 10):
        for queue_id in (1, 2):
            cache.add(committed(first, 10, queue_id, body=b"x" * 100))

    in_memory = [cache.find(queue_id, first, 1) is not None for first in range(0, 50, 10) for queue_id in (1, 2)]
    assert in_memory == [False] * 6 + [True] * 4


def test_the_tail_keeps_its_own_messages_when_others_were_heard_of_first() -> None:
    cache = make_cache(tail_bytes_max=15 * (100 + MESSAGE_OVERHEAD_BYTES))
    cache.learn_end(1, 100)
    cache.add(committed(50, 10, body=b"x" * 100))
    cache.add(committed(60, 10, body=b"x" * 100))

    assert cache.find(1, 50, 1) is None
    assert offsets(cache.find(1, 60, 10)) == list(range(60, 70))
    assert cache.end_of(1) == 100


def test_a_commit_larger_than_the_tail_leaves_the_committers_messages_alone() -> None:
    cache = make_cache(tail_bytes_max=1_000)
    by_queue = committed(0, 20, body=b"x" * 100)
    cache.add(by_queue)

    # Whoever told the cache has others to tell.
    assert offsets(by_queue[1]) == list(range(20))
    assert cache.find(1, 0, 1) is None
    assert cache.end_of(1) == 20


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(1, 30), st.integers(0, 200)), max_size=40))
def test_the_tail_is_bounded_and_true_whatever_is_committed(commits: list[tuple[int, int, int, int]]) -> None:
    cache = make_cache(tail_bytes_max=20 * (100 + MESSAGE_OVERHEAD_BYTES))
    ends: dict[int, int] = {}
    for queue_id, skipped, count, body_bytes in commits:
        first = ends.get(queue_id, 0) + skipped
        ends[queue_id] = first + count
        cache.add(committed(first, count, queue_id, b"x" * body_bytes))

        held = [message for run in cache._tail._runs.values() for message in run.messages]
        assert sum(message.held_bytes for message in held) == cache._tail.size_bytes <= cache._config.tail_bytes_max
        for queue_id_, end in ends.items():
            assert cache.end_of(queue_id_) == end
            for offset in range(end):
                found = cache.find(queue_id_, offset, 3)
                assert found is None or offsets(found) == list(range(offset, min(offset + 3, end)))


async def test_a_block_ends_where_all_groups_blocks_end(reads: Reads) -> None:
    cache = make_cache(2_000)
    block = await cache.read(1, 700, GROUP)

    assert (block.first, block.end) == (700, 2 * BLOCK_OFFSETS)
    assert reads.asked == [(700, 2 * BLOCK_OFFSETS - 700)]
    assert offsets(cache.find(1, 1_000, 100)) == list(range(1_000, 2 * BLOCK_OFFSETS))


async def test_groups_that_want_the_same_share_one_read(reads: Reads) -> None:
    cache = make_cache(2_000)
    await asyncio.gather(*(cache.read(1, 0, GROUP) for _ in range(5)))

    assert len(reads.asked) == 1


@pytest.mark.slow
async def test_a_group_that_wants_one_read_does_not_wait_for_all_of_another_groups(
    reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = make_cache(200_000, reads_max=2)
    order: list[int] = []
    read_range = reads.read_range

    async def read_in_order(conn: object, queue_id: int, *asked: int) -> Sequence[LogMessage]:
        order.append(queue_id)
        await asyncio.sleep(0)
        return await read_range(conn, queue_id, *asked)

    monkeypatch.setattr(log_cache, "read_range", read_in_order)
    catching_up = [asyncio.create_task(cache.read(queue_id, 0, "SG_BEHIND")) for queue_id in range(2, 258)]
    await asyncio.sleep(0)
    live = asyncio.create_task(cache.read(1, 0, "SG_LIVE"))
    await asyncio.gather(live, *catching_up)

    assert order.index(1) < 6
    assert len(order) == 257


async def test_blocks_are_bounded_and_the_ones_used_last_stay(reads: Reads) -> None:
    size_bytes = log_message(0).held_bytes * BLOCK_OFFSETS
    cache = make_cache(2_000, blocks_bytes_max=2 * size_bytes)
    await cache.read(1, 0, GROUP)
    await cache.read(1, BLOCK_OFFSETS, GROUP)
    assert cache.find(1, 0, 1)
    await cache.read(1, 2 * BLOCK_OFFSETS, GROUP)

    assert cache.find(1, 0, 1)
    assert cache.find(1, BLOCK_OFFSETS, 1) is None
    assert cache.find(1, 2 * BLOCK_OFFSETS, 1)


async def test_a_block_says_where_it_begins_after_days_were_dropped(reads: Reads) -> None:
    reads.first = 600
    cache = make_cache(2_000)
    block = await cache.read(1, 100, GROUP)

    assert block.first == 600
    assert offsets(cache.find(1, 600, 2)) == [600, 601]
    assert cache.find(1, 100, 1) is None


async def test_a_read_that_finds_nothing_says_up_to_where_there_is_nothing(
    reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads.first = reads.end
    cache = make_cache(2_000)

    async def commit_meanwhile(*asked: Any) -> Sequence[LogMessage]:
        found = await reads.read_range(*asked)
        cache.add(committed(2_000, 5))
        return found

    monkeypatch.setattr(log_cache, "read_range", commit_meanwhile)
    block = await cache.read(1, 100, GROUP)

    # Not up to 2,005: it had not seen those.
    assert (block.first, block.end, list(block.messages)) == (2_000, 2_000, [])
    assert cache.find(1, 100, 1) is None
    assert offsets(cache.find(1, 2_000, 9)) == [2_000, 2_001, 2_002, 2_003, 2_004]


async def test_a_read_that_finds_nothing_of_a_log_that_lost_its_end_passes_nothing(reads: Reads) -> None:
    cache = make_cache(2_000)
    told: list[int] = []
    cache.on_lost_end(told.append)
    reads.end = 1_000
    block = await cache.read(1, 1_500, GROUP)

    assert (block.first, block.end, cache.end_of(1), told) == (1_500, 1_500, 1_000, [1])


async def test_an_end_that_msgdb_says_is_lower_is_believed_and_what_was_in_memory_forgotten(reads: Reads) -> None:
    cache = make_cache(2_000)
    told: list[int] = []
    cache.on_lost_end(told.append)
    await cache.read(1, 0, GROUP)
    await cache.read(1, BLOCK_OFFSETS, GROUP)
    cache.add(committed(2_000, 5))
    reads.end = BLOCK_OFFSETS + 10

    await cache.refresh_ends([1])
    assert (cache.end_of(1), told, cache._tail.size_bytes) == (BLOCK_OFFSETS + 10, [1], 0)
    assert cache.find(1, BLOCK_OFFSETS - 1, 1)
    assert cache.find(1, BLOCK_OFFSETS, 1) is None
    assert cache.find(1, 2_000, 1) is None


async def test_what_is_committed_while_msgdb_is_asked_is_no_lost_end(
    reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = make_cache(2_000)
    told: list[int] = []
    cache.on_lost_end(told.append)

    async def commit_meanwhile(_: object, queue_ids: Sequence[int]) -> dict[int, int]:
        cache.add(committed(2_000, 5))
        return dict.fromkeys(queue_ids, 2_000)

    monkeypatch.setattr(log_cache, "next_offsets", commit_meanwhile)
    await cache.refresh_ends([1])
    assert (cache.end_of(1), told) == (2_005, [])


def test_a_commit_below_the_one_before_shows_that_the_log_lost_its_end() -> None:
    cache = make_cache()
    told: list[int] = []
    cache.on_lost_end(told.append)
    cache.add(committed(0, 20))
    new = committed(10, 5)
    cache.add(new)

    assert (cache.end_of(1), told) == (15, [1])
    assert cache.find(1, 10, 9) == new[1]
    assert cache.find(1, 9, 1) is None
