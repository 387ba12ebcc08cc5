"""Features: what goes beyond the first version, by name, and which of it this version carries out.

A row of the configuration names the features that a broker must understand to serve it; a broker names those it
understands in its row of the registry. A kind, order or mode is a feature, too, and its name follows from the value: so
brokers of any two versions agree on what a row requires, though one of them has never heard of the value. What a broker
does not understand it does not serve (`confdb.route_rows`), and no service makes what a live broker does not understand
(`confdb.services.feature_checks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeVar

_VALUE_CHARS_MAX: Final = 64

ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


class Feature(StrEnum):
    """What brokers of some version carry out, and those of an earlier one do not. Stored: never renamed."""

    TOPIC_KIND_ORDERED = "topic-kind-ordered"
    TOPIC_KIND_SCHEDULED = "topic-kind-scheduled"
    TOPIC_KIND_TRANSACTIONAL = "topic-kind-transactional"
    GROUP_ORDER_KEY = "group-order-key"
    GROUP_ORDER_GLOBAL = "group-order-global"
    GROUP_MODE_BROADCAST = "group-mode-broadcast"
    ARCHIVE = "archive"
    """Days of the message store that must be archived before they are dropped: of no row of the configuration."""
    RESETS = "resets"
    """Groups that are put back to before their subscriptions' starts: of no row of the configuration."""
    SUBSCRIPTION_PAUSED = "subscription-paused"
    """What only a paused subscription wants waits on the shelf."""
    JOBS = "jobs"
    """Messages that are stored once more for a single group, whatever its subscriptions are: of no row either."""


UNDERSTOOD: frozenset[str] = frozenset({Feature.ARCHIVE, Feature.JOBS, Feature.RESETS, Feature.SUBSCRIPTION_PAUSED})
"""The features that this version carries out. A broker reads it once, as it starts; services at each change."""


class Aspect(StrEnum):
    """A choice of which a later version may have more: what the names of its features begin with."""

    TOPIC_KIND = "topic-kind"
    GROUP_ORDER = "group-order"
    GROUP_MODE = "group-mode"
    SUBSCRIPTION_MODE = "subscription-mode"
    STRESS_OPERATOR = "stress-operator"


_OF_THE_FIRST_VERSION: Final[Mapping[Aspect, frozenset[str]]] = MappingProxyType(
    {
        Aspect.TOPIC_KIND: frozenset({"NORMAL"}),
        Aspect.GROUP_ORDER: frozenset({"NONE"}),
        Aspect.GROUP_MODE: frozenset({"SHARED"}),
        Aspect.SUBSCRIPTION_MODE: frozenset({"DIRECT", "HEADER"}),
        Aspect.STRESS_OPERATOR: frozenset({"EQUALS", "PREFIX", "EXISTS"}),
    }
)


def feature_of(aspect: Aspect, value: str) -> str | None:
    """Return the feature that *value* is; None: every version carries it out."""
    if value in _OF_THE_FIRST_VERSION[aspect]:
        return None
    return f"{aspect}-{value[:_VALUE_CHARS_MAX].lower()}"


def requires_with(requires: Iterable[str], aspect: Aspect, value: str) -> list[str]:
    """Return what a row requires once *aspect* of it is *value*; what it requires besides stays."""
    kept = [feature for feature in requires if not str(feature).startswith(f"{aspect}-")]
    feature = feature_of(aspect, value)
    return kept if feature is None else [*kept, feature]


def known_or_text(kind: type[ChoiceT], value: str) -> ChoiceT | str:
    """Return *value* as one of *kind*, or as it is where this version does not know it."""
    try:
        return kind(value)
    except ValueError:
        return value
