"""The one way to change the configuration, shared by command line, API, brokers and tests."""

from __future__ import annotations

import asyncio
from typing import Final

from confdb.brokers import BrokerRegistry, LiveBroker
from confdb.services.audit import Audit
from confdb.services.changes import Changes
from confdb.services.event_codes import EventCodes
from confdb.services.feature_checks import FeatureChecks
from confdb.services.namespaces import Namespaces
from confdb.services.publisher_groups import PublisherGroups
from confdb.services.stress import Stress
from confdb.services.subscriber_groups import SubscriberGroups
from confdb.services.subscriptions import QueueTails, Subscriptions
from confdb.services.topics import Topics
from confdb.store import ConfigStore
from msgbroker.contract.errors import SubscriptionNotActiveError

ACTIVE_TIMEOUT_SECONDS: Final = 10.0
_ACTIVE_POLL_SECONDS: Final = 0.1


class ConfigService:
    """Everything that can be done with the configuration, in the name of one actor."""

    def __init__(self, store: ConfigStore, actor: str, tails: QueueTails | None = None) -> None:
        """Make the services. *tails* is needed to subscribe; *actor* goes to the audit trail."""
        changes = Changes(store, actor)
        self._registry = BrokerRegistry(store)
        self._tails = tails
        self.namespaces = Namespaces(store, changes)
        feature_checks = FeatureChecks(tails)
        self.topics = Topics(store, changes, feature_checks)
        self.event_codes = EventCodes(store, changes)
        self.publisher_groups = PublisherGroups(store, changes)
        self.subscriber_groups = SubscriberGroups(store, changes, feature_checks)
        self.subscriptions = Subscriptions(store, changes, tails)
        self.stress = Stress(store, changes)
        self.audit = Audit(store)

    async def list_brokers(self) -> list[LiveBroker]:
        """Return the live brokers, by address."""
        return await self._registry.list_live()

    async def wait_until_active(
        self, version: int, timeout_seconds: float = ACTIVE_TIMEOUT_SECONDS, *, group: str = ""
    ) -> None:
        """Return once every broker that serves routes by *version* or a later one.

        Raises SubscriptionNotActiveError, naming the brokers that do not, after *timeout_seconds*. Without a broker
        there is nothing to wait for: each routes by the newest version from its start.
        """
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        while behind := await self._brokers_behind(version):
            if asyncio.get_running_loop().time() >= deadline:
                raise SubscriptionNotActiveError(group, ", ".join(behind))
            await asyncio.sleep(_ACTIVE_POLL_SECONDS)

    async def _brokers_behind(self, version: int) -> list[str]:
        """Return, for people, the brokers that may still deliver by an older version."""
        live = await self.list_brokers()
        behind = [_described(broker, version) for broker in live if broker.snapshot_version < version]
        if self._tails is None:
            return behind
        # A broker that is cut off from here keeps its lanes, and routes by its last snapshot.
        silent = await self._tails.lane_owners() - {broker.broker_id for broker in live}
        known = await self._registry.versions(silent)
        return behind + [
            f"broker {broker_id} (holds lanes, and has not been heard of)"
            for broker_id in sorted(silent)
            if known.get(broker_id, 0) < version
        ]


def _described(live: LiveBroker, version: int) -> str:
    return f"broker {live.address} (version {live.snapshot_version} of {version})"
