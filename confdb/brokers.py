"""The registry of brokers: each writes its own row, and reads who else is alive, in one statement a beat."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from confdb.models import Broker
from confdb.store import ConfigStore

LIVE_SECONDS: Final = 5
"""A broker whose last heartbeat is older is not counted on."""
FORGOTTEN_SECONDS: Final = 3_600
"""How long the row of a broker that died is kept, for people who look for it."""


@dataclass(frozen=True, slots=True)
class BrokerBeat:
    """What a broker tells the registry with each heartbeat."""

    broker_id: UUID
    address: str
    """host:port for clients and other brokers."""
    host: str
    pid: int
    snapshot_version: int
    """The version of the configuration that the broker routes by."""
    draining: bool = False
    groups: Mapping[int, int] = field(default_factory=dict)
    """How many instances are connected, by group_id."""
    process_version: str = ""
    features: frozenset[str] = frozenset()
    """Those of `confdb.features` that it understands."""
    withheld: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """The topics of which it serves a group nothing, whatever its features, by group_id: of the groups it has instances
    of, or has sent one of on."""


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A broker whose heartbeat is younger than LIVE_SECONDS."""

    broker_id: UUID
    address: str
    host: str
    pid: int
    snapshot_version: int
    draining: bool
    groups: Mapping[int, int]
    process_version: str
    started_at: datetime
    heartbeat_at: datetime
    features: frozenset[str] = frozenset()
    withheld: Mapping[int, frozenset[int]] = field(default_factory=dict)

    def serves(self, group_id: int, topic_id: int, requires: frozenset[str]) -> bool:
        """Return whether it serves the topic to the group, which *requires* these features."""
        return requires <= self.features and topic_id not in self.withheld.get(group_id, ())


# Those of JSON as text: what another broker wrote may be beyond what its reader takes, and that is found out here.
_COLUMNS: Final = (
    Broker.broker_id,
    Broker.address,
    Broker.host,
    Broker.pid,
    Broker.snapshot_version,
    Broker.draining,
    sa.cast(Broker.groups, sa.Text).label("groups"),
    Broker.process_version,
    Broker.started_at,
    Broker.heartbeat_at,
    Broker.features,
    sa.cast(Broker.withheld, sa.Text).label("withheld"),
)


def _age_over(seconds: int) -> sa.ColumnElement[bool]:
    # The database's clock on both sides.
    return Broker.heartbeat_at < sa.func.now() - sa.literal_column(f"interval '{seconds} seconds'")


def _is_ahead() -> sa.ColumnElement[bool]:
    return Broker.heartbeat_at > sa.func.now() + sa.literal_column(f"interval '{LIVE_SECONDS} seconds'")


def _beat_statement() -> sa.CompoundSelect[*tuple[Any, ...]]:
    own = sa.bindparam("own_broker_id", type_=sa.Uuid)
    arriving = insert(Broker).values(
        broker_id=own,
        **{name: sa.bindparam(f"own_{name}") for name in ("address", "host", "pid", "process_version")},
        **{name: sa.bindparam(f"own_{name}") for name in ("snapshot_version", "draining", "groups")},
        **{name: sa.bindparam(f"own_{name}") for name in ("features", "withheld")},
    )
    changing = ("address", "snapshot_version", "draining", "groups", "features", "withheld")
    beat = (
        arriving.on_conflict_do_update(
            index_elements=[Broker.broker_id],
            set_={name: arriving.excluded[name] for name in changing} | {"heartbeat_at": sa.func.now()},
        )
        .returning(*_COLUMNS)
        .cte("beat")
    )
    # SKIP LOCKED: two brokers that prune at once must neither wait for each other nor deadlock.
    forgotten = sa.select(Broker.broker_id).where(_age_over(FORGOTTEN_SECONDS), Broker.broker_id != own)
    # From before the clock was set back: a heartbeat that lies ahead would be young for as long as that was.
    ahead = sa.select(Broker.broker_id).where(_is_ahead(), Broker.broker_id != own).with_for_update(skip_locked=True)
    brought_back = sa.update(Broker).where(Broker.broker_id.in_(ahead)).values(heartbeat_at=sa.func.now())
    pruned = sa.delete(Broker).where(Broker.broker_id.in_(forgotten.with_for_update(skip_locked=True))).cte("pruned")
    # The statement's own snapshot is from before its beat: the own row comes from `beat`, the others from the table.
    others = sa.select(*_COLUMNS).where(~_age_over(LIVE_SECONDS), Broker.broker_id != own)
    return sa.union_all(sa.select(*beat.c), others).add_cte(pruned, brought_back.cte("brought_back"))


