"""The map of a broker: its parts, who is told what, and which loops run.

The parts are made in `parts`, where each is given what it calls. Here is what goes the other way: whoever finds
something out tells those that are connected to it in the functions `_on_…`, and nobody else.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Mapping

import grpc

from confdb.routes import Snapshot
from msgbroker.contract.errors import ConfigOutdatedError
from msgbroker.server import clock
from msgbroker.server.alarms.not_understood import alarms_of, process_version
from msgbroker.server.broker import Broker, BrokerLoop
from msgbroker.server.cluster.cluster import Cluster
from msgbroker.server.cluster.heartbeats import BrokerIdentity
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.edge import grpc_server
from msgbroker.server.forgetting import Forgetting
from msgbroker.server.log.message import LogMessage
from msgbroker.server.parts import (
    Announcements,
    Delivery,
    Door,
    Foundation,
    Publishing,
    Stores,
    TellStored,
    lay_foundation,
    make_announcements,
    make_cluster,
    make_config_service,
    make_delivery,
    make_door,
    make_publishing,
    make_trace,
)
from msgbroker.server.report import Report
from msgbroker.server.settings import BrokerSettings
from msgbroker.server.side_parts import make_figures, make_jobs, make_maintenance, make_requests, make_trials
from msgdb.append.outcome import FrameOutcome
from msgdb.reports.alarms import AlarmKind


def assemble(settings: BrokerSettings, stores: Stores) -> Broker:
    """Make a broker; nothing runs yet. Raises PortInUseError."""
    server = grpc_server.make_server(shared_port=settings.shared_port)
    address = _listen(server, settings)
    base = lay_foundation(
        settings, stores, BrokerIdentity(uuid.uuid4(), address, process_version(), stores.feed.understood)
    )
    trace = make_trace(base)
    delivery = make_delivery(base, trace.tracing)
    hub = delivery.hub
    cluster = make_cluster(base, delivery)
    requests = make_requests(base, hub, lambda: door.grpc.publisher.connections_by_name)
    announcements = make_announcements(base, hub, cluster.heartbeats, requests)
    config = make_config_service(base)
    publishing = make_publishing(
        base, hub, config, on_stored=_on_stored(hub, announcements), on_stored_before=_on_stored_before(hub)
    )
    figures = make_figures(base, hub, publishing.committer)
    jobs = make_jobs(base, publishing.committer)
    door = make_door(base, server, hub=hub, cluster=cluster, publishing=publishing, config=config)

    _on_snapshot(base, hub=hub, cluster=cluster, door=door)
    _on_history(base, publishing=publishing, cluster=cluster, hub=hub)
    _on_behind(base, hub=hub, cluster=cluster)
    # A write has ended that kept this broker from saying that it obeys the new configuration.
    hub.outgoing.on_obeyed(cluster.heartbeats.wake.set)

    return Broker(
        address=address,
        drain_seconds=settings.drain_seconds,
        feed=stores.feed,
        hub=hub,
        committer=publishing.committer,
        checkpointer=delivery.checkpointer,
        cluster=cluster,
        grpc_door=door.grpc,
        alarms=base.board,
        failures=delivery.failures,
        figures=figures,
        jobs=jobs,
        trace=trace.writer,
        loops=[
            *_loops(
                base, delivery=delivery, cluster=cluster, announcements=announcements, publishing=publishing, door=door
            ),
            BrokerLoop("jobs", jobs.run, is_dispensable=True),
            BrokerLoop("trace", trace.writer.run, finishes_its_round=True, is_dispensable=True),
            BrokerLoop("trials", make_trials(base, hub, cluster).run, is_dispensable=True),
            BrokerLoop("requests", requests.run, is_dispensable=True),
            BrokerLoop("usage", figures.usage.run, is_dispensable=True),
            BrokerLoop("backlog", figures.backlog.run, is_dispensable=True),
        ],
        cut_connections=stores.cut,
    )


# --- who is told what -------------------------------------------------------------------------------------------------


def _on_stored(hub: DeliveryHub, announcements: Announcements) -> TellStored:
    """Return what hears of each commit: lanes here first, then the brokers that read the same queues."""
    announcer, watched = announcements.announcer, announcements.watched

    def tell(by_queue: Mapping[int, list[LogMessage]]) -> None:
        hub.stored(by_queue)
        hub.tracing.stored(by_queue)
        hub.usage.stored(by_queue)
        ends = {q: messages[-1].queue_offset + 1 for q, messages in by_queue.items() if watched.includes(messages[0])}
        if ends:
            announcer.announce(ends)

    return tell


def _on_stored_before(hub: DeliveryHub) -> Callable[[FrameOutcome], None]:
    """Return what hears of frames that turn out to be stored."""

    def tell(outcome: FrameOutcome) -> None:
        hub.stored_before(outcome)
        hub.usage.stored_before(outcome)

    return tell


def _on_snapshot(base: Foundation, *, hub: DeliveryHub, cluster: Cluster, door: Door) -> None:
    """Let everybody follow each new configuration in the moment that it is taken over, beginning with this one."""

    def follow(snapshot: Snapshot) -> None:
        hub.follow(snapshot)
        hub.tracing.follow(snapshot)
        if cluster.cut_off.is_behind:
            # It is newer than what was known here, and not as new as what may be active.
            hub.refuse_all(ConfigOutdatedError(snapshot.version))
        for topic_id in base.topics_aside.units - hub.topics.keys():
            # Deleted: nothing of it will ever work again.
            base.topics_aside.worked(topic_id)
        door.grpc.publisher.follow()
        base.board.replace(AlarmKind.NOT_UNDERSTOOD, alarms_of(snapshot))
        cluster.look_around()

    follow(base.stores.feed.current)
    base.stores.feed.on_change(follow)


def _on_history(base: Foundation, *, publishing: Publishing, cluster: Cluster, hub: DeliveryHub) -> None:
    """Let everybody who remembers something of the log forget it, where msgdb goes on with another history."""
    store = base.stores.messages
    store.on_new_history(lambda _: base.stores.queues.forget())
    store.on_new_history(lambda _: publishing.committer.forget_log())
    store.on_new_history(cluster.ownership.follow_history)
    # Last: what was closed just now noted that it is.
    store.on_new_history(lambda _: hub.tracing.buffer.forget())
    # What was counted of the lost end is counted still.
    store.on_new_history(lambda _: hub.usage.doubt_lately())


def _on_behind(base: Foundation, *, hub: DeliveryHub, cluster: Cluster) -> None:
    """Serve nobody while the configuration that may be active is not known here, and everybody again afterwards."""

    def serve_nobody(because: ConfigOutdatedError) -> None:
        hub.refuse_all(because)
        cluster.look_around()

    def serve_again() -> None:
        hub.follow(base.stores.feed.current)
        cluster.look_around()

    cluster.cut_off.on_behind(serve_nobody)
    cluster.cut_off.on_current(serve_again)


# --- what runs --------------------------------------------------------------------------------------------------------


def _loops(
    base: Foundation,
    *,
    delivery: Delivery,
    cluster: Cluster,
    announcements: Announcements,
    publishing: Publishing,
    door: Door,
) -> list[BrokerLoop]:
    """Return all that runs beside the calls of clients. Operators meet the names in alarms."""
    hub = delivery.hub
    parts = (lambda: door.grpc.pull.forget_idle(clock.now()), base.topics_aside.forget_untried)
    loops = [
        BrokerLoop("committer", publishing.committer.run, finishes_its_round=True),
        BrokerLoop("checkpoints", delivery.checkpointer.run, finishes_its_round=True),
        BrokerLoop("cluster", cluster.ownership.run, finishes_its_round=True),
        BrokerLoop("beats", cluster.heartbeats.run, finishes_its_round=True),
        BrokerLoop("snapshot", base.stores.feed.run),
        BrokerLoop("ticks", hub.run_ticks),
        BrokerLoop("delivery", hub.tasks.run),
        BrokerLoop("outgoing", hub.outgoing.run),
        BrokerLoop("expressions", delivery.dear.run),
        BrokerLoop("announcer", announcements.announcer.run, is_dispensable=True),
        BrokerLoop("event-codes", publishing.registrar.run, is_dispensable=True),
        BrokerLoop("maintenance", make_maintenance(base).run, is_dispensable=True),
        BrokerLoop("health", door.grpc.health.run, is_dispensable=True),
        BrokerLoop("cut-off", cluster.cut_off.run, is_dispensable=True),
        BrokerLoop("counters", Report(hub, publishing.committer, base.board).run, is_dispensable=True),
        BrokerLoop("alarms", base.board.run, is_dispensable=True),
        BrokerLoop("expression-failures", delivery.failures.run, is_dispensable=True),
        BrokerLoop("overload", door.overload.run, is_dispensable=True),
        BrokerLoop("forgetting", Forgetting(parts).run, is_dispensable=True),
        BrokerLoop("listener-poll", announcements.ends.run_poll, is_dispensable=True),
    ]
    if not base.settings.pooled:
        # A transaction pooler in between cannot carry LISTEN: there the poll finds it all, and nothing is in doubt.
        loops += [
            BrokerLoop("listener", announcements.listener.run, is_dispensable=True),
            BrokerLoop("listener-doubts", announcements.ends.run_doubts, is_dispensable=True),
        ]
    return loops


# --- where it listens -------------------------------------------------------------------------------------------------


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
