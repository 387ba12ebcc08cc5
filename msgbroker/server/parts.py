"""Makes a broker's parts, room by room, lower rooms first: none of them runs, and none tells another anything yet.

Who is told what is said in `assembly`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final, NamedTuple, TypeAlias

import grpc

from confdb.brokers import BrokerRegistry
from confdb.routes import Snapshot
from confdb.services import ConfigService
from confdb.snapshot import SnapshotFeed
from confdb.store import ConfigStore
from msgbroker.contract import limits
from msgbroker.contract.errors import TooManyCallsError
from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.alarms.names import topic_alarm
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.cluster.announcements import Announcer, Listener, WatchedTopics
from msgbroker.server.cluster.claims import LaneClaims
from msgbroker.server.cluster.cluster import Cluster
from msgbroker.server.cluster.cut_off import CutOff
from msgbroker.server.cluster.heartbeats import BrokerIdentity, Heartbeats
from msgbroker.server.cluster.lease_terms import LeaseTerms
from msgbroker.server.cluster.misplaced_instances import MisplacedInstances
from msgbroker.server.cluster.ownership import LaneOwnership
from msgbroker.server.cluster.placement import WantedLanes
from msgbroker.server.cluster.planned_moves import PlannedMoves
from msgbroker.server.cluster.queue_ends import QueueEnds
from msgbroker.server.cluster.recovery import LaneRecovery
from msgbroker.server.cluster.renewal import LeaseRenewal
from msgbroker.server.deliver.checkpoints import Checkpointer
from msgbroker.server.deliver.expressions.dear import DearExpressions
from msgbroker.server.deliver.expressions.failures import FailureWriter
from msgbroker.server.deliver.expressions.helper_frames import HelperBounds
from msgbroker.server.deliver.expressions.helper_process import HelperConfig, HelperProcess
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.outgoing import OutgoingConfig
from msgbroker.server.edge import grpc_server
from msgbroker.server.edge.calls.gate import CallGate
from msgbroker.server.edge.calls.places import Places
from msgbroker.server.edge.decoding import parse_message
from msgbroker.server.edge.directory_service import DirectoryService
from msgbroker.server.edge.grpc_door import GrpcDoor
from msgbroker.server.edge.health import HealthWatch
from msgbroker.server.edge.health_service import HealthService
from msgbroker.server.edge.inspecting.inspection_service import InspectionService
from msgbroker.server.edge.overload import OverloadWatch
from msgbroker.server.edge.publishing.publisher_service import PublisherService
from msgbroker.server.edge.subscribing.pull_service import PullService
from msgbroker.server.edge.subscribing.subscriber_service import SubscriberService
from msgbroker.server.log.cache import LogCache, LogCacheConfig
from msgbroker.server.log.message import LogMessage
from msgbroker.server.log.topic_queues import TopicQueues
from msgbroker.server.publish.admissions import Admissions
from msgbroker.server.publish.committer import Committer, CommitterConfig
from msgbroker.server.publish.event_code_registrar import EventCodeRegistrar
from msgbroker.server.requests import BrokerRequests
from msgbroker.server.settings import BrokerSettings
from msgbroker.server.trace.tracing import Tracing
from msgbroker.server.trace.writer import TraceWriter
from msgdb.append.appender import AppendConfig, Appender
from msgdb.append.outcome import FrameOutcome
from msgdb.log.partitions import ensure_for
from msgdb.log.queues import QueueTailReader
from msgdb.reports.alarms import Alarm, AlarmKind
from msgdb.store import MessageStore

TellStored: TypeAlias = Callable[[Mapping[int, list[LogMessage]]], None]
"""Called after each commit, with the messages of each queue."""

_POLL_SECONDS_AMONG_OTHERS: Final = 1.0
_POLL_SECONDS_ALONE: Final = 10.0
_INSPECTIONS_MAX: Final = 16
"""So many calls of operators' tools are answered at a time; each asks once in a while."""
_HEALTH_READING_MAX: Final = 16
"""So many requests are read at a time; as large as gRPC takes them, they are 8 MiB."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The two databases that a broker stands on, and what it follows of them."""

    config: ConfigStore
    messages: MessageStore
    feed: SnapshotFeed
    queues: TopicQueues

    def cut(self) -> None:
        """Break every connection to the databases that is in use."""
        self.config.cut()
        self.messages.cut()


class Foundation(NamedTuple):
    """What every room is made with."""

    settings: BrokerSettings
    stores: Stores
    identity: BrokerIdentity
    board: AlarmBoard
    topics_aside: SetAside[int]
    """Topics whose messages could not be stored for unknown reasons."""


class Trace(NamedTuple):
    """The room `trace`: what notes what happens to messages, and what writes it."""

    tracing: Tracing
    writer: TraceWriter