# One statement, one round trip, a few rows: every broker does this twice a second.
BEAT: Final = _beat_statement()
LIST_LIVE: Final = sa.select(*_COLUMNS).where(~_age_over(LIVE_SECONDS)).order_by(Broker.address, Broker.broker_id)
LEAVE: Final = sa.delete(Broker).where(Broker.broker_id == sa.bindparam("own_broker_id", type_=sa.Uuid))


class BrokerRegistry:
    """The brokers there are: each writes its own row, and reads which others are live."""

    def __init__(self, store: ConfigStore) -> None:
        self._store = store

    async def beat(self, beat: BrokerBeat) -> list[LiveBroker]:
        """Write this broker's row and return all live brokers, this one included, by address.

        What another one wrote before the clock was set back is as if it was written now: if that one is dead, it is
        live for LIVE_SECONDS more.
        """
        parameters = {
            "own_broker_id": beat.broker_id,
            "own_address": beat.address,
            "own_host": beat.host,
            "own_pid": beat.pid,
            "own_process_version": beat.process_version,
            "own_snapshot_version": beat.snapshot_version,
            "own_draining": beat.draining,
            "own_groups": {str(group_id): instances for group_id, instances in beat.groups.items()},
            "own_features": sorted(beat.features),
            "own_withheld": {str(group_id): sorted(topic_ids) for group_id, topic_ids in beat.withheld.items()},
        }
        async with self._store.single_statement() as connection:
            rows = (await connection.execute(BEAT, parameters)).all()
        return sorted((_live(row) for row in rows), key=lambda live: (live.address, live.broker_id))

    async def list_live(self) -> list[LiveBroker]:
        """Return all live brokers, by address."""
        async with self._store.single_statement() as connection:
            rows = (await connection.execute(LIST_LIVE)).all()
        return [_live(row) for row in rows]

    async def versions(self, broker_ids: Iterable[UUID]) -> dict[UUID, int]:
        """Return the version that each of these brokers said last that it routes by, alive or not."""
        wanted = list(broker_ids)
        if not wanted:
            return {}
        statement = sa.select(Broker.broker_id, Broker.snapshot_version).where(Broker.broker_id.in_(wanted))
        async with self._store.single_statement() as connection:
            return {row.broker_id: row.snapshot_version for row in await connection.execute(statement)}

    async def leave(self, broker_id: UUID) -> None:
        """Forget a broker that has stopped in good order. A repeat changes nothing."""
        async with self._store.single_statement() as connection:
            await connection.execute(LEAVE, {"own_broker_id": broker_id})


def _live(row: sa.Row[*tuple[Any, ...]]) -> LiveBroker:
    return LiveBroker(
        **{
            **row._asdict(),
            "address": row.address or "",
            "groups": _instances_of(row.groups),
            "features": frozenset(feature for feature in row.features or () if isinstance(feature, str)),
            "withheld": _withheld_of(row.withheld),
        }
    )


# A broker of a later version may write these in another form. What cannot be read says nothing, to every broker of this
# version alike: they agree, and none ends over what another one says of itself.


def _instances_of(groups: str | None) -> dict[int, int]:
    """Return the connected instances by group_id."""
    return {
        group_id: instances
        for group_id, instances in _by_id(groups)
        if type(instances) is int and 0 < instances <= _INSTANCES_MAX
    }


def _withheld_of(withheld: str | None) -> dict[int, frozenset[int]]:
    """Return the topics that are withheld by group_id."""
    return {
        group_id: frozenset(topic_id for topic_id in topic_ids if type(topic_id) is int)
        for group_id, topic_ids in _by_id(withheld)
        if isinstance(topic_ids, list)
    }


def _by_id(text: str | None) -> Iterable[tuple[int, Any]]:
    try:
        entries = json.loads(text or "null")
    except (ValueError, RecursionError):
        return
    if isinstance(entries, dict):
        for name, value in entries.items():
            if name.isascii() and name.isdigit() and len(name) <= _ID_CHARS_MAX:
                yield int(name), value


_INSTANCES_MAX: Final = 1_000_000
_ID_CHARS_MAX: Final = 19
