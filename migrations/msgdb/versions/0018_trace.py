"""What happened to messages, kept by days.

Phase: expand. Brokers of earlier versions neither read nor write it, and make no days of it: brokers of this one make
the day that they miss.
Locks: none that anyone waits for: everything is new.
Undo: drops the table, and what was traced.
"""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

TRACE_EVENT = """
CREATE TABLE trace_event (
    at timestamptz NOT NULL,
    kind text NOT NULL,
    broker text NOT NULL,
    queue_id bigint NOT NULL,
    first_offset bigint NOT NULL,
    last_offset bigint NOT NULL,
    group_id bigint,
    instance text,
    attempt integer,
    handed_at timestamptz,
    detail text,
    left_out bigint
) PARTITION BY RANGE (at)
"""

INDEXES = (
    "CREATE INDEX trace_event_queue_id_first_offset_idx ON trace_event (queue_id, first_offset)",
    "CREATE INDEX trace_event_left_out_idx ON trace_event (at) WHERE kind = 'LEFT_OUT'",
)

# Today's and those to come, as maintenance makes them; yesterday's, because what is written may be of then.
FIRST_DAYS = """
DO $$
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
BEGIN
    FOR days IN -1..3 LOOP
        EXECUTE format('CREATE TABLE %1$I PARTITION OF trace_event FOR VALUES FROM (%2$L) TO (%3$L)',
                       'trace_event_p' || to_char(today + days, 'YYYYMMDD'),
                       today + days || ' 00:00:00+00', today + days + 1 || ' 00:00:00+00');
    END LOOP;
END
$$
"""


def upgrade() -> None:
    """Make the table, its indexes, and the partitions of the first days."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for statement in (TRACE_EVENT, *INDEXES, FIRST_DAYS):
        op.execute(statement)


def downgrade() -> None:
    """Drop the table."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE trace_event")
