"""Of which namespace acts and trials are.

Of acts of before it is filled in where a row says it: a job's row, what dead letters were wanted, or the messages of a
queue. Others stay without: acts on the center as a whole (`archive.`, `lanes.`), and those of which no row says it.

Phase: expand. Commands and brokers of earlier versions write none: what they do meanwhile is shown to those alone who
may see all namespaces.
Locks: `act` and `trial`, for a moment, exclusively: no row is looked at. What is filled in changes rows that nobody
else does, a year of what people typed at most. The indexes are made concurrently.
Undo: drops the columns and the indexes. What versions of before wrote is filled in again by the next upgrade; of the
ends of connections nothing says it then.
"""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

# A queue's messages are of one namespace, and its number is given to no other. The queues of a reset, of a replay, of a
# message, of a trial: each is of the group's namespace.
FILL_IN = """
WITH bare AS MATERIALIZED (
    SELECT a.act_id, coalesce(j.namespace, a.detail #>> '{wanted,namespace}', d.namespace) AS namespace,
           ARRAY(
               SELECT (each ->> 0)::bigint
               FROM jsonb_array_elements(coalesce(a.detail -> 'queues', a.detail -> 'ranges', t.places)) each
               UNION SELECT (a.detail ->> 'queue_id')::bigint
           ) AS queue_ids
    FROM act a
    LEFT JOIN job j ON j.job_id = (a.detail ->> 'job_id')::bigint
    LEFT JOIN trial t ON t.trial_id = (a.detail ->> 'trial_id')::bigint
    LEFT JOIN dead_letter d ON d.id = (a.detail ->> 'dead_letter_id')::bigint
    WHERE a.namespace IS NULL
      AND (starts_with(a.action, 'job.')
           OR a.action IN ('group.reset', 'message.skip', 'message.retry-now', 'message.try'))
), of_queue AS MATERIALIZED (
    SELECT q.queue_id, m.namespace
    FROM (SELECT DISTINCT unnest(queue_ids) AS queue_id FROM bare WHERE namespace IS NULL) q
    CROSS JOIN LATERAL (
        SELECT namespace FROM message WHERE queue_id = q.queue_id ORDER BY queue_offset LIMIT 1
    ) m
), told AS (
    SELECT act_id, coalesce(
        namespace, (SELECT q.namespace FROM of_queue q WHERE q.queue_id = ANY(bare.queue_ids) LIMIT 1)
    ) AS namespace
    FROM bare
)
UPDATE act a SET namespace = told.namespace FROM told WHERE a.act_id = told.act_id AND told.namespace IS NOT NULL
"""
INDEXES = {
    "act_of_namespace_idx": "CREATE INDEX CONCURRENTLY act_of_namespace_idx ON act (namespace, act_id)",
    "job_of_namespace_idx": "CREATE INDEX CONCURRENTLY job_of_namespace_idx ON job (namespace, job_id)",
}


def upgrade() -> None:
    """Add the columns, fill them in, then make the indexes: each is nothing new where it was done before."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE act ADD COLUMN IF NOT EXISTS namespace text")
    op.execute("ALTER TABLE trial ADD COLUMN IF NOT EXISTS namespace text")
    with op.get_context().autocommit_block():
        op.execute(FILL_IN)
        # What an interrupted build left behind is there, and invalid. Whoever holds a snapshot is waited for.
        op.execute("SET lock_timeout = '60s'")
        for name, statement in INDEXES.items():
            op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
            op.execute(statement)
        op.execute("RESET lock_timeout")


def downgrade() -> None:
    """Drop the indexes and the columns."""
    with op.get_context().autocommit_block():
        for name in INDEXES:
            op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE act DROP COLUMN namespace")
    op.execute("ALTER TABLE trial DROP COLUMN namespace")
