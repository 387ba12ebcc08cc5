"""Which share of what a lane reads it says that its group gets, with each checkpoint."""

from __future__ import annotations

from msgbroker.engine.lane.lane import Lane
from msgdb.lanes.records import ClaimedLane, MatchingShare
from tests.support.lane_builders import ALL_BYTES, CONFIG, KEY, FakeMessage, make_lane, messages, persist, take_all


def learnt(lane: Lane[FakeMessage]) -> tuple[float, float]:
    """Return the share, and from how many messages it was learnt, in whole ones."""
    matching = persist(lane).matching
    return round(matching.share, 3), round(matching.read)


def test_a_checkpoint_says_which_share_of_what_was_read_matched() -> None:
    lane = make_lane()
    lane.feed(0, 10, messages(0, 3))
    lane.feed(10, 20, [])

    assert learnt(lane) == (0.15, 20)


def test_what_it_was_fed_already_is_not_counted_again() -> None:
    lane = make_lane()
    lane.feed(0, 10, messages(0, 5))

    lane.feed(5, 20, messages(0, 12), shelved=[(FakeMessage(offset), "8") for offset in (3, 14)])

    # Of 20 the first five, 10, 11, and 14.
    assert learnt(lane) == (0.4, 20)


def test_what_waits_for_paused_subscriptions_matches() -> None:
    lane = make_lane()
    lane.feed(0, 10, messages(0, 2), shelved=[(FakeMessage(5), "8")])

    assert learnt(lane) == (0.3, 10)


def test_what_expired_was_not_read() -> None:
    lane = make_lane()
    lane.feed(90, 90, (), days_dropped=True)
    lane.feed(90, 100, messages(90, 95))

    assert learnt(lane) == (0.5, 10)


def test_stress_messages_that_the_group_may_not_see_do_not_match() -> None:
    lane = make_lane()
    lane.feed(0, 10, [FakeMessage(offset, stress=offset % 2 == 0) for offset in range(10)])

    lane.take("a", 10, ALL_BYTES, 0.0, lambda _: False)

    assert learnt(lane) == (0.5, 10)


def claimed() -> Lane[FakeMessage]:
    """Return a lane of which an earlier owner had read so far, and learnt something."""
    return Lane(ClaimedLane(KEY, 1, 0, [(1, 10)], matching=MatchingShare(8, 0.5, 100.0)), [], CONFIG, 0.0)


def test_what_an_earlier_owner_has_read_it_has_counted() -> None:
    lane = claimed()
    lane.ask(8)
    lane.feed(0, 10, messages(0, 10))
    lane.feed(10, 11, [])

    assert learnt(lane) == (round(50 / 101, 3), 101)


def test_far_above_of_what_could_be_read_somebody_has_settled_a_message_and_nobody_has_read() -> None:
    far = ClaimedLane(KEY, 1, 0, [(CONFIG.window_max + 100, CONFIG.window_max + 101)])
    lane: Lane[FakeMessage] = Lane(far, [], CONFIG, 0.0)
    lane.feed(0, CONFIG.window_max, [])
    persist(lane)
    lane.feed(CONFIG.window_max, CONFIG.window_max + 10, messages(CONFIG.window_max, CONFIG.window_max + 5))
    take_all(lane)

    assert learnt(lane) == (0.5, 10)


def test_of_other_subscriptions_it_learns_anew() -> None:
    lane = claimed()
    lane.ask(9)
    lane.feed(0, 20, [])

    assert persist(lane).matching == MatchingShare(9, 0.0, 0.0)
    lane.feed(20, 30, messages(20, 25))
    assert learnt(lane) == (0.5, 10)
