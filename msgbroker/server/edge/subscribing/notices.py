"""Ours → wire: what an instance is told beside its messages. The messages themselves are encoded by `log.encoding`."""

from __future__ import annotations

from typing import assert_never

from msgbroker.engine.verdicts import Held
from msgbroker.server.deliver.instances.notices import (
    Attached,
    Confirmed,
    Draining,
    LaneRevoked,
    Notice,
    Relocation,
    TakenBack,
)
from msgbroker.v1 import subscriber_pb2


def encode_notice(notice: Notice) -> bytes:
    """Return the encoded SubscribeResponse that tells it; encoded responses may be joined to one."""
    return _response_of(notice).SerializeToString()


def _response_of(notice: Notice) -> subscriber_pb2.SubscribeResponse:
    match notice:
        case Attached():
            return subscriber_pb2.SubscribeResponse(attached=_attached(notice))
        case LaneRevoked(queue_id, epoch):
            revoked = subscriber_pb2.LaneRevoked(queue_id=queue_id, epoch=epoch)
            return subscriber_pb2.SubscribeResponse(revoked=[revoked])
        case TakenBack(held):
            return subscriber_pb2.SubscribeResponse(taken_back=[_taken_back(each) for each in held])
        case Relocation(addresses):
            return subscriber_pb2.SubscribeResponse(relocation=subscriber_pb2.Relocation(addresses=addresses))
        case Draining():
            return subscriber_pb2.SubscribeResponse(draining=True)
        case Confirmed(number):
            return subscriber_pb2.SubscribeResponse(confirmed=number)
    assert_never(notice)


def _attached(notice: Attached) -> subscriber_pb2.Attached:
    return subscriber_pb2.Attached(
        unsettled_max=notice.unsettled_max,
        ack_timeout_ms=int(notice.ack_timeout_seconds * 1_000),
        handle_ms_max=int(notice.handle_seconds_max * 1_000),
        broker_id=notice.broker_id,
        missing=[subscriber_pb2.MissingSubscription(**each._asdict()) for each in notice.missing],
        careful_ms=int(notice.careful_seconds * 1_000),
    )


def _taken_back(held: Held) -> subscriber_pb2.TakenBack:
    return subscriber_pb2.TakenBack(
        queue_id=held.queue_id,
        epoch=held.epoch,
        attempt=held.attempt,
        ranges=[bound for first, end in held.ranges for bound in (first, end - 1)],
    )
