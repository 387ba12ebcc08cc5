"""The registry of brokers, made to look as it would after a while."""

from __future__ import annotations

from uuid import UUID

import psycopg


def age(database_url: str, broker_id: UUID, seconds: int) -> None:
    """Let the broker's last heartbeat have been so long ago."""
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE broker SET heartbeat_at = now() - make_interval(secs => %s) WHERE broker_id = %s",
            [seconds, broker_id],
        )
