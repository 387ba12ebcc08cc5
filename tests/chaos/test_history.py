"""The history checker finds each broken promise: one that accepts a bad history is worth nothing."""

from __future__ import annotations

import pytest

from tests.chaos.history import History, Place, Sight

GROUP = "SG_ONE"
LOG = {Place(1, 0): "p0:0", Place(1, 1): "p1:0", Place(1, 2): "p0:1", Place(2, 0): "p1:1"}


def history() -> History:
    """Return a history without a fault: everything acknowledged, and seen once."""
    made = History(acknowledged={body: place for place, body in LOG.items()})
    for place, body in LOG.items():
        see(made, body, place)
    return made


def see(made: History, body: str, place: Place, at: float = 0.0) -> None:
    made.sights.append(Sight(GROUP, body, place, 1, at))
    made.seen[GROUP].add(body)


def test_a_history_without_a_fault_is_accepted() -> None:
    made = history()
    made.check(LOG, [GROUP])

    assert made.missing([GROUP]) == {}
    assert made.check_duplicates([], 0) == 0


def test_an_acknowledged_message_that_is_not_stored_is_found() -> None:
    made = history()
    made.acknowledged["p2:0"] = Place(2, 1)

    with pytest.raises(AssertionError, match="not where they should be"):
        made.check(LOG, [])


def test_a_message_that_is_elsewhere_than_its_receipt_says_is_found() -> None:
    made = history()
    made.acknowledged["p0:0"] = Place(2, 0)

    with pytest.raises(AssertionError, match="not where they should be"):
        made.check(LOG, [])


def test_a_gap_is_found() -> None:
    with pytest.raises(AssertionError, match="gap"):
        History().check({Place(1, 0): "p0:0", Place(1, 2): "p0:1"}, [])


def test_a_message_stored_twice_is_found() -> None:
    with pytest.raises(AssertionError, match="more than once"):
        History().check({Place(1, 0): "p0:0", Place(2, 0): "p0:0"}, [])


def test_messages_of_a_publisher_out_of_order_are_found() -> None:
    with pytest.raises(AssertionError, match="behind number 1"):
        History().check({Place(1, 0): "p0:1", Place(1, 1): "p0:0"}, [])


def test_a_message_that_a_group_never_saw_is_found() -> None:
    made = history()
    made.seen[GROUP].discard("p1:0")

    assert made.missing([GROUP]) == {GROUP: 1}
    with pytest.raises(AssertionError, match="never saw 1 of 4"):
        made.check(LOG, [GROUP])


def test_a_message_seen_and_not_stored_is_found() -> None:
    made = history()
    see(made, "p9:9", Place(2, 1))

    with pytest.raises(AssertionError, match="not stored there"):
        made.check(LOG, [GROUP])


def test_a_message_seen_again_long_after_it_was_settled_is_found() -> None:
    made = history()
    see(made, "p0:0", Place(1, 0), at=100.0)

    assert made.check_duplicates([1.0], 2.0) == 1
    with pytest.raises(AssertionError, match="settled long before"):
        made.check_duplicates([100.0], 2.0)
