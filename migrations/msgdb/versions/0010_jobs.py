"""Jobs, what they could not do, and which dead letters were redriven.

Phase: expand. Brokers of earlier versions neither read nor write the tables; where they delete a dead letter, what is
noted of it goes with it.
Locks: `dead_letter`, for a moment, against whoever changes it: the foreign key asks for that. It looks at no row.
Undo: drops the tables. Jobs that were not done are forgotten, and which dead letters were redriven.
"""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0007"
branch_labels = None
depends_on = None

JOB = """
CREATE TABLE job (
    job_id bigint GENERATED ALWAYS AS IDENTITY,
    kind text NOT NULL,
    state text NOT NULL,
    namespace text NOT NULL,
    thing text NOT NULL,
    spec jsonb NOT NULL,
    total bigint NOT NULL,
    done bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    scanned bigint NOT NULL DEFAULT 0,
    rate double precision NOT NULL,
    position jsonb,
    batch jsonb,
    batch_at timestamptz,
    actor text NOT NULL,
    reason text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    owner uuid,
    epoch bigint NOT NULL DEFAULT 0,
    lease_until timestamptz,
    not_before timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries integer NOT NULL DEFAULT 0,
    last_error text,
    CONSTRAINT job_pkey PRIMARY KEY (job_id)
)
WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off)
"""
JOB_TO_DO = "CREATE INDEX job_to_do_idx ON job (job_id) WHERE state = 'RUNNING' OR batch IS NOT NULL"

JOB_FAILURE = """
CREATE TABLE job_failure (
    job_id bigint NOT NULL,
    failure_id bigint GENERATED ALWAYS AS IDENTITY,
    item text NOT NULL,
    error text NOT NULL,
    CONSTRAINT job_failure_pkey PRIMARY KEY (job_id, failure_id),
    CONSTRAINT job_failure_job_id_fkey FOREIGN KEY (job_id) REFERENCES job (job_id) ON DELETE CASCADE
)
"""

REDRIVE = """
CREATE TABLE redrive (
    dead_letter_id bigint NOT NULL,
    job_id bigint NOT NULL,
    redriven_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    queue_id bigint,
    queue_offset bigint,
    CONSTRAINT redrive_pkey PRIMARY KEY (dead_letter_id, job_id),
    CONSTRAINT redrive_dead_letter_id_fkey FOREIGN KEY (dead_letter_id) REFERENCES dead_letter (id) ON DELETE CASCADE
)
"""


def upgrade() -> None:
    """Make the tables."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for statement in (JOB, JOB_TO_DO, JOB_FAILURE, REDRIVE):
        op.execute(statement)


def downgrade() -> None:
    """Drop the tables."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in ("redrive", "job_failure", "job"):
        op.execute(f"DROP TABLE {table}")
