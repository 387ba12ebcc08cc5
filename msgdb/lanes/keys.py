"""How statements name lanes: the columns of a lane's key, its owner's guard, and the parameters for many lanes at once.

`array_rows` makes rows of the parameters; statements join them with a table by `same_lane`, or by `owned_lane` where
only the lane's owner may change anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from msgdb.lanes.records import LaneEpoch, LaneKey
from msgdb.postgres.array_rows import integer_array, text_array

LANE_KEY: Final = {"group_id": "bigint", "member": "text", "queue_id": "bigint"}
"""The key's columns and their types, for `array_rows`."""

Parameters = dict[str, Any]


def same_lane(one: str, other: str) -> str:
    """Return the condition that rows of two FROM items are of the same lane; by the primary key of cursor."""
    return " AND ".join(f"{one}.{column} = {other}.{column}" for column in LANE_KEY)


def owned_lane(cursor: str, owned: str) -> str:
    """Return the condition that *cursor* is of a lane of *owned*, and still its owner's: the same epoch, by `owner`."""
    return f"{same_lane(cursor, owned)} AND {cursor}.epoch = {owned}.epoch AND {cursor}.owner = %(owner)s"


def key_columns(keys: Iterable[LaneKey]) -> Parameters:
    """Return the names of lanes as arrays, one for each column of the key."""
    rows = list(keys)
    return {
        "group_id": integer_array([key.group_id for key in rows]),
        "member": text_array([key.member for key in rows]),
        "queue_id": integer_array([key.queue_id for key in rows]),
    }


def owned_columns(owner: UUID, lanes: Sequence[LaneEpoch]) -> Parameters:
    """Return the columns that name lanes with their epochs, and whose they are."""
    return {
        **key_columns(lane.key for lane in lanes),
        "epoch": integer_array([lane.epoch for lane in lanes]),
        "owner": owner,
    }
