"""What an instance says, in the form of the wire: who it is, and what has become of its messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgbroker.client.subscribe.settlements import BegunRanges, ExtendedRanges, SettledRanges, error_of
from msgbroker.client.values.client_version import client_version
from msgbroker.client.values.config import ClientConfig
from msgbroker.contract import limits
from msgbroker.v1 import subscriber_pb2


def hello_of(
    config: ClientConfig, group: str, process_id: bytes, message_types: Sequence[tuple[str, str]]
) -> subscriber_pb2.SubscriberHello:
    """Return how an instance of *group* introduces itself that has handlers of these topics and event codes."""
    return subscriber_pb2.SubscriberHello(
        namespace=config.namespace,
        group=group,
        instance_id=config.instance_id,
        host=config.host,
        process_id=process_id,
        says_begun=True,
        client_version=client_version(),
        handled=[
            subscriber_pb2.MessageType(topic=topic, event_code=event_code)
            for topic, event_code in message_types[: limits.SUBSCRIPTIONS_PER_GROUP_MAX]
        ],
    )


def request_of(
    begun: Iterable[BegunRanges], extended: Iterable[ExtendedRanges], settled: Iterable[SettledRanges]
) -> subscriber_pb2.SubscribeRequest:
    """Return a request that says all of that."""
    request = subscriber_pb2.SubscribeRequest(settlements=map(settlement_of, settled))
    for each in begun:
        request.begun.add(queue_id=each.queue_id, epoch=each.epoch, attempt=each.attempt, ranges=each.ranges)
    for more in extended:
        request.extensions.add(
            queue_id=more.queue_id,
            epoch=more.epoch,
            attempt=more.attempt,
            ranges=more.ranges,
            extend_ms=more.extend_ms,
        )
    return request


def settlement_of(settled: SettledRanges) -> subscriber_pb2.Settlement:
    """Return one verdict on ranges of offsets."""
    verdict = settled.verdict
    delay_ms = 0 if verdict.delay_seconds is None else round(verdict.delay_seconds * 1_000)
    return subscriber_pb2.Settlement(
        queue_id=settled.queue_id,
        epoch=settled.epoch,
        attempt=settled.attempt,
        verdict=int(verdict.kind),  # type: ignore[arg-type]  # the numbers are those of the wire
        ranges=settled.ranges,
        delay_ms=delay_ms,
        immediately=verdict.delay_seconds is not None and delay_ms == 0,
        error=error_of(verdict),
        unreadable=verdict.is_unreadable,
    )
