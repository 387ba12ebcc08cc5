"""What a lane says of its messages: each that was acknowledged once, whichever way its verdict came."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.tally import Counted
from msgbroker.engine.verdicts import Settlement, Verdict
from msgdb.lanes.records import ClaimedLane, RedeliveryRow
from tests.support.lane_builders import ALL_BYTES, CONFIG, KEY, FakeMessage, held, stored_at_us


class Heard:
    """Writes down what it is told of each message, by when it was stored."""

    def __init__(self) -> None:
        self.delivered_at: list[int] = []
        self.types: list[tuple[str, bool]] = []
        self.sizes = 0
        self.retries = 0
        self.dead: list[tuple[str, bool]] = []

    def delivered(self, counted: Counted, stored_at_us: Sequence[int]) -> None:
        assert len(counted.event_codes) == len(counted.sizes) == len(stored_at_us)
        assert list(stored_at_us) == sorted(stored_at_us)
        self.delivered_at += stored_at_us
        self.sizes += sum(counted.sizes)
        self.types += types_of(counted)

    def retried(self, counted: Counted) -> None:
        self.retries += len(counted.event_codes)

    def dead_lettered(self, counted: Counted) -> None:
        self.dead += types_of(counted)


def types_of(counted: Counted) -> list[tuple[str, bool]]:
    stress = counted.stress or [False] * len(counted.event_codes)
    return list(zip(counted.event_codes, stress, strict=True))


def lane(heard: Heard, rows: Sequence[RedeliveryRow] = ()) -> Lane[FakeMessage]:
    return Lane(ClaimedLane(KEY, 1, 0, []), rows, CONFIG, 0.0, heard)


def settled(first: int, end: int, attempt: int, verdict: Verdict) -> Settlement:
    return Settlement(held(first, end - 1, attempt), verdict, 0.0)


def log(count: int) -> list[FakeMessage]:
    return [
        FakeMessage(offset, event_code=f"EC_{offset % 3}", stress=offset % 5 == 0, size_bytes=offset)
        for offset in range(count)
    ]


def test_a_batch_that_is_acknowledged_whole_is_said_whole() -> None:
    heard = Heard()
    of_group = lane(heard)
    of_group.feed(0, 10, log(10))
    of_group.take("one", 10, ALL_BYTES, 1.0)

    of_group.settle("one", settled(0, 10, 1, Verdict.ACK), 2.0)

    assert heard.delivered_at == [stored_at_us(offset) for offset in range(10)]
    assert heard.types == [(f"EC_{offset % 3}", offset % 5 == 0) for offset in range(10)]
    assert heard.sizes == sum(range(10))


@given(st.data())
def test_each_message_is_counted_once_as_acknowledged_or_as_given_up_on(data: st.DataObject) -> None:
    heard = Heard()
    of_group = lane(heard)
    messages = log(12)
    of_group.feed(0, len(messages), messages)
    now, failures = 1.0, 0
    while of_group.acked_offset < len(messages) or of_group.redelivery_count:
        now += 100.0
        of_group.expire(now)
        wanted = [offset for offset, _ in of_group.due(now, 100)]
        of_group.feed_again([messages[offset] for offset in wanted], ())
        handout = of_group.take("one", data.draw(st.integers(1, 5)), ALL_BYTES, now)
        given_out = [(each.message.queue_offset, each.attempt) for each in handout.again]
        given_out += [(message.queue_offset, 1) for message in handout.fresh]
        for offset, attempt in given_out:
            verdict = data.draw(st.sampled_from((Verdict.ACK, Verdict.RETRY, Verdict.REJECT)))
            failures += verdict is Verdict.RETRY
            assert of_group.settle("one", settled(offset, offset + 1, attempt, verdict), now).count == 1

    assert sorted(heard.types + heard.dead) == sorted((m.event_code, m.stress) for m in messages)
    # What failed for the last time is given up on, and does not come again.
    assert failures - len(heard.dead) <= heard.retries <= failures


def test_what_an_earlier_owner_left_is_known_once_it_was_handed_out() -> None:
    heard = Heard()
    rows = [RedeliveryRow(3, stored_at_us(3), 2, 0.0, None)]
    of_group = lane(heard, rows)
    of_group.due(0.0, 10)
    of_group.feed_again([FakeMessage(3, event_code="EC_PAID")], ())
    of_group.take("one", 10, ALL_BYTES, 1.0)

    of_group.settle("one", settled(3, 4, 2, Verdict.ACK), 2.0)

    assert heard.types == [("EC_PAID", False)]
    assert heard.delivered_at == [stored_at_us(3)]


def test_what_ended_with_its_instance_is_tried_again() -> None:
    heard = Heard()
    of_group = lane(heard)
    of_group.feed(0, 3, log(3))
    of_group.take("one", 10, ALL_BYTES, 1.0)
    of_group.begin("one", held(0, 2, 1))

    of_group.return_instance("one", 2.0)

    assert heard.retries == 3
