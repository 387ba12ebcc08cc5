"""Whether a feature may be used: this version must carry it out, and every broker that is running understand it.

A change first asks, outside of its transaction, and then checks, inside of it, with the answer:

    permission = await self._features.ask(Aspect.GROUP_ORDER, order)
    async with self._changes.begin() as change:
        await permission.check(change)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID

import sqlalchemy as sa

from confdb import features
from confdb.brokers import FORGOTTEN_SECONDS
from confdb.features import Aspect, feature_of
from confdb.models import Broker
from confdb.services.changes import Change
from msgbroker.contract.errors import FeatureNotEverywhereError, KindNotSupportedError

COUNTED_SECONDS: Final = 60
"""A broker that was heard of so lately may be running still, cut off from the registry. Longer than it is taken to be
live: a broker that publishes to topics holds nothing else by which it could be known."""

_SETTINGS: Final = {
    Aspect.TOPIC_KIND: ("topic kind", "NORMAL"),
    Aspect.GROUP_ORDER: ("group order", "NONE"),
    Aspect.GROUP_MODE: ("group mode", "SHARED"),
    Aspect.STRESS_OPERATOR: ("stress operator", "EQUALS, PREFIX, EXISTS"),
}


class LaneOwners(Protocol):
    """Tells which brokers hold lanes by msgdb, whatever the registry knows of them."""

    async def lane_owners(self) -> set[UUID]:
        """Return the brokers that hold lanes at the moment, whether or not the registry hears of them."""


def _since(seconds: int) -> sa.ColumnElement[bool]:
    # By the database's clock; or by the last that was heard of any, where confdb itself was away until now.
    newest = sa.select(sa.func.max(Broker.heartbeat_at)).scalar_subquery()
    lately = sa.func.least(sa.func.now(), newest) - sa.literal_column(f"interval '{seconds} seconds'")
    forgotten = sa.func.now() - sa.literal_column(f"interval '{FORGOTTEN_SECONDS} seconds'")
    return sa.and_(Broker.heartbeat_at >= lately, Broker.heartbeat_at >= forgotten)


# A few rows. The registry is read in the transaction of the change: whoever is in it by then is asked.
_RUNNING: Final = sa.select(Broker.broker_id, Broker.address, Broker.process_version, Broker.features).where(
    sa.or_(_since(COUNTED_SECONDS), Broker.broker_id.in_(sa.bindparam("owners", expanding=True)))
)


class FeatureChecks:
    """Asks who is running, for the services that let features be used."""

    def __init__(self, owners: LaneOwners | None) -> None:
        self._owners = owners

    async def ask(self, *wanted: tuple[Aspect, StrEnum]) -> Permission:
        """Return what is to be checked inside of the change.

        Raises KindNotSupportedError where this version does not carry out what is *wanted*.
        """
        asked = [(aspect, value, feature_of(aspect, value)) for aspect, value in wanted]
        for aspect, value, feature in asked:
            if feature is not None and feature not in features.UNDERSTOOD:
                thing, supported = _SETTINGS[aspect]
                raise KindNotSupportedError(thing, value, supported)
        return await self.ask_for(feature for _, _, feature in asked if feature is not None)

    async def ask_for(self, wanted: Iterable[str]) -> Permission:
        """Return what is to be checked inside of the change, for features this version carries out."""
        needed = frozenset(wanted)
        if not needed:
            return Permission(needed, frozenset())
        if self._owners is None:
            raise ValueError("a feature needs to know which brokers hold lanes: give ConfigService a QueueTails")
        # Outside of the change: no lock is held while another database is asked.
        return Permission(needed, frozenset(await self._owners.lane_owners()))


@dataclass(frozen=True, slots=True)
class Permission:
    """What a change needs before it may commit: its features, understood by every broker that is running."""

    features: frozenset[str]
    lane_owners: frozenset[UUID]
    """The brokers that held lanes: one that is cut off from confdb is running all the same."""

    async def check(self, change: Change) -> None:
        """Raise FeatureNotEverywhereError, with the feature and the brokers, unless all understand it."""
        if not self.features:
            return
        rows = (await change.session.execute(_RUNNING, {"owners": sorted(self.lane_owners)})).all()
        running = {row.broker_id: row for row in rows}
        for feature in sorted(self.features):
            lacking = [
                f"broker {row.address} (version {row.process_version or 'unknown'})"
                for row in sorted(running.values(), key=lambda row: (row.address, row.broker_id))
                if feature not in row.features
            ]
            # Not in the registry at all: what it understands nobody knows.
            silent = sorted(self.lane_owners - running.keys())
            lacking += [f"broker {broker_id} (holds lanes, and has not been heard of)" for broker_id in silent]
            if lacking:
                raise FeatureNotEverywhereError(feature, lacking)
