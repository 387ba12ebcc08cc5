"""Makes what a broker does beside storing and delivering: operators' acts, figures, and the store's days.

Like `parts`, which made what is given here: none of it runs yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgbroker.server.cluster.cluster import Cluster
from msgbroker.server.deliver.hub import DeliveryHub
from msgbroker.server.figures.backlog_looks import BacklogLooks
from msgbroker.server.figures.figures import Figures
from msgbroker.server.figures.usage_writer import Storing, UsageWriter
from msgbroker.server.jobs.purging import Purging
from msgbroker.server.jobs.receivers import Receivers
from msgbroker.server.jobs.redriving import Redriving
from msgbroker.server.jobs.replaying import Replaying
from msgbroker.server.jobs.runner import JobRunner, JobRunnerConfig
from msgbroker.server.jobs.storing_again import Republisher
from msgbroker.server.jobs.trying import TrialRunner
from msgbroker.server.jobs.work import JobWork
from msgbroker.server.parts import Foundation
from msgbroker.server.publish.committer import Committer
from msgbroker.server.requests import BrokerRequests, PublisherStream
from msgdb import names
from msgdb.days.maintenance import Maintenance, MaintenanceConfig
from msgdb.jobs.records import JobKind

_DAY_SECONDS: Final = 86_400.0
_HOUR_SECONDS: Final = 3_600.0


def make_requests(
    base: Foundation, hub: DeliveryHub, publishers: Callable[[], Mapping[str, PublisherStream]]
) -> BrokerRequests:
    """Make what carries out what operators ask of this very broker."""
    return BrokerRequests(store=base.stores.messages, hub=hub, publishers=publishers, broker_id=base.identity.broker_id)


def make_jobs(base: Foundation, committer: Committer) -> JobRunner:
    """Make what carries out operators' jobs; brokers take turns at them."""
    store = base.stores.messages
    republisher, receivers = Republisher(committer), Receivers(base.stores.feed.get)
    # Frames go by whole days, and not before the last of one is old enough.
    frame_seconds = base.settings.frame_days * _DAY_SECONDS - _HOUR_SECONDS
    works: dict[str, JobWork] = {
        JobKind.REDRIVE: Redriving(store, republisher, receivers, frame_seconds),
        JobKind.PURGE: Purging(store),
        JobKind.REPLAY: Replaying(store, republisher, receivers, frame_seconds),
    }
    config = JobRunnerConfig(lease_seconds=base.settings.lease_seconds)
    return JobRunner(store=store, owner=base.identity.broker_id, works=works, config=config)


def make_trials(base: Foundation, hub: DeliveryHub, cluster: Cluster) -> TrialRunner:
    """Make what hands single instances here what somebody wants them to try."""
    return TrialRunner(
        store=base.stores.messages,
        owner=base.identity.broker_id,
        hub=hub,
        snapshot=base.stores.feed.get,
        check_current=cluster.cut_off.check_current,
    )


def make_figures(base: Foundation, hub: DeliveryHub, committer: Committer) -> Figures:
    """Make what writes figures."""
    storing = Storing(lambda: committer.in_flight_seconds, lambda: committer.counters.unknown)
    broker_id, address = base.identity.broker_id, base.identity.address
    store = base.stores.messages
    return Figures(
        UsageWriter(hub.usage, store, broker_id=broker_id, broker=address, storing=storing),
        BacklogLooks(store, broker_id, base.stores.feed.get),
    )


def make_maintenance(base: Foundation) -> Maintenance:
    """Make what looks after msgdb's days; brokers take turns at it."""
    feed, settings = base.stores.feed, base.settings
    retention_days = {
        names.MESSAGE: settings.retention_days,
        names.PUBLISHER_FRAME: settings.frame_days,
        names.TRACE_EVENT: settings.retention_days,
        names.DEAD_LETTER: settings.dead_letter_days,
    }
    return Maintenance(
        base.stores.messages,
        MaintenanceConfig(retention_days=retention_days),
        group_names=lambda: {group.group_id: group.name for group in feed.current.groups.values()},
    )
