"""What an instance will not get is worked out while all others wait: going over what there is once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from confdb.routes import SubscriptionRoute
from msgbroker.server.edge.subscribing.subscriber_service import missing_types
from msgbroker.v1 import subscriber_pb2
from tests.support.broker_builders import PAID, group_route, route, snapshot


class Counted(tuple[SubscriptionRoute, ...]):
    """Subscriptions that count how often they are gone over."""

    __slots__ = ()
    rounds = 0

    def __iter__(self) -> Iterator[SubscriptionRoute]:
        type(self).rounds += 1
        return super().__iter__()


def test_the_subscriptions_of_a_group_are_gone_over_once_however_many_handlers_there_are() -> None:
    topic = route()
    subscriptions = Counted(group_route().subscriptions)
    group = dataclasses.replace(group_route(), subscriptions=subscriptions)
    handled = [subscriber_pb2.MessageType(topic=topic.name, event_code=PAID)] * 500
    handled += [subscriber_pb2.MessageType(topic="TP_NONE", event_code=PAID)]
    Counted.rounds = 0

    missing = missing_types(snapshot(topic), group, subscriber_pb2.SubscriberHello(handled=handled))

    assert [(each.topic, each.reason) for each in missing] == [("TP_NONE", "TOPIC_NOT_FOUND")]
    assert Counted.rounds == 1