class Delivery(NamedTuple):
    """The room `deliver`: what brings messages from the log to instances."""

    hub: DeliveryHub
    checkpointer: Checkpointer
    dear: DearExpressions
    failures: FailureWriter


class Announcements(NamedTuple):
    """How brokers hear of each other's messages."""

    announcer: Announcer
    watched: WatchedTopics
    listener: Listener
    ends: QueueEnds


class Publishing(NamedTuple):
    """The room `publish`: what brings messages from publishers to the log."""

    committer: Committer
    registrar: EventCodeRegistrar


class Door(NamedTuple):
    """The room `edge`: what clients reach over gRPC, and what tells operators when they ask for too much."""

    grpc: GrpcDoor
    overload: OverloadWatch


def lay_foundation(settings: BrokerSettings, stores: Stores, identity: BrokerIdentity) -> Foundation:
    """Return what every room of a broker is made with."""
    board = AlarmBoard(stores.messages, identity.broker_id, identity.address)
    topics_aside: SetAside[int] = SetAside(board, lambda topic_id: _alarm_of_topic(stores.feed.current, topic_id))
    return Foundation(settings, stores, identity, board, topics_aside)


def _alarm_of_topic(snapshot: Snapshot, topic_id: int) -> Alarm:
    found = [topic for topic in snapshot.topics.values() if topic.topic_id == topic_id]
    if found:
        return topic_alarm(AlarmKind.TOPIC_SET_ASIDE, found[0])
    return Alarm(AlarmKind.TOPIC_SET_ASIDE, f"topic {topic_id}", "", topic_id=topic_id)


def make_trace(base: Foundation) -> Trace:
    """Make what notes what happens to messages."""
    tracing = Tracing()
    return Trace(tracing, TraceWriter(tracing.buffer, base.stores.messages, base.identity.address))


def make_delivery(base: Foundation, tracing: Tracing) -> Delivery:
    """Make the hub, and what persists and evaluates for it."""
    settings, store = base.settings, base.stores.messages
    half_bytes = settings.log_cache_bytes_max // 2
    cache = LogCache(store, LogCacheConfig(tail_bytes_max=half_bytes, blocks_bytes_max=half_bytes))
    outgoing = OutgoingConfig(bytes_max=settings.outgoing_bytes_max)
    hub = DeliveryHub(cache, base.board, outgoing=outgoing, tracing=tracing)
    helper = HelperProcess(HelperConfig(HelperBounds(niceness=settings.expression_niceness)))
    return Delivery(
        hub=hub,
        checkpointer=Checkpointer(hub, store, base.identity.broker_id, settings.checkpoint_seconds),
        dear=DearExpressions(evaluations=hub.evaluations, cache=hub.cache, lanes=hub, helper=helper, board=base.board),
        failures=FailureWriter(hub.evaluations.failures, store),
    )


def make_cluster(base: Foundation, delivery: Delivery) -> Cluster:
    """Make what keeps the broker's place among the others: its heartbeats, and the lanes that are its own."""
    cut_off = CutOff(store=base.stores.messages, feed=base.stores.feed, board=base.board)
    misplaced = MisplacedInstances(hub=delivery.hub, snapshot=base.stores.feed.get, features=base.identity.features)
    heartbeats = Heartbeats(
        identity=base.identity,
        registry=BrokerRegistry(base.stores.config),
        hub=delivery.hub,
        snapshot=base.stores.feed.get,
        misplaced=misplaced,
        cut_off=cut_off,
    )
    ownership = _make_ownership(base, delivery, heartbeats=heartbeats, cut_off=cut_off, misplaced=misplaced)
    return Cluster(heartbeats, ownership, cut_off)


def _make_ownership(
    base: Foundation, delivery: Delivery, *, heartbeats: Heartbeats, cut_off: CutOff, misplaced: MisplacedInstances
) -> LaneOwnership:
    store, snapshot, broker_id, hub = base.stores.messages, base.stores.feed.get, base.identity.broker_id, delivery.hub
    terms = LeaseTerms(base.settings.lease_seconds)
    return LaneOwnership(
        hub=hub,
        heartbeats=heartbeats,
        cut_off=cut_off,
        wanted=WantedLanes(
            broker_id=broker_id,
            hub=hub,
            queues=base.stores.queues,
            snapshot=snapshot,
            topics_aside=base.topics_aside,
            features=base.identity.features,
        ),
        renewal=LeaseRenewal(store=store, broker_id=broker_id, hub=hub, terms=terms),
        moves=PlannedMoves(store=store, broker_id=broker_id, hub=hub, checkpointer=delivery.checkpointer),
        claims=LaneClaims(
            store=store,
            broker_id=broker_id,
            hub=hub,
            snapshot=snapshot,
            cut_off=cut_off,
            recovery=LaneRecovery(store=store, broker_id=broker_id, hub=hub),
            terms=terms,
        ),
        misplaced=misplaced,
    )


