"""What an instance is told beside its messages, in our words: the front door that it came through encodes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from confdb.routes import GroupRoute
from msgbroker.engine.missing_types import MissingType
from msgbroker.engine.verdicts import Held
from msgbroker.server.deliver.outgoing import Outlet


@dataclass(frozen=True, slots=True)
class Attached:
    """It belongs to its group now, whose limits are these; or these limits have changed."""

    unsettled_max: int
    ack_timeout_seconds: float
    """How long it may take to answer what is handed out from now on."""
    handle_seconds_max: float
    broker_id: str = ""
    """The broker that serves it. This, and what follows, is told once, when it attaches."""
    missing: Sequence[MissingType] = ()
    """What it has handlers for and does not get as things are."""
    careful_seconds: float = 0.0
    """For so long it shall begin with one message at a time: another instance went away without a word lately."""

    @classmethod
    def to(cls, route: GroupRoute) -> Attached:
        """Return what is told of the group's limits whenever they change."""
        return cls(route.unsettled_max, route.ack_timeout_seconds, route.handle_seconds_max)


@dataclass(frozen=True, slots=True)
class LaneRevoked:
    """What it holds of a lane is given to others now: what it has not started it shall drop."""

    queue_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TakenBack:
    """It had begun with these messages and did not answer in time: it shall stop, others are given them."""

    held: Sequence[Held]


@dataclass(frozen=True, slots=True)
class Relocation:
    """It is served better at one of these brokers: it shall settle what it holds and subscribe there."""

    addresses: Sequence[str]


@dataclass(frozen=True, slots=True)
class Draining:
    """It is served here no longer: it shall settle what it holds and subscribe elsewhere."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Its requests up to the one with this number are carried out."""

    number: int


Notice: TypeAlias = Attached | LaneRevoked | TakenBack | Relocation | Draining | Confirmed

EncodeNotice: TypeAlias = Callable[[Notice], bytes]
"""Returns a notice as a response that may be joined with others."""


class WaitingNotices:
    """What one instance is to be told with the next response; it counts as outgoing while it waits."""

    def __init__(self, encode: EncodeNotice | None, outlet: Outlet) -> None:
        self._encode = encode
        """None where there is no way to tell it anything: its calls are answered with messages alone."""
        self._outlet = outlet
        self._encoded: list[bytes] = []
        self._confirmed = 0

    def add(self, notice: Notice) -> None:
        """Tell it something, if there is a way."""
        if self._encode is not None:
            encoded = self._encode(notice)
            self._encoded.append(encoded)
            self._outlet.hold(len(encoded))

    def confirm(self, number: int) -> None:
        """Tell it that its requests up to that one are carried out. The last number says it for all before."""
        self._confirmed = number

    def take(self) -> list[bytes]:
        """Return what waits, encoded; it waits no longer."""
        encoded, self._encoded = self._encoded, []
        if encoded:
            self._outlet.hold(-sum(map(len, encoded)))
        if self._confirmed and self._encode is not None:
            encoded.append(self._encode(Confirmed(self._confirmed)))
            self._confirmed = 0
        return encoded
