"""Which broker owns a lane: weighted rendezvous hashing, over the brokers that understand what it requires.

Every broker computes it alone from the same list of live brokers, whatever it understands itself. When the list or a
weight changes, lanes move only from or to the brokers that changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from uuid import UUID

from msgdb.lanes.records import LaneKey


@dataclass(frozen=True, slots=True)
class BrokerWeight:
    """A live broker, and how many instances of the lane's group are connected to it."""

    broker_id: UUID
    instances: int
    features: frozenset[str] = frozenset()
    """What it understands: it owns only lanes that require nothing else."""


def able(brokers: Iterable[BrokerWeight], requires: frozenset[str]) -> list[BrokerWeight]:
    """Return those that understand what serving a lane *requires*."""
    return [broker for broker in brokers if requires <= broker.features]


def owner_of(lane_key: LaneKey, brokers: Iterable[BrokerWeight]) -> UUID | None:
    """Return the broker that should own the lane; None where no broker has an instance of its group."""
    candidates = [broker for broker in brokers if broker.instances > 0]
    if not candidates:
        return None
    name = f"{lane_key.group_id}/{lane_key.queue_id}/{lane_key.member}".encode()
    # The id decides between equal scores, so that all brokers agree.
    return max(candidates, key=lambda broker: (_score(name, broker), broker.broker_id.bytes)).broker_id


def _score(name: bytes, broker: BrokerWeight) -> float:
    digest = blake2b(name, key=broker.broker_id.bytes, digest_size=8).digest()
    # Strictly between 0 and 1: 53 bits are what a float holds.
    uniform = ((int.from_bytes(digest) >> 11) + 0.5) / (1 << 53)
    return -broker.instances / math.log(uniform)
