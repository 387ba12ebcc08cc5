"""Reading on a replica: only after it has replayed what the primary had when the read was planned."""

from __future__ import annotations

import time
from typing import Final

from msgbroker.contract.errors import InvalidSettingError, ReplicaBehindError
from spark_etl.source.pages import Connection, connect, fetch_rows

_LOOK_SECONDS: Final = 0.05

# What is visible was flushed before: the position of the flush is enough, and unlike that of the insert it is one that
# a replica reaches though nothing more is written.
_PRIMARY: Final = """
SELECT pg_current_wal_flush_lsn()::text AS position, system_identifier::text AS system FROM pg_control_system()
"""
_REPLICA: Final = """
SELECT pg_is_in_recovery() AS is_replica, system_identifier::text AS system,
       pg_last_wal_replay_lsn() >= '{position}'::pg_lsn AS has_replayed, pg_last_wal_replay_lsn()::text AS replayed
FROM pg_control_system()
"""


def wait_until_replayed(primary: Connection, replica_url: str, wait_seconds: float) -> None:
    """Wait until the replica has all that can be seen on the primary now.

    Raises ReplicaBehindError after *wait_seconds*, and InvalidSettingError where it is no replica of this primary.
    """
    (wanted,) = fetch_rows(primary, _PRIMARY)
    deadline = time.monotonic() + wait_seconds
    with connect(replica_url) as replica:
        while True:
            (row,) = fetch_rows(replica, _REPLICA.format(position=wanted["position"]))
            if row["system"] != wanted["system"]:
                raise InvalidSettingError("replica_url", "leads to another cluster than the primary's")
            if not row["is_replica"]:
                raise InvalidSettingError("replica_url", "leads to a server that is no standby (any more)")
            if row["has_replayed"]:
                return
            if time.monotonic() >= deadline:
                behind = f"it has replayed {row['replayed']}, and the primary was at {wanted['position']}"
                raise ReplicaBehindError(wait_seconds, behind)
            time.sleep(_LOOK_SECONDS)
