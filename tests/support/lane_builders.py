"""Messages and lanes for the engine's tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from confdb.routes import (
    GroupMode,
    GroupOrder,
    GroupRoute,
    HeaderPredicate,
    SubscriptionMode,
    SubscriptionRoute,
    TopicKind,
    TopicRoute,
)
from msgbroker.engine.lane.config import Handout, LaneConfig
from msgbroker.engine.lane.lane import Lane
from msgbroker.engine.retry import RetryPolicy
from msgbroker.engine.verdicts import Held, Settled, Settlement, Verdict
from msgdb.lanes.records import ClaimedLane, LaneCheckpoint, LaneKey, RedeliveryRow

KEY = LaneKey(group_id=7, member="", queue_id=3)
CONFIG = LaneConfig(ack_timeout_seconds=30.0, retry=RetryPolicy((10.0, 20.0), attempts_max=3))
ALL_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class FakeMessage:
    """A stored message as the engine sees it."""

    queue_offset: int
    event_code: str = "EC_PAID"
    stress: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str = ""
    target_group: int | None = None
    size_bytes: int = 100

    @property
    def held_bytes(self) -> int:
        """More than it counts on its way."""
        return self.size_bytes + 30

    @property
    def stored_at_us(self) -> int:
        """Of an offset always the same, and different for each."""
        return stored_at_us(self.queue_offset)


def stored_at_us(queue_offset: int) -> int:
    """Return when the message at *queue_offset* was stored."""
    return 1_000_000 + queue_offset


def messages(first: int, end: int) -> list[FakeMessage]:
    """Return the messages from *first* to below *end*."""
    return [FakeMessage(offset) for offset in range(first, end)]


def make_lane(
    fed: int = 0,
    *,
    acked_offset: int = 0,
    acked_ranges: Iterable[tuple[int, int]] = (),
    redeliveries: Iterable[RedeliveryRow] = (),
    config: LaneConfig = CONFIG,
) -> Lane[FakeMessage]:
    """Return a lane at time 0 that was fed *fed* matching messages."""
    claimed = ClaimedLane(KEY, 1, acked_offset, list(acked_ranges))
    lane: Lane[FakeMessage] = Lane(claimed, redeliveries, config, now=0.0)
    if fed:
        lane.feed(acked_offset, acked_offset + fed, messages(acked_offset, acked_offset + fed))
    return lane


def take_all(lane: Lane[FakeMessage], instance_id: str = "a", now: float = 0.0) -> Handout[FakeMessage]:
    """Let *instance_id* take all there is, fetching what is due."""
    fetch_due(lane, now)
    return lane.take(instance_id, 10_000, ALL_BYTES, now)


def held(first: int, last: int, attempt: int = 1, *, queue_id: int = KEY.queue_id, epoch: int = 1) -> Held:
    """Return the messages from *first* to *last*, both included, as an instance names them."""
    return Held(queue_id, epoch, attempt, [(first, last + 1)])


def settle(
    lane: Lane[FakeMessage],
    instance_id: str,
    verdict: Verdict,
    first: int,
    last: int,
    attempt: int,
    now: float,
    delay_seconds: float | None = None,
    error: str = "",
) -> Settled:
    """Let *instance_id* settle what it has from *first* to *last*, both included."""
    of_that = held(first, last, attempt, epoch=lane.epoch)
    return lane.settle(instance_id, Settlement(of_that, verdict, delay_seconds, error), now)


def begin(lane: Lane[FakeMessage], instance_id: str, first: int, last: int, attempt: int) -> None:
    """Let *instance_id* begin what it has from *first* to *last*, both included."""
    lane.begin(instance_id, held(first, last, attempt, epoch=lane.epoch))


def extend(
    lane: Lane[FakeMessage], instance_id: str, first: int, last: int, attempt: int, now: float, seconds: float
) -> int:
    """Let *instance_id* keep what it has from *first* to *last*, both included."""
    return lane.extend(instance_id, held(first, last, attempt, epoch=lane.epoch), seconds, now)


def begin_all(lane: Lane[FakeMessage], instance_id: str = "a") -> None:
    """Let *instance_id* begin all that it has."""
    for attempt in range(1, 5):
        begin(lane, instance_id, 0, ALL_BYTES, attempt)


def fetch_due(lane: Lane[FakeMessage], now: float) -> list[int]:
    """Fetch what is due, and return its offsets."""
    due = lane.due(now, 10_000)
    lane.feed_again([FakeMessage(offset) for offset, _ in due], [])
    return [offset for offset, _ in due]


def fresh_offsets(handout: Handout[FakeMessage]) -> list[int]:
    """Return the offsets of first hand-outs."""
    return [message.queue_offset for message in handout.fresh]


def again_offsets(handout: Handout[FakeMessage]) -> list[tuple[int, int]]:
    """Return (offset, attempt) of what came again."""
    return [(again.message.queue_offset, again.attempt) for again in handout.again]


def persist(lane: Lane[FakeMessage], now: float = 0.0) -> LaneCheckpoint:
    """Take a checkpoint that must be there, confirm it and return it."""
    checkpoint = lane.checkpoint(now)
    assert checkpoint is not None
    lane.confirm(checkpoint)
    return checkpoint


def make_topic(topic_id: int = 1, *, stress_refused: bool = False) -> TopicRoute:
    """Return a topic."""
    return TopicRoute(
        topic_id=topic_id,
        namespace="default",
        name=f"TP_{topic_id}",
        kind=TopicKind.NORMAL,
        queue_count=4,
        generation=1,
        body_bytes_max=8_192,
        is_open=False,
        is_closed=False,
        stress_refused=stress_refused,
        event_codes=frozenset({"EC_PAID", "EC_SENT"}),
    )


def make_subscription(
    event_code: str = "EC_PAID",
    predicate: HeaderPredicate | None = None,
    start_offsets: Mapping[int, int] | None = None,
    topic_id: int = 1,
) -> SubscriptionRoute:
    """Return a subscription, HEADER where it has a predicate."""
    return SubscriptionRoute(
        subscription_id=1,
        topic_id=topic_id,
        event_code=event_code,
        mode=SubscriptionMode.HEADER if predicate else SubscriptionMode.DIRECT,
        expression="an expression" if predicate else None,
        predicate=predicate,
        start_offsets=start_offsets or {},
    )


def make_group(*subscriptions: SubscriptionRoute, group_id: int = 7) -> GroupRoute:
    """Return a group with these subscriptions."""
    return GroupRoute(
        group_id=group_id,
        namespace="default",
        name="SG",
        ack_timeout_seconds=30.0,
        retry_schedule_seconds=(10.0,),
        attempts_max=3,
        unsettled_max=1_000,
        order=GroupOrder.NONE,
        mode=GroupMode.SHARED,
        paused=False,
        subscriptions=subscriptions,
    )