def make_announcements(
    base: Foundation, hub: DeliveryHub, heartbeats: Heartbeats, requests: BrokerRequests
) -> Announcements:
    """Make what tells and hears of messages: soon by announcements, and for certain by asking msgdb."""

    def poll_seconds() -> float:
        return _POLL_SECONDS_AMONG_OTHERS if heartbeats.other_brokers() else _POLL_SECONDS_ALONE

    ends = QueueEnds(hub=hub, poll_seconds=poll_seconds)
    return Announcements(
        announcer=Announcer(base.stores.messages),
        watched=WatchedTopics(heartbeats=heartbeats, feed=base.stores.feed),
        listener=Listener(store=base.stores.messages, hub=hub, ends=ends, on_request=requests.wake.set),
        ends=ends,
    )


def make_publishing(
    base: Foundation,
    hub: DeliveryHub,
    config: ConfigService,
    *,
    on_stored: TellStored,
    on_stored_before: Callable[[FrameOutcome], None],
) -> Publishing:
    """Make what stores messages; *on_stored* hears of each commit, *on_stored_before* of frames that were there."""

    async def ensure_partitions(days: Collection[date]) -> None:
        async with base.stores.messages.connection() as connection:
            for day in days:
                await ensure_for(connection, day)

    append_config = AppendConfig(pooled=base.settings.pooled)
    appender = Appender(base.stores.messages.connect_blocking, ensure_partitions, config=append_config)
    committer = Committer(
        appender=appender,
        queues=base.stores.queues,
        on_stored=on_stored,
        on_stored_before=on_stored_before,
        topics_aside=base.topics_aside,
        trace_threshold=lambda: hub.tracing.threshold_max,
        config=CommitterConfig(
            waiting_bytes_max=base.settings.ingest_bytes_max,
            # Brokers that start together do not all begin with the same queue.
            first_turn=base.identity.broker_id.int % limits.QUEUES_MAX,
        ),
    )
    return Publishing(committer, EventCodeRegistrar(config))


def make_config_service(base: Foundation) -> ConfigService:
    """Make what changes the configuration in this broker's name: for clients that register, and open topics."""
    return ConfigService(base.stores.config, f"broker {base.identity.address}", QueueTailReader(base.stores.messages))


def make_door(
    base: Foundation,
    server: grpc.aio.Server,
    *,
    hub: DeliveryHub,
    cluster: Cluster,
    publishing: Publishing,
    config: ConfigService,
) -> Door:
    """Make all that clients call over gRPC, and register it with *server*."""
    settings = base.settings
    admissions = Admissions(
        snapshot=base.stores.feed.get, learn_event_code=publishing.registrar.learn, parse=parse_message
    )
    publisher = PublisherService(
        committer=publishing.committer,
        admissions=admissions,
        check_current=cluster.cut_off.check_current,
        is_delivery_behind=hub.is_behind,
        outgoing=hub.outgoing,
        streams_max=settings.publisher_streams_max,
    )
    subscriber, pull = _make_subscriber(base, hub, cluster)
    health = HealthService()
    gate = CallGate(Places("calls", settings.calls_max, TooManyCallsError), hub.outgoing)
    grpc_server.add_services(
        server,
        publisher=publisher,
        subscriber=subscriber,
        pull=pull,
        directory=DirectoryService(cluster.heartbeats, config, client_registration=settings.client_registration),
        inspection=InspectionService(hub, lambda: publisher.connections),
        health=health,
        gate=gate,
        inspection_gate=CallGate(Places("inspections", _INSPECTIONS_MAX, TooManyCallsError), hub.outgoing),
        health_gate=CallGate(health.checks, hub.outgoing, _HEALTH_READING_MAX),
    )
    places = (publisher.places, subscriber.places, pull.places, pull.calls, gate.places, health.places, health.checks)
    watch = HealthWatch(
        service=health, store=base.stores.messages, feed=base.stores.feed, board=base.board, cut_off=cluster.cut_off
    )
    return Door(GrpcDoor(server, publisher, subscriber, pull, watch), OverloadWatch(places, hub.outgoing, base.board))


def _make_subscriber(base: Foundation, hub: DeliveryHub, cluster: Cluster) -> tuple[SubscriberService, PullService]:
    """Make both parts of the service `Subscriber`: its stream, and its unary calls."""
    subscriber = SubscriberService(
        hub=hub,
        snapshot=base.stores.feed.get,
        broker_id=base.identity.broker_id,
        check_not_behind=cluster.cut_off.check_not_behind,
        instances_changed=cluster.ownership.wake,
        streams_max=base.settings.subscriber_streams_max,
    )
    pull = PullService(
        hub=hub,
        snapshot=base.stores.feed.get,
        check_not_behind=cluster.cut_off.check_not_behind,
        instances_changed=cluster.ownership.wake,
        pulls_max=base.settings.pulls_max,
    )
    return subscriber, pull
