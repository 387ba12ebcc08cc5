"""What waits to be written to an instance."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from msgbroker.server import clock
from msgbroker.server.instances import Instance
from msgbroker.v1 import subscriber_pb2


@dataclass
class Leased:
    lease_until: float


@pytest.fixture
def instance() -> Instance:
    return Instance("one", 100, 1_000_000)


def queues_in(response: bytes) -> list[int]:
    return [batch.queue_id for batch in subscriber_pb2.SubscribeResponse.FromString(response).batches]


def test_what_waited_longer_than_its_lease_is_not_written(instance: Instance) -> None:
    passed, running = Leased(clock.now() + 60), Leased(clock.now() + 60)
    instance.give(1, 1, [(b"",)], 0, passed)
    instance.give(2, 1, [(b"",)], 0, running)
    # As a process finds it that was frozen in between.
    passed.lease_until = clock.now()

    assert queues_in(instance.next_response()) == [2]
    assert instance.next_response() == b""
    assert instance.outbox_bytes == 0


def test_what_waits_is_written_when_its_lease_was_renewed(instance: Instance) -> None:
    lease = Leased(clock.now())
    instance.give(1, 1, [(b"",)], 0, lease)
    lease.lease_until = clock.now() + 60

    assert queues_in(instance.next_response()) == [1]


def test_a_pull_takes_nothing_whose_lease_has_passed(instance: Instance) -> None:
    instance.give(1, 1, [(b"",)], 0, Leased(clock.now()))
    instance.give(2, 1, [(b"",)], 0, Leased(clock.now() + 60))

    assert [batch.queue_id for batch in instance.take_batches()] == [2]


def test_of_what_is_to_be_confirmed_the_last_number_says_it_all(instance: Instance) -> None:
    for number in range(1, 10_001):
        instance.confirm(number)
    response = instance.next_response()

    assert subscriber_pb2.SubscribeResponse.FromString(response).confirmed == 10_000
    assert len(response) < 10
    assert instance.next_response() == b""
