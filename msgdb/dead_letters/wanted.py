"""Which dead letters are meant: the conditions that people give, as part of the statements that list, count and choose.

Whoever asks gives the parameters of `conditions` beside its own, and never prepares the statement: a condition that is
not given is NULL, and only a plan made for these very values leaves it out and takes the index of those that are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, Self

from msgbroker.contract.errors import InvalidSettingError

IDS_MAX: Final = 1_000
"""So many dead letters may be named one by one."""
_TEXT_CHARS_MAX: Final = 1_000
_MANY: Final = ("ids", "nameless_ids")

CONDITIONS: Final = """
    (%(namespace)s::text IS NULL OR d.namespace = %(namespace)s)
    AND (%(group_id)s::bigint IS NULL OR d.group_id = %(group_id)s)
    AND (%(group_name)s::text IS NULL OR d.group_name = %(group_name)s
         OR d.group_name = '' AND d.group_id = ANY(%(nameless_ids)s::bigint[]))
    AND (%(not_group_id)s::bigint IS NULL OR d.group_id <> %(not_group_id)s)
    AND (%(ids)s::bigint[] IS NULL OR d.id = ANY(%(ids)s))
    AND (%(topic)s::text IS NULL OR d.topic = %(topic)s)
    AND (%(event_code)s::text IS NULL OR d.event_code = %(event_code)s)
    AND (%(key)s::text IS NULL OR d.key = %(key)s)
    AND (%(why)s::text IS NULL OR d.reason = %(why)s)
    AND (%(error)s::text IS NULL OR position(lower(%(error)s) IN lower(d.last_error)) > 0)
    AND (%(died_from)s::timestamptz IS NULL OR d.died_at >= %(died_from)s)
    AND (%(died_before)s::timestamptz IS NULL OR d.died_at < %(died_before)s)
    AND (%(is_open)s::boolean IS NULL OR %(is_open)s
         = NOT EXISTS (SELECT 1 FROM redrive done WHERE done.dead_letter_id = d.id))
"""
"""The conditions on `dead_letter d`."""

_NEAR: Final = """
(SELECT d.id FROM dead_letter d
 WHERE {bound} AND (%(group_id)s::bigint IS NULL OR d.group_id = %(group_id)s)
   AND (%(ids)s::bigint[] IS NULL OR d.id = ANY(%(ids)s))
 ORDER BY d.id {order} LIMIT %(scanned_max)s) near
"""
AHEAD: Final = _NEAR.format(bound="d.id > %(after_id)s AND d.id <= %(last_id)s", order="ASC")
"""The ids that a step of a job may look at, ascending: by the index on (group_id, id) of a group, else by the key."""
BACK: Final = _NEAR.format(bound="d.id < %(before_id)s", order="DESC")
"""The ids that one page may look at, descending; likewise."""
LETTERS: Final = "CROSS JOIN LATERAL (SELECT * FROM dead_letter one WHERE one.id = near.id OFFSET 0) d"
"""Behind `AHEAD` or `BACK`: each dead letter by the primary key, one after the other in that order. Conditions come
after it, and never lead to another plan; a LIMIT ends the looking as soon as there are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedDeadLetters:
    """Which dead letters are meant; None: whatever it is."""

    namespace: str | None = None
    group_id: int | None = None
    group_name: str | None = None
    """Of a group that is not registered any more: its name then."""
    nameless_ids: tuple[int, ...] | None = None
    """The groups that had that name: what expired after one was deleted was given no name."""
    not_group_id: int | None = None
    """Not of this one: it is registered by that name now."""
    ids: tuple[int, ...] | None = None
    topic: str | None = None
    event_code: str | None = None
    key: str | None = None
    why: str | None = None
    """Why they are dead letters: TIMED_OUT is none, ATTEMPTS_EXHAUSTED is (`msgbroker.engine.verdicts`)."""
    error: str | None = None
    """What their last error says somewhere, in whatever case."""
    died_from: datetime | None = None
    died_before: datetime | None = None
    is_open: bool | None = None
    """Whether nobody has redriven them yet."""

    def __post_init__(self) -> None:
        if self.ids is not None and not 1 <= len(self.ids) <= IDS_MAX:
            raise InvalidSettingError("ids", f"must be 1 to {IDS_MAX:,} of them")
        for name in ("namespace", "group_name", "topic", "event_code", "key", "why", "error"):
            text = getattr(self, name)
            if text is not None and ("\0" in text or len(text) > _TEXT_CHARS_MAX):
                raise InvalidSettingError(name, f"must have {_TEXT_CHARS_MAX:,} characters at most, no NUL")

    @property
    def leaves_out_some(self) -> bool:
        """Whether of those of a group, or with these ids, some may not be meant."""
        return self != WantedDeadLetters(group_id=self.group_id, ids=self.ids)

    def parameters(self) -> dict[str, Any]:
        """Return what the conditions take."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        many = {"ids": self.ids, "nameless_ids": self.nameless_ids}
        return values | {name: None if some is None else list(some) for name, some in many.items()}

    def as_json(self) -> dict[str, Any]:
        """Return what a job keeps of it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in values.items():
            if isinstance(value, datetime):
                values[name] = value.isoformat()
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> Self:
        """Return what `as_json` kept."""
        values = dict(kept)
        for name in ("died_from", "died_before"):
            if name in values:
                values[name] = datetime.fromisoformat(values[name])
        values |= {name: tuple(values[name]) for name in _MANY if name in values}
        return cls(**values)


EVERY_ONE: Final = WantedDeadLetters()
"""All that there are."""
