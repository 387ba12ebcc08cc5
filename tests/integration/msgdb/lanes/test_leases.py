"""Leases: who owns a lane, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from msgbroker.contract.limits import LEASE_SECONDS_MAX
from msgdb.lanes.leases import claim, cut_leases, release, renew
from msgdb.lanes.records import LaneEpoch, LaneKey, LaneToClaim
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.rows import GROUP, OTHER_OWNER, OWNER, keys_of, lanes_to_claim

_PASSED = "SELECT queue_id, lease_until <= clock_timestamp() FROM cursor ORDER BY member, queue_id"


async def test_a_lane_that_was_never_claimed_starts_at_its_initial_offset(conn: Connection) -> None:
    (lane,) = await claim(conn, OWNER, lanes_to_claim([1], initial_offset=40), 10)

    assert (lane.key, lane.epoch, lane.acked_offset, lane.acked_ranges) == (LaneKey(GROUP, "", 1), 1, 40, [])


async def test_a_lane_that_was_claimed_before_continues_where_it_was(conn: Connection) -> None:
    (lane,) = await claim(conn, OWNER, lanes_to_claim([1], initial_offset=40), 10)
    await release(conn, OWNER, [LaneEpoch(lane.key, lane.epoch)])

    (again,) = await claim(conn, OTHER_OWNER, lanes_to_claim([1], initial_offset=99), 10)

    assert (again.epoch, again.acked_offset) == (2, 40)


async def test_a_lane_with_a_living_owner_is_not_given_to_another(conn: Connection) -> None:
    await claim(conn, OWNER, lanes_to_claim([1]), 10)

    claimed = await claim(conn, OTHER_OWNER, lanes_to_claim([1, 2]), 10)

    assert keys_of(claimed) == {LaneKey(GROUP, "", 2)}


async def test_a_lane_is_given_to_another_when_its_lease_has_passed(conn: Connection) -> None:
    await claim(conn, OWNER, lanes_to_claim([1]), 0)

    (lane,) = await claim(conn, OTHER_OWNER, lanes_to_claim([1]), 10)

    assert lane.epoch == 2


_LEASE_SECONDS = "SELECT extract(epoch FROM min(lease_until) - clock_timestamp())::float8 FROM cursor"


async def lease_seconds(conn: Connection) -> float:
    row = await (await conn.execute(_LEASE_SECONDS)).fetchone()
    assert row is not None
    return float(row[0])


async def set_clock_back(conn: Connection) -> None:
    """Let leases be as after the database's clock was set back by an hour."""
    await conn.execute("UPDATE cursor SET lease_until = lease_until + interval '1 hour'")


async def test_a_lease_from_before_the_clock_was_set_back_is_cut_down_and_passes(conn: Connection) -> None:
    await claim(conn, OWNER, lanes_to_claim([1]), 10)
    await set_clock_back(conn)

    assert await claim(conn, OTHER_OWNER, lanes_to_claim([1]), 10) == []

    left_seconds = await lease_seconds(conn)
    assert LEASE_SECONDS_MAX - 30 < left_seconds <= LEASE_SECONDS_MAX
    await conn.execute("UPDATE cursor SET lease_until = lease_until - make_interval(secs => %s)", (LEASE_SECONDS_MAX,))
    (lane,) = await claim(conn, OTHER_OWNER, lanes_to_claim([1]), 10)
    assert lane.epoch == 2


async def test_an_owner_that_lives_while_the_clock_is_set_back_keeps_its_lane(conn: Connection) -> None:
    (lane,) = await claim(conn, OWNER, lanes_to_claim([1]), 10)
    await set_clock_back(conn)
    await claim(conn, OTHER_OWNER, lanes_to_claim([1]), 10)

    assert await renew(conn, OWNER, [LaneEpoch(lane.key, lane.epoch)], 10) == (set(), set())

    assert await lease_seconds(conn) <= 10
    assert await claim(conn, OTHER_OWNER, lanes_to_claim([1]), 10) == []


async def test_leases_of_lanes_that_nobody_wants_are_cut_down_as_well(conn: Connection) -> None:
    await claim(conn, OWNER, lanes_to_claim([1, 2]), LEASE_SECONDS_MAX)
    assert await cut_leases(conn) == 0
    await set_clock_back(conn)

    assert await cut_leases(conn) == 2

    assert await lease_seconds(conn) <= LEASE_SECONDS_MAX


async def test_an_owner_that_claims_again_gets_a_new_epoch(conn: Connection) -> None:
    await claim(conn, OWNER, lanes_to_claim([1]), 10)

    (lane,) = await claim(conn, OWNER, lanes_to_claim([1]), 10)

    assert lane.epoch == 2


async def test_lanes_of_members_are_lanes_of_their_own(conn: Connection) -> None:
    wanted = [LaneToClaim(GROUP, member, 1, 0) for member in ("a", "b")]

    assert keys_of(await claim(conn, OWNER, wanted, 10)) == {LaneKey(GROUP, "a", 1), LaneKey(GROUP, "b", 1)}


async def test_claiming_nothing_is_nothing(conn: Connection) -> None:
    assert await claim(conn, OWNER, [], 10) == []


async def test_the_same_lane_asked_for_twice_is_claimed_once(conn: Connection) -> None:
    assert len(await claim(conn, OWNER, lanes_to_claim([1, 1]), 10)) == 1


