"""What each kind of job goes by, as its row keeps it: worked out when it begins, and never anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Self

from msgdb.dead_letters.wanted import WantedDeadLetters


class Place(NamedTuple):
    """Where a message is: its primary key."""

    queue_id: int
    queue_offset: int
    stored_at_us: int


class AskedFor(NamedTuple):
    """What a subscription asked for when the job began."""

    event_code: str
    """`*`: every one."""
    expression: str | None


class AskedBefore(NamedTuple):
    """What another subscription of the group asked for, from an offset of each queue on: its messages came already."""

    event_code: str
    expression: str | None
    start_offsets: Mapping[int, int]
    """By queue; a queue that is not named is younger, and counts from 0."""


@dataclass(frozen=True, slots=True)
class Edit:
    """What of a dead letter's message is other than it was, where it is redriven; None: it stays."""

    body_base64: str | None = None
    headers: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class RedriveSpec:
    """Which dead letters are delivered again."""

    wanted: WantedDeadLetters
    last_id: int
    """None that came later."""
    edit: Edit | None = None
    """Of a single one."""

    def as_json(self) -> dict[str, Any]:
        """Return what the job's row keeps."""
        edit = None if self.edit is None else asdict(self.edit)
        return {"wanted": self.wanted.as_json(), "last_id": self.last_id, "edit": edit}

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> Self:
        """Return what `as_json` kept."""
        edit = None if kept["edit"] is None else Edit(**kept["edit"])
        return cls(WantedDeadLetters.of_json(kept["wanted"]), kept["last_id"], edit)


@dataclass(frozen=True, slots=True)
class PurgeSpec:
    """Which dead letters are deleted."""

    wanted: WantedDeadLetters
    last_id: int
    """None that came later."""
    include_unarchived: bool = False
    """Those that must be archived and are not, too."""

    def as_json(self) -> dict[str, Any]:
        """Return what the job's row keeps."""
        return {
            "wanted": self.wanted.as_json(),
            "last_id": self.last_id,
            "include_unarchived": self.include_unarchived,
        }

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> Self:
        """Return what `as_json` kept."""
        return cls(WantedDeadLetters.of_json(kept["wanted"]), kept["last_id"], kept["include_unarchived"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySpec:
    """What of the log is delivered again, and to whom."""

    group_id: int
    history_id: str
    """The history of the store that offsets are of: in another one they are other messages."""
    ranges: tuple[tuple[int, int, int], ...] = ()
    """Of each queue its id, the first offset, and the one after the last."""
    places: tuple[Place, ...] = ()
    """Or single messages, instead."""
    event_code: str | None = None
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Only messages with these."""
    asked: tuple[AskedFor, ...] | None = None
    """Only what the group's subscriptions asked for; None: whatever it is."""
    unless: tuple[AskedBefore, ...] = ()
    """Nothing of what these asked for."""

    def as_json(self) -> dict[str, Any]:
        """Return what the job's row keeps."""
        unless = [[code, expression, [*starts.items()]] for code, expression, starts in self.unless]
        return {**asdict(replace(self, unless=())), "headers": dict(self.headers), "unless": unless}

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> Self:
        """Return what `as_json` kept."""
        return cls(
            **{
                **kept,
                "ranges": tuple((queue_id, first, end) for queue_id, first, end in kept["ranges"]),
                "places": tuple(Place(*place) for place in kept["places"]),
                "asked": None if kept["asked"] is None else tuple(AskedFor(*each) for each in kept["asked"]),
                "unless": tuple(
                    AskedBefore(code, expression, dict(starts)) for code, expression, starts in kept["unless"]
                ),
            }
        )
