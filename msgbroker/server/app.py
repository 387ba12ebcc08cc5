"""The composition root of a broker process: settings → stores → engine → services → server."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import signal
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import grpc
import structlog

from confdb.brokers import BrokerRegistry
from confdb.services import ConfigService
from confdb.snapshot import SnapshotFeed
from confdb.store import ConfigStore
from msgbroker.contract.errors import ConfigUnavailableError, StoreUnavailableError
from msgbroker.server import grpc_server
from msgbroker.server.announcements import Announcer, Listener
from msgbroker.server.checkpoints import Checkpointer
from msgbroker.server.cluster import BrokerIdentity, Cluster, ClusterConfig
from msgbroker.server.committer import Committer, CommitterConfig
from msgbroker.server.delivery import DeliveryHub
from msgbroker.server.directory_service import DirectoryService
from msgbroker.server.event_code_registrar import EventCodeRegistrar
from msgbroker.server.health_watch import HealthWatch
from msgbroker.server.log_cache import LogCache, LogCacheConfig
from msgbroker.server.log_message import LogMessage
from msgbroker.server.loops import pause
from msgbroker.server.publisher_service import PublisherService
from msgbroker.server.pull_service import PullService
from msgbroker.server.queue_map import QueueMap
from msgbroker.server.settings import BrokerSettings
from msgbroker.server.subscriber_service import SubscriberService
from msgdb.append import AppendConfig, Appender
from msgdb.partitions import ensure_ahead
from msgdb.queues import QueueTailReader
from msgdb.retention import Maintenance, MaintenanceConfig
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

_POLL_SECONDS_AMONG_OTHERS: Final = 1.0
_POLL_SECONDS_ALONE: Final = 10.0
_LEAVE_SECONDS_MAX: Final = 3.0
_SERVER_GRACE_SECONDS: Final = 0.5
_HOUSEKEEPING_SECONDS: Final = 5.0


@dataclass(slots=True, eq=False)
class Broker:
    """A running broker: its parts, as far as its owner has to do with them."""

    settings: BrokerSettings
    address: str
    """host:port that clients reach it at."""
    feed: SnapshotFeed
    hub: DeliveryHub
    committer: Committer
    checkpointer: Checkpointer
    cluster: Cluster
    publisher: PublisherService
    subscriber: SubscriberService
    pull: PullService
    health: HealthWatch
    server: grpc.aio.Server
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    loops: list[asyncio.Task[None]] = field(default_factory=list)
    committing: asyncio.Task[None] | None = None

    async def wait_until_failed(self) -> None:
        """Return never; raise what ended one of the loops: a broker does not live on with a part of it dead."""
        assert self.committing is not None
        done, _ = await asyncio.wait([*self.loops, self.committing], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        raise RuntimeError(f"a loop ended: {[task.get_name() for task in done]}")

    async def shut_down(self) -> None:
        """Stop accepting, let what is under way finish, persist, give up the leases, and end."""
        log.info("broker.draining")
        await self.health.leave()
        self.cluster.is_draining = True
        self.cluster.wake.set()
        for service in (self.publisher, self.subscriber, self.pull):
            service.drain()
        drained = await self._wait_until_idle(self.settings.drain_seconds)
        await self.server.stop(_SERVER_GRACE_SECONDS)
        self.stop.set()
        self.hub.persist.set()
        for loop in self.loops:
            loop.cancel()
        await asyncio.gather(*self.loops, return_exceptions=True)
        if self.committing is not None:
            await self.committing
        try:
            async with asyncio.timeout(_LEAVE_SECONDS_MAX):
                await self.cluster.leave()
        except (StoreUnavailableError, ConfigUnavailableError, TimeoutError):
            # What was not persisted comes again from the next owner, when the leases have passed.
            log.warning("broker.left_without_goodbye", exc_info=True)
        await self.hub.close()
        log.info("broker.stopped", drained=drained)

    async def _wait_until_idle(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.publisher.is_idle and self.subscriber.is_idle and self.committer.is_idle:
                return True
            await asyncio.sleep(0.02)
        return False


@asynccontextmanager
async def open_broker(settings: BrokerSettings) -> AsyncIterator[Broker]:
    """Run a broker in this process for the length of the block.

    Raises PortInUseError, StoreUnavailableError, ConfigUnavailableError or NotMigratedError where it cannot start.
    """
    async with (
        ConfigStore.open(settings.confdb_url.get_secret_value()) as config_store,
        MessageStore.open(
            settings.msgdb_url.get_secret_value(),
            pool_size=settings.store_pool_size,
            prepare_threshold=None if settings.pooled else 5,
            application_name="msgcenter-broker",
        ) as store,
    ):
        feed = SnapshotFeed(config_store, listen=not settings.pooled)
        await feed.load_once()
        queues = QueueMap(store)
        await queues.load()
        async with store.connection() as connection:
            await ensure_ahead(connection)
        broker, loops = _assemble(settings, config_store, store, feed, queues)
        await broker.cluster.step_once()
        await broker.server.start()
        await broker.health.check_once()
        broker.committing = asyncio.create_task(broker.committer.run(broker.stop), name="committer")
        broker.loops = [
            asyncio.create_task(run(broker.stop), name=name)  # type: ignore[arg-type]
            for name, run in loops.items()
        ]
        try:
            yield broker
        finally:
            await broker.shut_down()


def _assemble(
    settings: BrokerSettings, config_store: ConfigStore, store: MessageStore, feed: SnapshotFeed, queues: QueueMap
) -> tuple[Broker, Mapping[str, Callable[[asyncio.Event], object]]]:
    """Make the parts and connect them."""
    broker_id = uuid.uuid4()
    server = grpc_server.make_server(shared_port=settings.shared_port)
    health_servicer = grpc_server.add_health(server)
    address = _listen(server, settings)
    identity = BrokerIdentity(broker_id, address, importlib.metadata.version("msgcenter"))
    cache_bytes = settings.log_cache_bytes_max // 2
    hub = DeliveryHub(LogCache(store, LogCacheConfig(tail_bytes_max=cache_bytes, blocks_bytes_max=cache_bytes)))
    checkpointer = Checkpointer(hub, store, broker_id, settings.checkpoint_seconds)
    cluster = Cluster(
        identity,
        BrokerRegistry(config_store),
        store,
        hub,
        checkpointer,
        queues,
        lambda: feed.current,
        ClusterConfig(lease_seconds=settings.lease_seconds),
    )
    announcer = Announcer(store)
    watched = _WatchedTopics(cluster, feed)

    def on_stored(by_queue: Mapping[int, list[LogMessage]]) -> None:
        hub.stored(by_queue)
        ends = {q: messages[-1].queue_offset + 1 for q, messages in by_queue.items() if watched.includes(messages[0])}
        if ends:
            announcer.announce(ends)

    async def ensure_partitions(_: datetime) -> None:
        async with store.connection() as connection:
            await ensure_ahead(connection)

    appender = Appender(store.connect_dedicated, ensure_partitions, AppendConfig(pooled=settings.pooled))
    committer = Committer(
        appender, queues, on_stored, hub.stored_before, CommitterConfig(waiting_bytes_max=settings.ingest_bytes_max)
    )
    service = ConfigService(config_store, f"broker {address}", QueueTailReader(store))
    registrar = EventCodeRegistrar(service)
    publisher = PublisherService(committer, lambda: feed.current, registrar.learn)
    subscriber = SubscriberService(hub, cluster, lambda: feed.current)
    pull = PullService(hub, cluster, lambda: feed.current)
    directory = DirectoryService(cluster, service, client_registration=settings.client_registration)
    grpc_server.add_services(server, publisher, subscriber, pull, directory)
    listener = Listener(
        store, hub, lambda: _POLL_SECONDS_AMONG_OTHERS if cluster.other_brokers() else _POLL_SECONDS_ALONE
    )
    maintenance = Maintenance(
        store,
        MaintenanceConfig(retention_days=settings.retention_days),
        group_names=lambda: {group.group_id: group.name for group in feed.current.groups.values()},
    )
    health_watch = HealthWatch(health_servicer, store, feed)

    def follow(snapshot: object) -> None:
        hub.follow(feed.current)
        cluster.wake.set()

    follow(feed.current)
    feed.on_change(follow)
    broker = Broker(
        settings, address, feed, hub, committer, checkpointer, cluster, publisher, subscriber, pull, health_watch, server
    )
    loops: dict[str, Callable[[asyncio.Event], object]] = {
        "snapshot": feed.run,
        "ticks": hub.run_ticks,
        "checkpoints": checkpointer.run,
        "cluster": cluster.run,
        "announcer": announcer.run,
        "listener-poll": listener.run_poll,
        "event-codes": registrar.run,
        "maintenance": maintenance.run,
        "health": health_watch.run,
        "housekeeping": lambda stop: _keep_house(stop, pull),
    }
    if not settings.pooled:
        loops["listener"] = listener.run
    return broker, loops


class _WatchedTopics:
    """Which topics' queues other brokers read: worked out again when snapshot or registry changed."""

    def __init__(self, cluster: Cluster, feed: SnapshotFeed) -> None:
        self._cluster = cluster
        self._feed = feed
        self._known: tuple[object, object] | None = None
        self._topic_ids: frozenset[int] = frozenset()

    def includes(self, message: LogMessage) -> bool:
        """Return whether another broker may read the message's queue."""
        now = (self._feed.current, self._cluster.brokers)
        if self._known is None or self._known[0] is not now[0] or self._known[1] is not now[1]:
            self._known = now
            elsewhere = self._cluster.groups_elsewhere()
            self._topic_ids = frozenset(
                subscription.topic_id
                for group in self._feed.current.groups.values()
                if group.group_id in elsewhere
                for subscription in group.subscriptions
            )
        return message.route is not None and message.route.topic_id in self._topic_ids


async def _keep_house(stop: asyncio.Event, pull: PullService) -> None:
    while not stop.is_set():
        pull.forget_idle(time.monotonic())
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


async def run_broker(settings: BrokerSettings, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Run a broker until SIGTERM or SIGINT, then drain and return."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with open_broker(settings) as broker:
        log.info("broker.ready", address=broker.address, listen=settings.listen)
        if on_ready is not None:
            on_ready(broker.address)
        failing = asyncio.ensure_future(broker.wait_until_failed())
        stopping = asyncio.ensure_future(stopped.wait())
        await asyncio.wait((failing, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if failing.done():
            failing.result()
        failing.cancel()


def configure_logging(settings: BrokerSettings) -> None:
    """Set up logging for a broker process: one line per event, to standard error."""
    level = logging.getLevelNamesMapping()[settings.log_level]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if settings.log_json else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)


__all__ = ["Broker", "BrokerSettings", "configure_logging", "open_broker", "run_broker"]
