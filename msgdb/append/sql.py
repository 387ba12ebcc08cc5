"""The statements of the append transaction.

BEGIN with its locks and the look at the tails is one simple query, COPY with the INSERT and COMMIT behind it another:
round trips saved, and fewer moments in which a broker that freezes holds the locks with the server waiting for a word.
They are put together from integers, times and hexadecimal digits only, and mean the same whatever the session's
settings are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgdb import names
from msgdb.append.copy_rows import COLUMNS
from msgdb.append.outcome import FrameOutcome, encode
from msgdb.locks import PUBLISHER_LOCK_CLASS, QUEUE_LOCK_CLASS, publisher_lock_key, queue_lock_key
from msgdb.log.ends import last_message, next_offset

COPY_MESSAGES: Final = f"COPY {names.MESSAGE} ({', '.join(COLUMNS)}) FROM STDIN (FORMAT BINARY)"

# Index: the primary keys, backwards, one row per partition. Read in a statement of its own *after* the locks: in READ
# COMMITTED its snapshot is younger than the last commit of whoever held them. It may be older than the statement's lock
# on `message`, and a day may go in between, but none that one of these queues ends in (`msgdb.days.expiry`). The bounds
# on stored_at (what this broker knows to be there) let the executor leave out the partitions of earlier days.
_TAILS: Final = f"""
    SELECT q.queue_id, NULL::uuid AS publisher_id,
           {next_offset("q", "tail")} AS position,
           q.sealed,
           (extract(epoch FROM tail.stored_at) * 1000000)::bigint AS stored_at_us,
           (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS clock_us
      FROM unnest({{queue_ids}}::bigint[]) AS wanted (queue_id)
      JOIN {names.QUEUE} AS q USING (queue_id)
      LEFT JOIN LATERAL {last_message("wanted.queue_id", since="{queues_since}::timestamptz")} AS tail ON true
     UNION ALL
    SELECT NULL, wanted.publisher_id, last.sequence, NULL,
           (extract(epoch FROM last.stored_at) * 1000000)::bigint,
           (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
      FROM unnest({{publisher_ids}}::text[]::uuid[]) AS wanted (publisher_id)
      LEFT JOIN LATERAL (
           SELECT f.sequence, f.stored_at FROM {names.PUBLISHER_FRAME} AS f
            WHERE f.publisher_id = wanted.publisher_id AND f.stored_at >= {{publishers_since}}::timestamptz
            ORDER BY f.sequence DESC LIMIT 1) AS last ON true
"""

# Planned once per session. Executed in the simple query that begins and locks, it is still a statement of its own, with
# a snapshot of its own. Behind a pooler there is no session to keep it.
PREPARE_TAILS: Final = "PREPARE msgcenter_tails (bigint[], timestamptz, text[], timestamptz) AS " + _TAILS.format(
    queue_ids="$1", queues_since="$2", publisher_ids="$3", publishers_since="$4"
)

# The row that answers for a sequence is the first at or above it.
OUTCOME: Final = f"""
    SELECT outcome FROM {names.PUBLISHER_FRAME}
     WHERE publisher_id = %(publisher_id)s AND sequence >= %(sequence)s
     ORDER BY sequence LIMIT 1
"""

# Who holds these append locks and waits for its own client: idle in its transaction, or in the middle of a COPY whose
# data does not come. Whoever does anything else is at work: it may be slow (a slow disk, a standby that is away), and a
# COMMIT that is ended while it waits for a standby is committed here and nowhere else.
FIND_WAITING_HOLDERS: Final = """
    SELECT DISTINCT a.pid, extract(epoch FROM a.xact_start), coalesce(p.bytes_processed, -1),
           a.state = 'idle in transaction',
           extract(epoch FROM clock_timestamp() - greatest(a.state_change, a.query_start))::float8
      FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
      LEFT JOIN pg_stat_progress_copy AS p ON p.pid = a.pid
     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND l.classid = ANY(%(classes)s::bigint[]::oid[]) AND l.objid = ANY(%(keys)s::bigint[]::oid[])
       AND a.pid <> pg_backend_pid() AND a.wait_event_type = 'Client'
"""
# Ends a session that still waits for its client in that transaction: a broker frozen in the middle of COPY is beyond
# the reach of statement_timeout (the server waits for its data), and only this frees the queue.
END_HOLDER: Final = """
    SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a
     WHERE a.pid = %(pid)s AND extract(epoch FROM a.xact_start) = %(xact_start)s AND a.wait_event_type = 'Client'
"""

# By name, whatever the database's default is: at a higher level the snapshot of the first statement would stay, and the
# tails would be read as they were before the locks were taken.
_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
# A record in the write-ahead log, and no row anywhere.
_WRITE_SOMETHING: Final = "SELECT pg_logical_emit_message(true, 'msgcenter', '')"

SESSION_SETTINGS: Final = (
    # The tail must be read from its index even while a new day's partition is empty and a scan of it looks cheap.
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_sort", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
    ("synchronous_commit", "on"),
    # That a standby has not got a commit is said by a warning, and by nothing else.
    ("client_min_messages", "warning"),
)


def session_settings(*, timeout_seconds: float, lock_timeout_seconds: float, local: bool) -> str:
    """Return the SET statements of a committer's session (or, behind a pooler, of each transaction)."""
    settings = [
        *SESSION_SETTINGS,
        ("statement_timeout", str(int(timeout_seconds * 1_000))),
        ("idle_in_transaction_session_timeout", str(int(timeout_seconds * 1_000))),
        ("lock_timeout", str(int(lock_timeout_seconds * 1_000))),
    ]
    scope = "LOCAL " if local else ""
    return "; ".join(f"SET {scope}{name} = '{value}'" for name, value in settings)


def begin(settings: str, publisher_ids: Iterable[bytes], queue_ids: Iterable[int]) -> str:
    """Return BEGIN and the locks: publishers first, then queues, each in order."""
    publishers, queues = _keys(publisher_ids, queue_ids)
    parts = [_BEGIN, settings] if settings else [_BEGIN]
    parts += [_lock(PUBLISHER_LOCK_CLASS, publishers), _lock(QUEUE_LOCK_CLASS, queues)]
    return "; ".join(part for part in parts if part)


def tails(
    queue_ids: Iterable[int],
    queues_since: datetime,
    publisher_ids: Iterable[bytes],
    publishers_since: datetime,
    *,
    prepared: bool,
) -> str:
    """Return the look at the tails: the session's prepared statement, or all of it."""
    queues = f"'{{{','.join(map(str, queue_ids))}}}'"
    publishers = f"'{{{','.join(publisher_id.hex() for publisher_id in publisher_ids)}}}'"
    since = [f"'{time.isoformat()}'" for time in (queues_since, publishers_since)]
    if prepared:
        return f"EXECUTE msgcenter_tails({queues}, {since[0]}, {publishers}, {since[1]})"
    return _TAILS.format(queue_ids=queues, queues_since=since[0], publisher_ids=publishers, publishers_since=since[1])


def begin_trying(settings: str, publisher_ids: Sequence[bytes], queue_ids: Sequence[int]) -> str:
    """Return BEGIN and an attempt at each lock; the last statement's rows are (class, key) of those that were held."""
    publishers, queues = _keys(publisher_ids, queue_ids)
    tries = [(PUBLISHER_LOCK_CLASS, key) for key in publishers] + [(QUEUE_LOCK_CLASS, key) for key in queues]
    values = ", ".join(f"({lock_class}, {key})" for lock_class, key in tries)
    held = f"SELECT c, k FROM (VALUES {values}) AS t (c, k) WHERE NOT pg_try_advisory_xact_lock(c, k)"
    return "; ".join(part for part in (_BEGIN, settings, held) if part)


def commit(outcomes: Mapping[bytes, Sequence[FrameOutcome]], times_us: Mapping[bytes, int], *, repeats: bool) -> str:
    """Return the INSERT of the frames' outcomes, a row per publisher, and COMMIT.

    *repeats*: frames of earlier transactions are answered, too. They are as durable as this transaction only if it
    waits as long as theirs had to: one that writes nothing waits for nobody.
    """
    if not outcomes:
        return f"{_WRITE_SOMETHING}; COMMIT" if repeats else "COMMIT"
    rows = ", ".join(
        f"('{publisher_id.hex()}', {frames[-1].sequence}, "
        f"'epoch'::timestamptz + {times_us[publisher_id]} * interval '1 microsecond', {frames[0].sequence}, "
        f"decode('{encode(frames).hex()}', 'hex'))"
        for publisher_id, frames in outcomes.items()
    )
    return (
        f"INSERT INTO {names.PUBLISHER_FRAME} (publisher_id, sequence, stored_at, first_sequence, outcome)"
        f" VALUES {rows}; COMMIT"
    )


def _keys(publisher_ids: Iterable[bytes], queue_ids: Iterable[int]) -> tuple[list[int], list[int]]:
    return sorted({publisher_lock_key(p) for p in publisher_ids}), sorted({queue_lock_key(q) for q in queue_ids})


def _lock(lock_class: int, keys: Sequence[int]) -> str:
    if not keys:
        return ""
    # One call after the other in the order of the array: no deadlock between brokers.
    return f"SELECT count(pg_advisory_xact_lock({lock_class}, k)) FROM unnest(ARRAY{list(keys)}) AS k"
