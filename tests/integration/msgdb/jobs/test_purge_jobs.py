"""Which dead letters may have been purged is told by all jobs that deleted some, however many there were."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from psycopg.types.json import Jsonb

from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs.purge_jobs import list_purge_jobs
from msgdb.jobs.specs import PurgeSpec
from msgdb.postgres.connections import Connection

_BEGUN = """
INSERT INTO job (kind, state, namespace, thing, spec, total, done, rate, actor, reason, created_at)
SELECT kind, 'DONE', 'default', '', %(spec)s, 1, done, 1, 'ada', 'why', clock_timestamp() - age * interval '1 day'
FROM (VALUES ('PURGE', 1, 0), ('PURGE', 0, 0), ('REDRIVE', 1, 0), ('PURGE', 1, 9)) said (kind, done, age),
     generate_series(1, %(count)s)
"""


async def test_all_that_deleted_some_since_then_are_listed(conn: Connection) -> None:
    spec = PurgeSpec(WantedDeadLetters(topic="TP_TRADE"), 0).as_json()
    await conn.execute(_BEGUN, {"spec": Jsonb(spec), "count": 1_100})

    found = await list_purge_jobs(conn, datetime.now(UTC) - timedelta(days=2))
    all_of_them = await list_purge_jobs(conn, datetime.now(UTC) - timedelta(days=20))

    assert (len(found), len(all_of_them)) == (1_100, 2_200)
    ids = [job.job_id for job in all_of_them]
    assert ids == sorted(set(ids), reverse=True)
    assert {job.wanted.topic for job in all_of_them} == {"TP_TRADE"}
