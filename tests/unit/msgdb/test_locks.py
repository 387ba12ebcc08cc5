"""Lock keys fit PostgreSQL's int4 and tell things apart."""

from __future__ import annotations

import pytest

from msgdb import locks


@pytest.mark.parametrize("queue_id", [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1])
def test_a_queue_of_any_id_has_a_key_that_fits(queue_id: int) -> None:
    assert -(2**31) <= locks.queue_lock_key(queue_id) < 2**31


def test_queues_have_keys_of_their_own() -> None:
    ids = [1, 2, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1]

    assert len({locks.queue_lock_key(queue_id) for queue_id in ids}) == len(ids)


@pytest.mark.parametrize("publisher_id", [bytes(16), b"\xff" * 16, b"\x80" + bytes(15), b"\x7f" + b"\xff" * 15])
def test_a_publisher_of_any_id_has_a_key_that_fits(publisher_id: bytes) -> None:
    assert -(2**31) <= locks.publisher_lock_key(publisher_id) < 2**31


def test_lock_classes_are_distinct_and_fit() -> None:
    classes = [value for name, value in vars(locks).items() if name.endswith("_LOCK_CLASS")]

    assert len(set(classes)) == len(classes) == 8
    assert all(0 < lock_class < 2**31 for lock_class in classes)
