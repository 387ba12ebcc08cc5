"""The matching estimate: how many of the messages that a lane is behind by its group will get, about.

What a lane has read and what did not match is settled, often above its cursor: so what is not settled below the last
offset that is was read, and will come. Of the rest the share is taken that matched of what was read lately
(`msgbroker.engine.matching_share`).
"""

from __future__ import annotations

from typing import Final

READ_MIN: Final = 50
"""A share that was learnt from fewer messages says nothing."""


def behind(floor: str, tail: str, settled: str) -> str:
    """Return the FROM item `behind` of a cursor `c`, for a lane that begins at offset *floor* and ends at *tail*.

    It has how many messages between them are not settled, how many lie above all that is settled, and *settled*: how
    many are settled.
    """
    return f"""(
        SELECT greatest(0, {tail} - {floor} - {settled}) AS messages, {settled} AS settled,
               greatest(0, {tail} - greatest({floor}, coalesce(upper(c.acked_ranges), 0))) AS above
    ) behind"""


# Somebody may have settled a single message far above of what was read. So no more counts as read and not settled than
# twice what there would be beside what is settled, by the share.
_READ: Final = """least(
            greatest(0, behind.messages - behind.above),
            2 * behind.settled * c.matching_share / nullif(1 - c.matching_share, 0)
        )"""


def matching(asked: str | None = None) -> str:
    """Return the estimate of a cursor `c` that is `behind`: NULL where nobody knows.

    *asked*: what its group asks for by now; None: whoever reads the estimate compares that.
    """
    is_of_these = "" if asked is None else f" AND c.matching_asked = {asked}"
    return f"""CASE
        WHEN behind.messages = 0 THEN 0
        WHEN c.matching_read >= {READ_MIN}{is_of_these}
        THEN round({_READ} * (1 - c.matching_share) + behind.messages * c.matching_share)::bigint
    END"""
