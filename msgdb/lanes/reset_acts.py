"""What is written down of a reset, or of a lane's being put back, and what of that concerns one message later.

The rows of a lane tell where it is. That it skipped a message, or came to it a second time, only the act tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg.types.json import Jsonb

from msgdb.lanes.resets import LanePlace, skipped_by
from msgdb.postgres.connections import Connection

RANGES_MAX: Final = 1_000
"""So many ranges of skipped offsets an act keeps of each queue; of more it says that there were more."""
_ACTS_MAX: Final = 10_000
"""So many acts that concern one message are told, the newest."""
RESET: Final = "group.reset"
"""The action of a reset's act."""
PUT_BACK: Final = "lanes.put_back"
"""The action of the act that lanes were put back, as their log had lost its end."""
_ANY_OFFSET: Final = 2**63 - 1
"""A lane that is put back is beyond its log: wherever that was, nothing behind its new place counts as settled."""

# A year of what people typed is read in no time. An act has what it did to each queue of a group, which may be much:
# those of other queues are left where they lie, and of this queue's the skipped ranges are looked at, by the primary
# key, of those that concern the message. What was done before a group was put back behind it the last time does not:
# the message was read anew. So it makes no difference how often a group was reset in all.
_LIST: Final = f"""
WITH of_queue AS MATERIALIZED (
    SELECT act_id, at, (detail ->> 'group_id')::bigint AS group_id, (each ->> 1)::bigint AS from_offset,
           (each ->> 2)::bigint AS to_offset, at >= %(since)s AS is_since
    FROM act CROSS JOIN LATERAL jsonb_array_elements(detail -> 'queues') each
    WHERE action = '{RESET}' AND detail ? 'group_id' AND detail @> %(of_queue)s
      AND (each ->> 0)::bigint = %(queue_id)s
), put_back AS MATERIALIZED (
    SELECT group_id, max(act_id) AS act_id FROM of_queue
    WHERE is_since AND to_offset < from_offset AND to_offset <= %(queue_offset)s GROUP BY group_id
), concerning AS MATERIALIZED (
    SELECT o.* FROM of_queue o LEFT JOIN put_back b USING (group_id)
    WHERE o.is_since AND o.act_id >= coalesce(b.act_id, 0)
    UNION ALL
    (SELECT DISTINCT ON (group_id) o.* FROM of_queue o WHERE NOT is_since ORDER BY group_id, act_id DESC)
    ORDER BY act_id DESC LIMIT %(limit)s
)
SELECT c.act_id, c.at, noted.actor, noted.reason, c.group_id, c.from_offset, c.to_offset, noted.subscription_id,
       noted.skips
FROM concerning c
CROSS JOIN LATERAL (
    SELECT a.actor, a.reason, (a.detail ->> 'subscription_id')::bigint AS subscription_id,
           CASE WHEN EXISTS (
               SELECT FROM jsonb_array_elements(skipped.ranges) one
               WHERE (one ->> 0)::bigint <= %(queue_offset)s AND (one ->> 1)::bigint > %(queue_offset)s
           ) THEN true
           WHEN a.detail -> 'cut' @> to_jsonb(%(queue_id)s::bigint) AND %(queue_offset)s < c.to_offset
                AND (skipped.ranges -> -1 ->> 1)::bigint <= %(queue_offset)s THEN NULL
           ELSE false END AS skips
    FROM act a
    CROSS JOIN LATERAL (SELECT a.detail -> 'skipped_ranges' -> %(queue_id)s::bigint::text AS ranges) skipped
    WHERE a.act_id = c.act_id OFFSET 0
) noted
ORDER BY c.act_id DESC
"""
# By the primary key, backwards, as people list acts.
_LIST_PUT_BACK: Final = f"""
SELECT act_id, at, actor, reason, detail FROM act
WHERE action = '{PUT_BACK}' AND detail @> %(of_queue)s ORDER BY act_id DESC LIMIT %(limit)s
"""


class LaneResetAct(NamedTuple):
    """A reset of one lane, as far as it concerns one offset; or that a broker put it back, as its log lost its end."""

    act_id: int
    at: datetime
    actor: str
    reason: str
    group_id: int
    from_offset: int
    """Below it all was settled, or waited for another attempt."""
    to_offset: int
    subscription_id: int | None
    """Up to this one subscriptions count from there on, though they may start later; None: that stays as it was."""
    skips: bool | None
    """Whether it skipped the offset; None: that is not known any more."""

    @property
    def goes_back(self) -> bool:
        """Whether all from its new place on came again."""
        return self.to_offset < self.from_offset

    @property
    def said(self) -> str:
        """What happened to the group, for people."""
        return "reset" if self.subscription_id is not None else "put back, as the log had lost its end"


class ResetActs(NamedTuple):
    """The resets of one queue's lanes that concern one message there, the oldest first."""

    acts: list[LaneResetAct]
    """Since a time: from the last one on that put its group back behind the message."""
    before: dict[int, LaneResetAct]
    """By group, the last one before that time: where a log has lost its end, new messages lie where it put the lane."""
    is_complete: bool
    """Whether those are all; else they are the newest."""


def detail_of(
    group_id: int, subscription_id: int, targets: Mapping[int, int], places: Mapping[int, LanePlace]
) -> dict[str, Any]:
    """Return what an act keeps of where a reset found a group's lanes, and where it put them."""
    skipped = {queue_id: skipped_by(places[queue_id], to_offset) for queue_id, to_offset in targets.items()}
    return {
        "group_id": group_id,
        "subscription_id": subscription_id,
        "queues": [[queue_id, places[queue_id].acked_offset, to_offset] for queue_id, to_offset in targets.items()],
        "skipped_ranges": {str(queue_id): ranges[:RANGES_MAX] for queue_id, ranges in skipped.items() if ranges},
        "cut": [queue_id for queue_id, ranges in skipped.items() if len(ranges) > RANGES_MAX],
    }


def detail_of_put_back(lanes: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
    """Return what an act keeps of lanes that were put back: group, queue, and the offset from which on they read."""
    return {"queue_ids": sorted({queue_id for _, queue_id, _ in lanes}), "lanes": lanes}


async def list_put_back_acts(conn: Connection, queue_id: int) -> list[LaneResetAct]:
    """Return how lanes of this queue were put back, where the log had lost its end, the oldest first."""
    of_queue = Jsonb({"queue_ids": [queue_id]})
    cursor = await conn.execute(_LIST_PUT_BACK, {"of_queue": of_queue, "limit": _ACTS_MAX})
    return [
        LaneResetAct(act_id, at, actor, reason, group_id, _ANY_OFFSET, to_offset, None, skips=False)
        for act_id, at, actor, reason, detail in reversed(await cursor.fetchall())
        for group_id, put_back_id, to_offset in detail["lanes"]
        if put_back_id == queue_id
    ]


async def list_reset_acts(conn: Connection, queue_id: int, queue_offset: int, since: datetime) -> ResetActs:
    """Return the resets since then of any group's lane of this queue that decide what became of the message there."""
    parameters = {
        "of_queue": Jsonb({"queues": [[queue_id]]}),
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "since": since,
        "limit": _ACTS_MAX + 1,
    }
    rows = await (await conn.execute(_LIST, parameters)).fetchall()
    found = [LaneResetAct._make(row) for row in reversed(rows[:_ACTS_MAX])]
    before = {act.group_id: act for act in found if act.at < since}
    is_complete = len(rows) <= _ACTS_MAX
    return ResetActs([act for act in found if act.at >= since], before, is_complete)
