"""How many rows were written: PostgreSQL's own counters of the message store's tables."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import psycopg

# Partitions count for their parent. The migration's own table is nobody's load.
_COUNT: Final = """
SELECT coalesce(i.inhparent::regclass::text, s.relname), sum(s.n_tup_ins + s.n_tup_upd + s.n_tup_del)::bigint
FROM pg_stat_user_tables s LEFT JOIN pg_inherits i ON i.inhrelid = s.relid
GROUP BY 1
"""
# A session that goes idle reports after ten seconds at the latest.
_QUIET_SECONDS: Final = 11.0
_SECONDS_MAX: Final = 40.0


def read(url: str) -> dict[str, int]:
    """Return rows inserted, updated and deleted so far, by table."""
    with psycopg.connect(url, autocommit=True) as connection:
        return {table: int(rows) for table, rows in connection.execute(_COUNT.encode()).fetchall()}


def read_settled(url: str) -> dict[str, int]:
    """Return the counts once they no longer change: sessions report what they wrote with a delay."""
    counts = read(url)
    deadline = time.monotonic() + _SECONDS_MAX
    quiet_until = time.monotonic() + _QUIET_SECONDS
    while time.monotonic() < min(quiet_until, deadline):
        time.sleep(0.5)
        now = read(url)
        if now != counts:
            counts, quiet_until = now, time.monotonic() + _QUIET_SECONDS
    return counts


def per_message(before: Mapping[str, int], after: Mapping[str, int], messages: int) -> dict[str, float]:
    """Return the rows written per message, by table; tables in which nothing was written are left out."""
    written = {table: after[table] - before.get(table, 0) for table in after}
    return {table: round(rows / messages, 5) for table, rows in sorted(written.items()) if rows}
