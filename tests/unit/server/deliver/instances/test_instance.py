"""What waits to be written to an instance."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import pytest

from msgbroker.engine.lane.config import Handout
from msgbroker.server import clock
from msgbroker.server.deliver.instances.batch import Batch
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.edge.subscribing.notices import encode_notice
from msgbroker.server.log.message import LogMessage
from msgbroker.v1 import subscriber_pb2
from tests.support.broker_builders import log_message


@dataclass
class Leased:
    lease_until: float


@pytest.fixture
def instance() -> Instance:
    return Instance("one", 100, 1_000_000, encode=encode_notice)


def handout() -> Handout[LogMessage]:
    message = log_message(0)
    message.wire, message.wire_bytes = (b"",), 0
    return Handout(fresh=[message])


def queues_in(response: bytes) -> list[int]:
    return [batch.queue_id for batch in subscriber_pb2.SubscribeResponse.FromString(response).batches]


def test_what_waited_longer_than_its_lease_is_not_written(instance: Instance) -> None:
    passed, running = Leased(clock.now() + 60), Leased(clock.now() + 60)
    instance.give(1, 1, handout(), passed)
    instance.give(2, 1, handout(), running)
    # As a process finds it that was frozen in between.
    passed.lease_until = clock.now()

    assert queues_in(instance.next_response()) == [2]
    assert instance.next_response() == b""
    assert instance.outbox_bytes == 0


def test_what_waits_is_written_when_its_lease_was_renewed(instance: Instance) -> None:
    lease = Leased(clock.now())
    instance.give(1, 1, handout(), lease)
    lease.lease_until = clock.now() + 60

    assert queues_in(instance.next_response()) == [1]


def test_a_pull_takes_nothing_whose_lease_has_passed(instance: Instance) -> None:
    instance.give(1, 1, handout(), Leased(clock.now()))
    instance.give(2, 1, handout(), Leased(clock.now() + 60))

    assert [batch.queue_id for batch in instance.take_batches()] == [2]


class Returned:
    """Stands for the way out of a group: notes what was given back, and forbids what it is told to."""

    def __init__(self) -> None:
        self.given_back: list[int] = []
        self.forbidden: set[int] = set()

    @classmethod
    def of(cls, instance: Instance) -> Self:
        """Return what the batches of *instance* pass from now on."""
        way_out = cls()
        instance.attach_to(way_out, credit_max=sys.maxsize, say_room=lambda: None)
        return way_out

    def check(self, _: Instance, batch: Batch, now: float) -> Batch | None:
        assert now < batch.deadline
        return None if batch.queue_id in self.forbidden else batch

    def give_back(self, _: Instance, batches: Iterable[Batch], __: float) -> None:
        self.given_back += [batch.queue_id for batch in batches]

    def permits(self, batches: Iterable[Batch]) -> bool:
        return not self.forbidden.intersection(batch.queue_id for batch in batches)


@pytest.fixture
def returned(instance: Instance) -> Returned:
    returned = Returned.of(instance)
    for queue_id in (1, 2, 3):
        instance.give(queue_id, 1, handout(), Leased(clock.now() + 60))
    return returned


def test_what_waits_is_given_back_when_the_stream_ends_and_not_what_is_being_written_and_may_have_arrived(
    instance: Instance, returned: Returned
) -> None:
    assert queues_in(instance.next_response()) == [1, 2, 3]
    instance.give(4, 1, handout(), Leased(clock.now() + 60))
    instance.close()

    assert returned.given_back == [4]
    assert instance.next_response() == b""


def test_what_was_written_is_not_given_back(instance: Instance, returned: Returned) -> None:
    instance.next_response()
    instance.written()
    instance.close()

    assert returned.given_back == []
    assert instance.outlet.held_bytes == 0


def test_an_instance_that_does_not_read_gives_back_what_waits_and_keeps_what_is_being_written(
    instance: Instance, returned: Returned
) -> None:
    instance.next_response()
    instance.give(4, 1, handout(), Leased(clock.now() + 60))
    instance.outlet.on_stalled(instance.give_back)
    instance.outlet.give_back()

    assert (returned.given_back, instance.room.messages) == ([4], 0)
    instance.written()
    assert instance.room.messages > 0


def test_what_may_not_leave_is_left_out_of_the_response(instance: Instance, returned: Returned) -> None:
    returned.forbidden = {2}
    assert queues_in(instance.next_response()) == [1, 3]


def test_a_lane_that_stops_gets_back_what_waits_of_it(instance: Instance, returned: Returned) -> None:
    instance.give_back_lane(2, 1)
    assert returned.given_back == [2]
    assert queues_in(instance.next_response()) == [1, 3]


def test_a_closed_instance_would_write_nothing_more(instance: Instance, returned: Returned) -> None:
    instance.next_response()
    assert instance.may_still_write()
    returned.forbidden = {3}
    assert not instance.may_still_write()
    returned.forbidden = set()
    instance.close()
    assert not instance.may_still_write()


def test_notices_count_while_they_wait(instance: Instance) -> None:
    instance.revoke(1, 1)
    assert instance.outlet.held_bytes > 0
    assert subscriber_pb2.SubscribeResponse.FromString(instance.next_response()).revoked[0].queue_id == 1
    instance.written()
    assert instance.outlet.held_bytes == 0


def test_of_what_is_to_be_confirmed_the_last_number_says_it_all(instance: Instance) -> None:
    for number in range(1, 10_001):
        instance.confirm(number)
    response = instance.next_response()

    assert subscriber_pb2.SubscribeResponse.FromString(response).confirmed == 10_000
    assert len(response) < 10
    assert instance.next_response() == b""


# --- how much at a time -----------------------------------------------------------------------------------------------


def sized(size_bytes: int) -> Handout[LogMessage]:
    """One message of that size on the wire."""
    given = handout()
    given.fresh[0].wire_bytes = size_bytes
    return given


def gave(instance: Instance, *sizes: int) -> None:
    for queue_id, size_bytes in enumerate(sizes, start=1):
        instance.give(queue_id, 1, sized(size_bytes), Leased(clock.now() + 60))


def taken(instance: Instance) -> list[int]:
    """The queues in the next response."""
    instance.next_response()
    queue_ids = [batch.queue_id for batch in instance.under_way]
    instance.written()
    return queue_ids


KIB = 1024


def test_a_large_message_goes_alone_and_small_ones_together(instance: Instance) -> None:
    gave(instance, 28 * KIB, 4_096 * KIB, 28 * KIB, 28 * KIB, 4_096 * KIB, 4_096 * KIB, 200 * KIB, 200 * KIB, 200 * KIB)

    assert [taken(instance) for _ in range(7)] == [[1], [2], [3, 4], [5], [6], [7, 8], [9]]


def test_notices_do_not_take_a_large_message_over_what_a_client_takes_in(instance: Instance) -> None:
    gave(instance, 4_096 * KIB)
    instance.send_away()

    assert [taken(instance), taken(instance)] == [[], [1]]


def test_what_may_not_be_written_any_more_makes_no_room_for_what_is_too_large(instance: Instance) -> None:
    passed = Leased(clock.now() + 60)
    instance.give(1, 1, sized(28 * KIB), Leased(clock.now() + 60))
    instance.give(2, 1, sized(28 * KIB), passed)
    instance.give(3, 1, sized(4_096 * KIB), Leased(clock.now() + 60))
    passed.lease_until = clock.now()

    assert [taken(instance), taken(instance)] == [[1], [3]]


def test_what_does_not_fit_into_the_answer_to_a_pull_goes_back(instance: Instance) -> None:
    way_out = Returned.of(instance)
    gave(instance, 800 * KIB, 800 * KIB, 4_096 * KIB, 10 * KIB)

    assert [batch.queue_id for batch in instance.take_batches()] == [1, 2]
    assert way_out.given_back == [3, 4]
    assert (len(instance.outbox), instance.outbox_bytes) == (0, 0)

    gave(instance, 4_096 * KIB, 10 * KIB)
    assert [batch.queue_id for batch in instance.take_batches()] == [1]
    assert way_out.given_back == [3, 4, 2]


def test_what_is_taken_from_an_instance_that_was_closed_is_not_counted_twice(instance: Instance) -> None:
    instance.give(1, 1, handout(), Leased(clock.now() + 60))
    instance.next_response()
    # Its stream may last for as long as it does not read, and its lanes go on without it.
    instance.close()
    instance.let_go(1)

    assert instance.unsettled == 0