async def test_brokers_that_want_the_same_lanes_at_once_share_them_and_none_fails(store: MessageStore) -> None:
    async def claim_all(owner: UUID, queue_ids: Sequence[int]) -> set[LaneKey]:
        async with store.connection() as conn:
            return keys_of(await claim(conn, owner, lanes_to_claim(queue_ids), 60))

    orders = {UUID(int=3): range(200), UUID(int=4): range(199, -1, -1)}
    first, second = await asyncio.gather(*(claim_all(owner, order) for owner, order in orders.items()))

    assert first | second == {LaneKey(GROUP, "", queue_id) for queue_id in range(200)}
    assert first & second == set()


async def test_a_lane_whose_row_is_locked_is_left_for_later_and_does_not_hold_up_the_others(
    store: MessageStore,
) -> None:
    async with store.connection() as conn:
        await claim(conn, OWNER, lanes_to_claim([1, 2]), 0)
        async with store.transaction() as frozen:
            await frozen.execute("UPDATE cursor SET acked_offset = 5 WHERE queue_id = 1")
            claimed = await claim(conn, OTHER_OWNER, lanes_to_claim([1, 2, 3]), 10)

        assert keys_of(claimed) == {LaneKey(GROUP, "", 2), LaneKey(GROUP, "", 3)}
        (late,) = await claim(conn, OTHER_OWNER, lanes_to_claim([1]), 10)
        assert late.acked_offset == 5


async def test_a_lane_whose_row_is_locked_does_not_cost_the_others_their_leases(store: MessageStore) -> None:
    async with store.connection() as conn:
        owned = [LaneEpoch(lane.key, lane.epoch) for lane in await claim(conn, OWNER, lanes_to_claim([1, 2]), 0)]
        async with store.transaction() as holder:
            await holder.execute("SELECT FROM cursor WHERE queue_id = 1 FOR UPDATE")
            lost, held_up = await renew(conn, OWNER, owned, 10)
            leases = await (await conn.execute(_PASSED)).fetchall()

    assert (lost, held_up) == (set(), {LaneKey(GROUP, "", 1)})
    assert leases == [(1, True), (2, False)]


async def test_a_lane_whose_row_is_locked_does_not_keep_the_others_from_being_given_up(store: MessageStore) -> None:
    async with store.connection() as conn:
        owned = [LaneEpoch(lane.key, lane.epoch) for lane in await claim(conn, OWNER, lanes_to_claim([1, 2]), 60)]
        async with store.transaction() as holder:
            await holder.execute("SELECT FROM cursor WHERE queue_id = 1 FOR UPDATE")
            released = await release(conn, OWNER, owned)

        assert released == {LaneKey(GROUP, "", 2)}
        assert await release(conn, OWNER, owned) == {LaneKey(GROUP, "", 1)}


async def test_a_renewed_lease_keeps_others_away(conn: Connection) -> None:
    (lane,) = await claim(conn, OWNER, lanes_to_claim([1]), 0)

    renewal = await renew(conn, OWNER, [LaneEpoch(lane.key, lane.epoch)], 10)

    assert renewal == (set(), set())
    assert await claim(conn, OTHER_OWNER, lanes_to_claim([1]), 10) == []


async def test_lanes_of_members_with_any_name_are_renewed(conn: Connection) -> None:
    wanted = [LaneToClaim(GROUP, member, 1, 0) for member in ("", "NULL", "a,b", '{"c"}', "d\\", "'e'")]
    owned = [LaneEpoch(lane.key, lane.epoch) for lane in await claim(conn, OWNER, wanted, 0)]

    assert await renew(conn, OWNER, owned, 10) == (set(), set())
    assert {passed for _, passed in await (await conn.execute(_PASSED)).fetchall()} == {False}


async def test_a_lease_that_another_took_over_is_not_renewed(conn: Connection) -> None:
    (lane,) = await claim(conn, OWNER, lanes_to_claim([1]), 0)
    await claim(conn, OTHER_OWNER, lanes_to_claim([1]), 10)

    assert await renew(conn, OWNER, [LaneEpoch(lane.key, lane.epoch)], 10) == ({lane.key}, set())


async def test_an_epoch_of_before_renews_nothing_even_for_its_owner(conn: Connection) -> None:
    (before,) = await claim(conn, OWNER, lanes_to_claim([1]), 10)
    await claim(conn, OWNER, lanes_to_claim([1]), 10)

    assert await renew(conn, OWNER, [LaneEpoch(before.key, before.epoch)], 10) == ({before.key}, set())


async def test_a_released_lane_is_free_at_once(conn: Connection) -> None:
    (lane,) = await claim(conn, OWNER, lanes_to_claim([1]), 60)

    assert await release(conn, OWNER, [LaneEpoch(lane.key, lane.epoch)]) == {lane.key}
    assert keys_of(await claim(conn, OTHER_OWNER, lanes_to_claim([1]), 60)) == {lane.key}


async def test_a_stale_owner_releases_nothing(conn: Connection) -> None:
    (lane,) = await claim(conn, OWNER, lanes_to_claim([1]), 0)
    await claim(conn, OTHER_OWNER, lanes_to_claim([1]), 60)

    assert await release(conn, OWNER, [LaneEpoch(lane.key, lane.epoch)]) == set()
    assert await claim(conn, OWNER, lanes_to_claim([1]), 60) == []


async def test_claiming_lanes_of_living_owners_does_not_wait_for_their_checkpoints(store: MessageStore) -> None:
    async with store.connection() as conn:
        await claim(conn, OWNER, lanes_to_claim([1]), 60)

    async with store.transaction() as checkpointing, store.transaction() as claiming:
        await checkpointing.execute("UPDATE cursor SET acked_offset = 1")
        await claiming.execute("SET LOCAL lock_timeout = '1s'")
        assert await claim(claiming, OTHER_OWNER, lanes_to_claim([1]), 60) == []
