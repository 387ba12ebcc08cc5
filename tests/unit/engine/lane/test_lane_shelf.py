"""The shelf: what only paused subscriptions want waits there, in its order, and the cursor passes it."""

from __future__ import annotations

from collections.abc import Mapping

from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.verdicts import Verdict
from msgdb.lanes.records import SHELVED_SECONDS, RedeliveryRow
from tests.support.lane_builders import (
    FakeMessage,
    again_offsets,
    fetch_due,
    fresh_offsets,
    make_lane,
    messages,
    persist,
    settle,
    stored_at_us,
    take_all,
)


def make_shelving_lane(by_offset: Mapping[int, str], *, fed: int = 5) -> Lane[FakeMessage]:
    """Return a lane that was fed so many messages, of which these are on its shelf."""
    lane = make_lane()
    ready = [message for message in messages(0, fed) if message.queue_offset not in by_offset]
    lane.feed(0, fed, ready, shelved=[(FakeMessage(offset), by) for offset, by in by_offset.items()])
    return lane


def test_what_is_shelved_has_a_row_and_is_passed_by_the_cursor() -> None:
    lane = make_shelving_lane({1: "8", 3: "8,9"})
    assert fresh_offsets(take_all(lane)) == [0, 2, 4]
    settle(lane, "a", Verdict.ACK, 0, 4, 1, 0.0)

    checkpoint = persist(lane)

    assert checkpoint.acked_offset == 5
    rows = {row.queue_offset: row for row in checkpoint.redeliveries}
    assert {offset: row.shelved_by for offset, row in rows.items()} == {1: "8", 3: "8,9"}
    assert {(row.attempt, row.due_in_seconds) for row in rows.values()} == {(1, SHELVED_SECONDS)}
    assert (lane.shelved_count, fetch_due(lane, 1e9)) == (2, [])


def test_what_a_lane_knows_already_is_not_shelved() -> None:
    lane = make_lane(acked_offset=2, acked_ranges=[(3, 4)])

    lane.feed(2, 5, [], shelved=[(FakeMessage(offset), "8") for offset in range(5)])

    assert lane.shelved_count == 2
    assert [row.queue_offset for row in persist(lane).redeliveries] == [2, 4]


def test_where_one_of_those_that_wanted_them_goes_on_they_come_in_their_order() -> None:
    lane = make_shelving_lane({3: "8", 1: "8", 2: "9"})

    lane.reconsider_shelved({"8": "", "9": "9"}.get, 5.0)

    assert fetch_due(lane, 5.0) == [1, 3]
    assert again_offsets(take_all(lane, now=5.0)) == [(1, 1), (3, 1)]
    assert lane.shelved_count == 1
    assert {row.queue_offset: row.shelved_by for row in persist(lane, 5.0).redeliveries} == {1: None, 2: "9", 3: None}


def test_where_nobody_is_left_who_wanted_it_a_message_is_settled_and_its_row_goes() -> None:
    lane = make_shelving_lane({1: "8"}, fed=2)
    persist(lane)

    lane.reconsider_shelved({"8": None}.get, 0.0)

    assert lane.shelved_count == 0
    assert persist(lane).redelivered == [1]


def test_who_of_several_is_paused_still_is_written_down_where_it_changed() -> None:
    lane = make_shelving_lane({1: "8,9", 2: "9"})
    persist(lane)

    lane.reconsider_shelved({"8,9": "9", "9": "9"}.get, 0.0)

    assert {row.queue_offset: row.shelved_by for row in persist(lane).redeliveries} == {1: "9"}


def test_the_next_owner_has_the_shelf_as_it_was() -> None:
    row = RedeliveryRow(1, stored_at_us(1), 3, SHELVED_SECONDS, None, "8")
    lane = make_lane(acked_offset=2, redeliveries=[row])

    assert (lane.shelved_count, fetch_due(lane, 1e9)) == (1, [])
    lane.reconsider_shelved({"8": ""}.get, 5.0)

    assert fetch_due(lane, 5.0) == [1]
    # Its attempts are counted on.
    assert again_offsets(take_all(lane, now=5.0)) == [(1, 3)]


def test_what_comes_again_is_shelved_where_a_subscription_was_paused_meanwhile() -> None:
    lane = make_lane(fed=2)
    take_all(lane)
    settle(lane, "a", Verdict.RETRY, 0, 1, 1, 0.0, delay_seconds=1.0)
    assert [offset for offset, _ in lane.due(1.0, 10)] == [0, 1]

    lane.shelve({0: "8"})
    lane.feed_again([FakeMessage(1)], [])

    assert lane.shelved_count == 1
    assert again_offsets(lane.take("a", 10, 1 << 30, 1.0)) == [(1, 2)]
    lane.reconsider_shelved({"8": ""}.get, 2.0)
    assert fetch_due(lane, 2.0) == [0]
    assert again_offsets(take_all(lane, now=2.0)) == [(0, 2)]


def test_what_was_ready_as_a_subscription_was_paused_is_asked_about_again() -> None:
    lane = make_lane(fed=3)
    lane.take("a", 1, 1 << 30, 0.0)

    lane.reconsider_ready(0.0)

    assert lane.ready_count == 0
    assert [offset for offset, _ in lane.due(0.0, 10)] == [1, 2]
    lane.shelve({1: "8"})
    lane.feed_again([FakeMessage(2)], [])
    assert again_offsets(lane.take("a", 10, 1 << 30, 0.0)) == [(2, 1)]
