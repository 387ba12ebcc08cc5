"""Figures of each minute: what brokers counted, how far groups were behind, and how far each broker has counted.

Phase: expand. Brokers of earlier versions neither read nor write the tables, and make no days of them: those of brokers
of this version do, whoever does maintenance.
Locks: none that anyone waits for: everything is new.
Undo: drops the tables. What was counted is forgotten.
"""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0014"
branch_labels = None
depends_on = None

USAGE_MINUTE = """
CREATE TABLE usage_minute (
    minute timestamptz NOT NULL,
    topic_id bigint NOT NULL,
    group_id bigint NOT NULL,
    event_code text NOT NULL,
    stress boolean NOT NULL,
    broker_id uuid NOT NULL,
    published bigint NOT NULL,
    redriven bigint NOT NULL,
    replayed bigint NOT NULL,
    delivered bigint NOT NULL,
    retried bigint NOT NULL,
    dead_lettered bigint NOT NULL,
    size_bytes bigint NOT NULL,
    latency bigint[] NOT NULL,
    lacks boolean NOT NULL DEFAULT false,
    CONSTRAINT usage_minute_pkey PRIMARY KEY (minute, topic_id, group_id, event_code, stress, broker_id)
) PARTITION BY RANGE (minute)
"""

USAGE_BROKER = """
CREATE TABLE usage_broker (
    broker_id uuid NOT NULL,
    broker text NOT NULL,
    counted_until timestamptz NOT NULL,
    has_ended boolean NOT NULL,
    looked_at timestamptz,
    CONSTRAINT usage_broker_pkey PRIMARY KEY (broker_id)
)
WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off)
"""

BACKLOG_MINUTE = """
CREATE TABLE backlog_minute (
    group_id bigint NOT NULL,
    queue_id bigint NOT NULL,
    minute timestamptz NOT NULL,
    topic_id bigint NOT NULL,
    behind bigint NOT NULL,
    behind_max bigint NOT NULL,
    redeliveries bigint NOT NULL,
    oldest_at timestamptz,
    late_since timestamptz,
    CONSTRAINT backlog_minute_pkey PRIMARY KEY (group_id, queue_id, minute)
) PARTITION BY RANGE (minute)
"""

INDEXES = (
    "CREATE INDEX usage_minute_topic_id_minute_idx ON usage_minute (topic_id, minute)",
    "CREATE INDEX usage_minute_group_id_minute_idx ON usage_minute (group_id, minute)",
    "CREATE INDEX backlog_minute_minute_idx ON backlog_minute (minute)",
)

# Yesterday's, because a minute may be written after midnight; later days are made by the maintenance loop.
FIRST_DAYS = """
DO $$
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
    first_day date;
    parent text;
BEGIN
    FOREACH parent IN ARRAY ARRAY['usage_minute', 'backlog_minute'] LOOP
        FOR days IN -1..3 LOOP
            first_day := today + days;
            EXECUTE format(
                'CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                parent || '_p' || to_char(first_day, 'YYYYMMDD'), parent,
                first_day::timestamp AT TIME ZONE 'UTC', (first_day + 1)::timestamp AT TIME ZONE 'UTC'
            );
        END LOOP;
    END LOOP;
END
$$
"""


def upgrade() -> None:
    """Make the tables, their indexes, and the partitions of five days."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for statement in (USAGE_MINUTE, USAGE_BROKER, BACKLOG_MINUTE, *INDEXES, FIRST_DAYS):
        op.execute(statement)


def downgrade() -> None:
    """Drop the tables."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in ("backlog_minute", "usage_broker", "usage_minute"):
        op.execute(f"DROP TABLE {table}")
