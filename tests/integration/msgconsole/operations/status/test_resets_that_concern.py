"""Of all resets of a queue those are read that decide the way of one message: it is the same as by all of them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from msgconsole.operations.status.passages import Way, way_over
from msgdb.acts import write_act
from msgdb.lanes import reset_acts
from msgdb.lanes.records import LaneReset
from msgdb.lanes.reset_acts import LaneResetAct, detail_of, list_reset_acts
from msgdb.lanes.resets import LanePlace, skipped_by
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore

QUEUE, OTHER = 5, 6
GROUPS = (7, 8)
OFFSETS = 20


@pytest.fixture
async def conn(database_url: str) -> AsyncIterator[Connection]:
    async with MessageStore.open(database_url, pool_size=1) as store, store.connection() as conn:
        yield conn


async def put_history(conn: Connection, chance: random.Random) -> list[tuple[int, LaneResetAct, LanePlace]]:
    """Reset groups at random; return each act of the queue, with where it found the lane."""
    begun_at = datetime.now(UTC) - timedelta(hours=1)
    put: list[tuple[int, LaneResetAct, LanePlace]] = []
    for number in range(chance.randrange(12)):
        group_id, acked, target = chance.choice(GROUPS), chance.randrange(OFFSETS), chance.randrange(OFFSETS)
        above = sorted(chance.sample(range(acked + 1, OFFSETS + 4), 2))
        place = LanePlace(acked, [(above[0], above[1])], [chance.randrange(acked)] if acked else [])
        queue_id = chance.choice((QUEUE, QUEUE, OTHER))
        detail = detail_of(group_id, number, {queue_id: target}, {queue_id: place})
        about: dict[str, Any] = {"namespace": "shop", "thing": "it", "detail": detail}
        act_id = await write_act(conn, actor="ada", action="group.reset", reason="why", **about)
        at = begun_at + timedelta(minutes=number)
        await conn.execute("UPDATE act SET at = %s WHERE act_id = %s", (at, act_id))
        if queue_id == QUEUE:
            act = LaneResetAct(act_id, at, "ada", "why", group_id, acked, target, number, skips=False)
            put.append((group_id, act, place))
    return put


def skips(place: LanePlace, act: LaneResetAct, offset: int) -> bool | None:
    ranges = skipped_by(place, act.to_offset)
    kept = ranges[: reset_acts.RANGES_MAX]
    if any(first <= offset < end for first, end in kept):
        return True
    return None if len(ranges) > len(kept) and kept[-1][1] <= offset < act.to_offset else False


def way_by(acts: Sequence[LaneResetAct], before: LaneResetAct | None, offset: int, since: datetime) -> Way:
    reset = None
    if before is not None:
        assert before.subscription_id is not None
        reset = LaneReset(before.to_offset, before.subscription_id)
    return way_over(offset, int(since.timestamp() * 1_000_000), acts, reset)


@pytest.mark.parametrize("seed", range(25))
async def test_the_way_of_a_message_is_the_same_as_by_all_resets(
    conn: Connection, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(reset_acts, "RANGES_MAX", chance.choice((1, 1_000)))
    put = await put_history(conn, chance)
    since = datetime.now(UTC) - timedelta(minutes=60 - chance.randrange(8), seconds=30)

    for offset in range(OFFSETS):
        found = await list_reset_acts(conn, QUEUE, offset, since)
        assert found.is_complete
        for group_id in GROUPS:
            own = [act._replace(skips=skips(place, act, offset)) for group, act, place in put if group == group_id]
            by_all = way_by(
                [act for act in own if act.at >= since],
                next((act for act in reversed(own) if act.at < since), None),
                offset,
                since,
            )
            told = [act for act in found.acts if act.group_id == group_id]
            assert way_by(told, found.before.get(group_id), offset, since) == by_all
