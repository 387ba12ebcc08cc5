"""The one way to change the configuration, shared by command line, API, brokers and tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from confdb.brokers import BrokerRegistry, LiveBroker
from confdb.features import Feature
from confdb.loading import read_version
from confdb.services.audit import Audit
from confdb.services.changes import Changes, Rehearsal
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

    def __init__(
        self,
        store: ConfigStore,
        actor: str,
        tails: QueueTails | None = None,
        *,
        reason: str = "",
        rehearsal: Rehearsal | None = None,
    ) -> None:
        """Make the services. *actor* goes to the audit trail, and *reason*: why all that is done with them is done.

        *tails* is needed to subscribe, and to wait until a change is active. With a *rehearsal* nothing is changed in
        confdb: it tells what would be. *tails* must be such that change nothing, either.
        """
        changes = self._changes = Changes(store, actor, reason, rehearsal=rehearsal)
        self._store = store
        self._registry = BrokerRegistry(store)
        self._tails = tails
        self.namespaces = Namespaces(store, changes)
        feature_checks = self._feature_checks = FeatureChecks(tails)
        self.topics = Topics(store, changes, feature_checks)
        self.event_codes = EventCodes(store, changes)
        self.publisher_groups = PublisherGroups(store, changes)
        self.subscriber_groups = SubscriberGroups(store, changes, feature_checks)
        self.subscriptions = Subscriptions(store, changes, tails, feature_checks)
        self.stress = Stress(store, changes, feature_checks)
        self.audit = Audit(store)

    async def list_brokers(self) -> list[LiveBroker]:
        """Return the live brokers, by address."""
        return await self._registry.list_live()

    async def check_everywhere(self, feature: Feature) -> None:
        """Raise FeatureNotEverywhereError, with the brokers, unless every one that is running understands *feature*.

        For what is switched on elsewhere, and is no row of the configuration.
        """
        permission = await self._feature_checks.ask_for([feature])
        async with self._changes.begin() as change:
            await permission.check(change)

    async def wait_until_active(
        self, version: int, timeout_seconds: float = ACTIVE_TIMEOUT_SECONDS, *, group: str = ""
    ) -> None:
        """Return once every broker that serves routes by *version* or a later one.

        A broker that is cut off from confdb learns from the message store that it is behind: it has no lanes by then,
        and takes in nothing that is published to it more than three seconds later.

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
        silent = await self._silent_behind(self._tails, live, version)
        # Where nobody else is left to serve, those that are cut off go on, and the change waits for them.
        if not behind and (live or not silent):
            await self._raise_mark(self._tails, version)
            # After the mark: who claims a lane from now on sees it before serving the lane.
            silent = await self._silent_behind(self._tails, live, version)
        return behind + silent

    async def _silent_behind(self, tails: QueueTails, live: Sequence[LiveBroker], version: int) -> list[str]:
        """Return brokers that are cut off from here, hold lanes, and route by an older snapshot."""
        silent = await tails.lane_owners() - {broker.broker_id for broker in live}
        known = await self._registry.versions(silent)
        return [
            f"broker {broker_id} (holds lanes, and has not been heard of)"
            for broker_id in sorted(silent)
            if known.get(broker_id, 0) < version
        ]

    async def _raise_mark(self, tails: QueueTails, version: int) -> None:
        """Let brokers that cannot hear of *version* here learn of it from the message store."""
        mark = await tails.config_mark()
        # Read after the mark: what is beyond it is of a configuration that was replaced, by a backup perhaps.
        is_lost = mark[1] > await read_version(self._store)
        if is_lost or mark[1] < version:
            await tails.raise_config_mark(version, mark if is_lost else None)


def _described(live: LiveBroker, version: int) -> str:
    return f"broker {live.address} (version {live.snapshot_version} of {version})"
