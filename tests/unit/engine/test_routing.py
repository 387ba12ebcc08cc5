"""Which queue a message goes to."""

from __future__ import annotations

from collections import Counter

import pytest

from msgbroker.engine import routing
from msgbroker.engine.routing import UnkeyedSpreader, queue_for_key

QUEUES = (11, 12, 13, 14)


def test_the_queue_of_a_key_never_changes_between_versions() -> None:
    # Written down, not computed: another answer would tear the keys of stored messages apart.
    assert [queue_for_key(key, 4) for key in ("order-1", "order-2", "order-3", "订单", "")] == [0, 2, 2, 0, 0]


@pytest.mark.parametrize("pattern", ["order-{}", "{:08d}", "{:x}", "user/{}/cart", "{}"])
@pytest.mark.parametrize("count", [1, 3, 4, 16])
@pytest.mark.parametrize("step", [1, 2, 10])
def test_keys_spread_evenly_over_queues(pattern: str, count: int, step: int) -> None:
    keys = [pattern.format(number) for number in range(0, 8_000 * step, step)]

    share = Counter(queue_for_key(key, count) for key in keys)

    assert set(share) == set(range(count))
    assert max(share.values()) < 1.25 * len(keys) / count


def chosen_in(spreader: UnkeyedSpreader, batches: int) -> list[int]:
    chosen = []
    for _ in range(batches):
        spreader.begin_batch()
        chosen.append(spreader.choose(1, QUEUES))
    return chosen


def test_a_batch_stays_in_one_queue() -> None:
    spreader = UnkeyedSpreader(batches_per_queue=1)
    spreader.begin_batch()

    assert {spreader.choose(1, QUEUES) for _ in range(100)} == {11}


def test_some_batches_stay_with_a_queue_and_all_queues_get_their_share() -> None:
    spreader = UnkeyedSpreader(batches_per_queue=2)

    assert chosen_in(spreader, 9) == [11, 11, 12, 12, 13, 13, 14, 14, 11]


def test_brokers_may_start_at_different_queues() -> None:
    assert chosen_in(UnkeyedSpreader(first_turn=2, batches_per_queue=2), 3) == [13, 13, 14]


def test_topics_take_turns_of_their_own() -> None:
    spreader = UnkeyedSpreader(batches_per_queue=1)
    chosen_in(spreader, 1)
    spreader.begin_batch()

    assert (spreader.choose(2, (21, 22)), spreader.choose(1, QUEUES)) == (21, 12)


def test_a_queue_that_is_held_is_avoided_for_a_while() -> None:
    spreader = UnkeyedSpreader(batches_per_queue=1, avoided_batches=4)
    chosen_in(spreader, 1)

    spreader.avoid(11)

    assert spreader.choose(1, QUEUES) == 12
    assert chosen_in(spreader, 6) == [13, 14, 12, 12, 13, 14]


def test_where_every_queue_is_held_one_is_chosen_all_the_same() -> None:
    spreader = UnkeyedSpreader()
    for queue_id in QUEUES:
        spreader.avoid(queue_id)

    assert spreader.choose(1, QUEUES) in QUEUES


def test_a_new_layout_is_followed_at_once() -> None:
    spreader = UnkeyedSpreader()
    spreader.begin_batch()
    spreader.choose(1, QUEUES)

    assert spreader.choose(1, (31, 32)) in (31, 32)


def test_what_a_spreader_remembers_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "TOPICS_REMEMBERED_MAX", 5)
    spreader = UnkeyedSpreader()
    for topic_id in range(50):
        spreader.begin_batch()
        spreader.choose(topic_id, QUEUES)

    assert len(spreader._turns) <= 5
