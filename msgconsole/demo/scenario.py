"""What `msgcenter demo` plays: its groups, its messages, and the counts that must come out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

PAID: Final = "EC_PAID"
REFUNDED: Final = "EC_REFUNDED"
STRESS_HEADER: Final = "x-stress-test"
RETRY_SCHEDULE_SECONDS: Final = (0.2, 0.4)
ATTEMPTS_MAX: Final = len(RETRY_SCHEDULE_SECONDS) + 1

_BIG_IN_HANGZHOU: Final = 'headers.region == "hz" && int(headers.amount) > 100'


@dataclass(frozen=True, slots=True)
class DemoMessage:
    """A trade, as the demo publishes it."""

    order: int
    event_code: str
    region: str
    amount: int
    stress: bool

    @property
    def headers(self) -> dict[str, str]:
        """What HEADER subscriptions and stress rules look at."""
        headers = {"region": self.region, "amount": str(self.amount)}
        return headers | {STRESS_HEADER: "true"} if self.stress else headers


@dataclass(frozen=True, slots=True)
class DemoGroup:
    """A subscriber group, what it wants, and how its handler behaves."""

    name: str
    event_code: str
    expression: str | None
    selects: Callable[[DemoMessage], bool]
    """What the subscription selects, in Python, to count by."""
    takes_stress: bool = False
    """Whether the group is on the stress whitelist."""
    failures: Mapping[int, int] = field(default_factory=dict)
    """How many attempts fail, by order."""
    rejects: frozenset[int] = frozenset()
    """The orders that the group rejects."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages of a group were handled, retried, and became dead letters."""

    handled: int
    stress: int
    """How many of `handled` were stress messages."""
    retried: int
    """How many attempts there were after first ones."""
    dead_letters: int


GROUPS: Final = (
    # Two orders need patience, one is hopeless.
    DemoGroup(
        "POINTS", PAID, None, lambda message: message.event_code == PAID, failures={3: 1, 7: 2, 13: ATTEMPTS_MAX}
    ),
    DemoGroup(
        "HANGZHOU",
        "*",
        _BIG_IN_HANGZHOU,
        lambda message: message.region == "hz" and message.amount > 100,
    ),
    DemoGroup("SHADOW", "*", None, lambda _: True, takes_stress=True),
    DemoGroup("LEDGER", "*", None, lambda _: True, rejects=frozenset({5})),
)


def make_messages() -> list[DemoMessage]:
    """Return 30 trades and 10 of stress traffic, of both event codes and regions."""
    return [
        DemoMessage(
            order=order,
            event_code=REFUNDED if order % 3 == 0 and order > 13 else PAID,
            region="hz" if order % 2 == 0 else "sh",
            amount=order * 10,
            stress=order >= 30,
        )
        for order in range(40)
    ]


def expected_counts(group: DemoGroup, messages: list[DemoMessage]) -> Counts:
    """Return what must become of *messages* in *group*."""
    selected = [message for message in messages if group.selects(message)]
    delivered = [message for message in selected if group.takes_stress or not message.stress]
    failures = {message.order: group.failures.get(message.order, 0) for message in delivered}
    dead = [
        message for message in delivered if message.order in group.rejects or failures[message.order] >= ATTEMPTS_MAX
    ]
    handled = [message for message in delivered if message not in dead]
    return Counts(
        handled=len(handled),
        stress=sum(message.stress for message in handled),
        retried=sum(min(count, ATTEMPTS_MAX - 1) for count in failures.values()),
        dead_letters=len(dead),
    )
