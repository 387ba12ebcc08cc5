"""Ours → wire: connected instances and publishers."""

from __future__ import annotations

from typing import Final

from msgbroker.engine.verdicts import Verdict
from msgbroker.server.edge.inspecting.pages import Attached
from msgbroker.server.edge.inspecting.wall_clock import WallClock
from msgbroker.server.edge.publishing.publisher_connection import PublisherConnection
from msgbroker.v1 import inspection_pb2, subscriber_pb2

_VERDICTS: Final[dict[Verdict, subscriber_pb2.Verdict]] = {
    Verdict.ACK: subscriber_pb2.VERDICT_ACK,
    Verdict.RETRY: subscriber_pb2.VERDICT_RETRY,
    Verdict.RELEASE: subscriber_pb2.VERDICT_RELEASE,
    Verdict.REJECT: subscriber_pb2.VERDICT_REJECT,
    Verdict.UNREADABLE: subscriber_pb2.VERDICT_REJECT,
}


def instance_of(attached: Attached, wall: WallClock) -> inspection_pb2.ConnectedInstance:
    """Return what is told of an instance."""
    route, instance, heard = attached.group.route, attached.instance, attached.instance.heard
    said = inspection_pb2.ConnectedInstance(
        namespace=route.namespace,
        group=route.name,
        group_id=route.group_id,
        instance_id=instance.instance_id,
        attachment=instance.name,
        host=instance.host,
        client_version=instance.client_version,
        since_us=wall.us(instance.since),
        credit=min(instance.credit, instance.credit_max),
        unsettled=instance.unsettled,
        settled_per_second=heard.settled.a_second(wall.now),
        paused=instance.is_paused,
        pulls=instance.pulls,
    )
    if heard.last_verdict is not None:
        said.last_verdict = _VERDICTS[heard.last_verdict]
        said.last_verdict_at_us = wall.us(heard.last_verdict_at)
    return said


def publisher_of(connection: PublisherConnection, wall: WallClock) -> inspection_pb2.ConnectedPublisher:
    """Return what is told of a publisher."""
    publisher, origin = connection.publisher, connection.publisher.origin
    return inspection_pb2.ConnectedPublisher(
        namespace=origin.namespace,
        publisher_group=origin.publisher_group,
        publisher_id=publisher.publisher_id,
        host=origin.born_host,
        client_version=publisher.client_version,
        since_us=wall.us(connection.since),
        unanswered_frames=connection.unanswered_frames,
        messages_per_second=connection.arrived.a_second(wall.now),
        attachment=connection.name,
    )
