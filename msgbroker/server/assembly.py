"""Makes a broker's parts and connects them: who is told what, and who calls whom."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final, NamedTuple

import grpc

from confdb.brokers import BrokerRegistry
from confdb.routes import Snapshot
from confdb.services import ConfigService
from confdb.snapshot import SnapshotFeed
from confdb.store import ConfigStore
from msgbroker.contract import limits
from msgbroker.contract.errors import ConfigOutdatedError, TooManyCallsError
from msgbroker.server import clock
from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.alarms.names import topic_alarm
from msgbroker.server.alarms.not_understood import alarms_of, process_version
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.alarms.side_loops import SideLoops
from msgbroker.server.broker import Broker, Loop
from msgbroker.server.cluster.announcements import Announcer, Listener, WatchedTopics
from msgbroker.server.cluster.cluster import BrokerIdentity, Cluster, ClusterConfig
from msgbroker.server.cluster.cut_off import CutOff
from msgbroker.server.deliver.checkpoints import Checkpointer
from msgbroker.server.deliver.expressions.dear import DearExpressions
from msgbroker.server.deliver.expressions.failures import FailureWriter
from msgbroker.server.deliver.expressions.helper_frames import HelperBounds
from msgbroker.server.deliver.expressions.helper_process import HelperConfig, HelperProcess
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.deliver.outgoing import Outgoing, OutgoingConfig
from msgbroker.server.edge import grpc_server
from msgbroker.server.edge.calls.gate import CallGate
from msgbroker.server.edge.calls.places import Places
from msgbroker.server.edge.directory_service import DirectoryService
from msgbroker.server.edge.health import HealthWatch
from msgbroker.server.edge.health_service import HealthService
from msgbroker.server.edge.pressure import PressureWatch
from msgbroker.server.edge.publisher_service import PublisherService
from msgbroker.server.edge.pull_service import PullService
from msgbroker.server.edge.subscriber_service import SubscriberService
from msgbroker.server.log.cache import LogCache, LogCacheConfig
from msgbroker.server.log.message import LogMessage
from msgbroker.server.log.topic_queues import QueueMap
from msgbroker.server.loops import pause
from msgbroker.server.publish.committer import Committer, CommitterConfig
from msgbroker.server.publish.event_code_registrar import EventCodeRegistrar
from msgbroker.server.report import Report
from msgbroker.server.settings import BrokerSettings
from msgdb.append.appender import AppendConfig, Appender
from msgdb.days.partitions import ensure_for
from msgdb.days.retention import Maintenance, MaintenanceConfig
from msgdb.log.queues import QueueTailReader
from msgdb.reports.alarms import Alarm, AlarmKind
from msgdb.store import MessageStore

_POLL_SECONDS_AMONG_OTHERS: Final = 1.0
_POLL_SECONDS_ALONE: Final = 10.0
_HOUSEKEEPING_SECONDS: Final = 5.0
_HEALTH_READING_MAX: Final = 16
"""8 MiB, of requests that are as large as gRPC takes."""


@dataclass(frozen=True, slots=True)
class Stores:
    """What a broker stands on."""

    config: ConfigStore
    messages: MessageStore
    feed: SnapshotFeed
    queues: QueueMap

    def cut(self) -> None:
        """Break every connection to the databases that is in use."""
        self.config.cut()
        self.messages.cut()


def assemble(settings: BrokerSettings, stores: Stores) -> Broker:
    """Make a broker; nothing runs yet. Raises PortInUseError."""
    server = grpc_server.make_server(shared_port=settings.shared_port)
    address = _listen(server, settings)
    identity = BrokerIdentity(uuid.uuid4(), address, process_version(), stores.feed.understood)
    board = AlarmBoard(stores.messages, identity.broker_id, address)
    health_service = HealthService()
    cut_off = CutOff(stores.messages, stores.feed, board)
    health = HealthWatch(health_service, stores.messages, stores.feed, board, cut_off)
    topics_aside: SetAside[int] = SetAside(board, lambda topic_id: _alarm_of_topic(stores.feed.current, topic_id))
    hub, checkpointer, cluster = _assemble_delivery(settings, stores, identity, board, topics_aside, cut_off)
    announcer = Announcer(stores.messages)
    tell = _teller(hub, announcer, WatchedTopics(cluster, stores.feed))
    first_turn = cluster.identity.broker_id.int % limits.QUEUES_MAX
    committer = _assemble_committer(settings, stores, hub, tell, topics_aside, first_turn)
    service = ConfigService(stores.config, f"broker {address}", QueueTailReader(stores.messages))
    registrar = EventCodeRegistrar(service)
    served = _assemble_services(settings, stores, hub, cluster, committer, registrar)
    directory = DirectoryService(cluster, service, client_registration=settings.client_registration)
    places = _add_services(server, settings, hub.outgoing, served, directory, health_service)
    failures = FailureWriter(hub.evaluations.failures, stores.messages)
    listener = Listener(stores.messages, hub, lambda: _poll_seconds(cluster))
    side_loops: dict[str, Loop] = {
        "announcer": announcer.run,
        "event-codes": registrar.run,
        "maintenance": _maintenance(settings, stores).run,
        "health": health.run,
        "cut-off": cut_off.run,
        "counters": Report(hub, committer, board).run,
        "alarms": board.run,
        "expression-failures": failures.run,
        "pressure": PressureWatch(places, hub.outgoing, board).run,
        "housekeeping": lambda stop: _keep_house(stop, served.pull, topics_aside),
    }
    side_loops |= _listening(listener, settings)
    side = SideLoops(board)
    loops: dict[str, Loop] = {
        "snapshot": stores.feed.run,
        "ticks": hub.run_ticks,
        "delivery": hub.tasks.run,
        "outgoing": hub.outgoing.run,
        "expressions": _dear_expressions(settings, hub, board).run,
        "checkpoints": checkpointer.run,
        "cluster": cluster.run,
        "beats": cluster.run_beats,
        **{name: side.kept_running(name, run) for name, run in side_loops.items()},
    }
    _follow_snapshots(stores.feed, hub, cluster, board, served.publisher, topics_aside)
    _follow_histories(stores, committer, cluster)
    _follow_mark(stores.feed, hub, cluster)
    return Broker(
        settings=settings,
        address=address,
        feed=stores.feed,
        hub=hub,
        committer=committer,
        checkpointer=checkpointer,
        cluster=cluster,
        publisher=served.publisher,
        subscriber=served.subscriber,
        pull=served.pull,
        health=health,
        alarms=board,
        failures=failures,
        server=server,
        loops=loops,
        cut_connections=stores.cut,
    )


def _listening(listener: Listener, settings: BrokerSettings) -> dict[str, Loop]:
    """Return the loops that hear of what other brokers store; behind a pooler there is nothing to listen on."""
    poll: dict[str, Loop] = {"listener-poll": listener.run_poll}
    return poll if settings.pooled else poll | {"listener": listener.run, "listener-doubts": listener.run_doubts}


class _Services(NamedTuple):
    """What clients call, as far as it serves messages."""

    publisher: PublisherService
    subscriber: SubscriberService
    pull: PullService

    @property
    def places(self) -> tuple[Places, ...]:
        """What there may be so many of."""
        return self.publisher.places, self.subscriber.places, self.pull.places, self.pull.calls


def _assemble_services(
    settings: BrokerSettings,
    stores: Stores,
    hub: DeliveryHub,
    cluster: Cluster,
    committer: Committer,
    registrar: EventCodeRegistrar,
) -> _Services:
    publisher = PublisherService(
        committer,
        snapshot=stores.feed.get,
        learn_event_code=registrar.learn,
        check_current=cluster.cut_off.check_current,
        is_delivery_behind=hub.is_behind,
        outgoing=hub.outgoing,
        streams_max=settings.publisher_streams_max,
    )
    subscriber = SubscriberService(hub, cluster, stores.feed.get, settings.subscriber_streams_max)
    pull = PullService(hub, cluster, stores.feed.get, settings.pulls_max)
    return _Services(publisher, subscriber, pull)


def _add_services(
    server: grpc.aio.Server,
    settings: BrokerSettings,
    outgoing: Outgoing,
    served: _Services,
    directory: DirectoryService,
    health: HealthService,
) -> tuple[Places, ...]:
    """Register all that clients call; return where they are counted."""
    gate = CallGate(Places("calls", settings.calls_max, TooManyCallsError), outgoing)
    health_gate = CallGate(health.checks, outgoing, _HEALTH_READING_MAX)
    grpc_server.add_services(
        server, served.publisher, served.subscriber, served.pull, directory, health, gate, health_gate
    )
    return (*served.places, gate.places, health.places, health.checks)


def _assemble_delivery(
    settings: BrokerSettings,
    stores: Stores,
    identity: BrokerIdentity,
    board: AlarmBoard,
    topics_aside: SetAside[int],
    cut_off: CutOff,
) -> tuple[DeliveryHub, Checkpointer, Cluster]:
    half_bytes = settings.log_cache_bytes_max // 2
    cache = LogCache(stores.messages, LogCacheConfig(tail_bytes_max=half_bytes, blocks_bytes_max=half_bytes))
    hub = DeliveryHub(cache, board, outgoing=OutgoingConfig(bytes_max=settings.outgoing_bytes_max))
    checkpointer = Checkpointer(hub, stores.messages, identity.broker_id, settings.checkpoint_seconds)
    cluster = Cluster(
        identity,
        BrokerRegistry(stores.config),
        stores.messages,
        hub,
        checkpointer,
        stores.queues,
        stores.feed.get,
        topics_aside,
        cut_off,
        ClusterConfig(lease_seconds=settings.lease_seconds),
    )
    return hub, checkpointer, cluster


def _assemble_committer(
    settings: BrokerSettings,
    stores: Stores,
    hub: DeliveryHub,
    on_stored: Callable[[Mapping[int, list[LogMessage]]], None],
    topics_aside: SetAside[int],
    first_turn: int,
) -> Committer:
    async def ensure_partitions(days: Collection[date]) -> None:
        async with stores.messages.connection() as connection:
            for day in days:
                await ensure_for(connection, day)

    config = AppendConfig(pooled=settings.pooled)
    return Committer(
        Appender(stores.messages.connect_blocking, ensure_partitions, config=config),
        stores.queues,
        on_stored=on_stored,
        on_elsewhere=hub.stored_before,
        topics_aside=topics_aside,
        config=CommitterConfig(waiting_bytes_max=settings.ingest_bytes_max, first_turn=first_turn),
    )


def _alarm_of_topic(snapshot: Snapshot, topic_id: int) -> Alarm:
    found = [topic for topic in snapshot.topics.values() if topic.topic_id == topic_id]
    if found:
        return topic_alarm(AlarmKind.TOPIC_SET_ASIDE, found[0])
    return Alarm(AlarmKind.TOPIC_SET_ASIDE, f"topic {topic_id}", "", topic_id=topic_id)


def _teller(
    hub: DeliveryHub, announcer: Announcer, watched: WatchedTopics
) -> Callable[[Mapping[int, list[LogMessage]]], None]:
    """Return what the committer calls after a commit: lanes here hear of it first, then other brokers."""

    def tell(by_queue: Mapping[int, list[LogMessage]]) -> None:
        hub.stored(by_queue)
        ends = {q: messages[-1].queue_offset + 1 for q, messages in by_queue.items() if watched.includes(messages[0])}
        if ends:
            announcer.announce(ends)

    return tell


def _follow_snapshots(
    feed: SnapshotFeed,
    hub: DeliveryHub,
    cluster: Cluster,
    board: AlarmBoard,
    publisher: PublisherService,
    topics_aside: SetAside[int],
) -> None:
    def follow(snapshot: Snapshot) -> None:
        hub.follow(snapshot)
        if cluster.cut_off.is_behind:
            # It is newer than what was known here, and not as new as what may be active.
            hub.refuse_all(ConfigOutdatedError(snapshot.version))
        for topic_id in topics_aside.units - hub.topics.keys():
            # Deleted: nothing of it will ever work again.
            topics_aside.worked(topic_id)
        publisher.follow()
        board.replace(AlarmKind.NOT_UNDERSTOOD, alarms_of(snapshot))
        cluster.wake_all()

    follow(feed.current)
    feed.on_change(follow)
    hub.outgoing.on_obeyed(cluster.wake_all)


def _follow_histories(stores: Stores, committer: Committer, cluster: Cluster) -> None:
    stores.messages.on_new_history(lambda _: stores.queues.forget())
    stores.messages.on_new_history(lambda _: committer.forget_log())
    stores.messages.on_new_history(cluster.follow_history)


def _follow_mark(feed: SnapshotFeed, hub: DeliveryHub, cluster: Cluster) -> None:
    def serve_nobody(because: ConfigOutdatedError) -> None:
        hub.refuse_all(because)
        cluster.wake_all()

    def serve_again() -> None:
        hub.follow(feed.current)
        cluster.wake_all()

    cluster.cut_off.on_behind = serve_nobody
    cluster.cut_off.on_current = serve_again


def _maintenance(settings: BrokerSettings, stores: Stores) -> Maintenance:
    return Maintenance(
        stores.messages,
        MaintenanceConfig(retention_days=settings.retention_days),
        group_names=lambda: {group.group_id: group.name for group in stores.feed.current.groups.values()},
    )


def _dear_expressions(settings: BrokerSettings, hub: DeliveryHub, board: AlarmBoard) -> DearExpressions:
    helper = HelperProcess(HelperConfig(HelperBounds(niceness=settings.expression_niceness)))
    return DearExpressions(evaluations=hub.evaluations, cache=hub.cache, lanes=hub, helper=helper, board=board)


def _poll_seconds(cluster: Cluster) -> float:
    return _POLL_SECONDS_AMONG_OTHERS if cluster.other_brokers() else _POLL_SECONDS_ALONE


async def _keep_house(stop: asyncio.Event, pull: PullService, topics_aside: SetAside[int]) -> None:
    while not stop.is_set():
        pull.forget_idle(clock.now())
        # Their publishers and instances may have gone to other brokers, where they work by now.
        topics_aside.forget_untried()
        await pause(stop, _HOUSEKEEPING_SECONDS)


def _listen(server: grpc.aio.Server, settings: BrokerSettings) -> str:
    """Bind the ports; return the address that others reach this process at."""
    host = settings.listen.rpartition(":")[0]
    port = grpc_server.bind(server, settings.listen)
    if settings.shared_port:
        # Whoever must reach this very process (a lane's owner, say) cannot use the port it shares.
        port = grpc_server.bind(server, f"{host}:0")
    elif settings.advertise:
        return settings.advertise
    reachable = socket.gethostname() if host in {"0.0.0.0", "[::]"} else host  # noqa: S104 - compared, not bound
    return f"{reachable}:{port}"
