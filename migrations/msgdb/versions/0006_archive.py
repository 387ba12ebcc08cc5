"""Archived before dropped: what must be archived, which days are, by which runs; and what operators did, and why.

While a policy stands for messages, the start of a queue is raised only for a day whose drop was permitted: a broker of
an earlier version, which knows nothing of the archive, fails at the first thing that it does to a day.

Phase: expand. Brokers of earlier versions neither write nor read the tables.
Locks: `queue`, for a moment, against whoever changes it. Appends do not.
Undo: drops it all. What was archived stays where it lies; that it must be before it is dropped is forgotten.
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

ARCHIVE_POLICY = """
CREATE TABLE archive_policy (
    table_name text NOT NULL,
    required_from date NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT archive_policy_pkey PRIMARY KEY (table_name)
)
"""

ARCHIVE_DAY = """
CREATE TABLE archive_day (
    table_name text NOT NULL,
    day date NOT NULL,
    state text NOT NULL,
    run_id uuid,
    reason text,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT archive_day_pkey PRIMARY KEY (table_name, day)
)
"""

ARCHIVE_RUN = """
CREATE TABLE archive_run (
    run_id uuid NOT NULL,
    table_name text NOT NULL,
    day date NOT NULL,
    state text NOT NULL,
    base_run_id uuid,
    holder text NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz NOT NULL,
    timeline text,
    closed_at timestamptz,
    closed_lsn text,
    ended_at timestamptz,
    failure text,
    manifest text,
    row_count bigint,
    file_count integer,
    file_bytes bigint,
    CONSTRAINT archive_run_pkey PRIMARY KEY (run_id)
)
WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off)
"""

ARCHIVE_RANGE = """
CREATE TABLE archive_range (
    run_id uuid NOT NULL,
    queue_id bigint NOT NULL,
    first_offset bigint NOT NULL,
    last_offset bigint NOT NULL,
    last_message_id uuid NOT NULL,
    row_count bigint,
    digest text,
    CONSTRAINT archive_range_pkey PRIMARY KEY (run_id, queue_id)
)
"""

ACT = """
CREATE TABLE act (
    act_id bigint GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor text NOT NULL,
    action text NOT NULL,
    thing text NOT NULL,
    reason text NOT NULL,
    detail jsonb,
    CONSTRAINT act_pkey PRIMARY KEY (act_id)
)
"""

# An earlier version's first statement that changes something for a day is the one that raises starts. What is permitted
# is said by whoever does it, for the length of its transaction, and held against the day's state. The day is read in
# one form, whatever the session's own is.
GUARD = """
CREATE FUNCTION archive_guard_start() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM archive_policy WHERE table_name = 'message') AND NOT EXISTS (
        SELECT 1 FROM archive_day
        WHERE table_name = 'message' AND state = 'DROPPING'
          AND day = to_date(current_setting('msgdb.dropping_day', true), 'YYYY-MM-DD')
    ) THEN
        RAISE EXCEPTION 'messages are dropped only once they are archived, and this broker does not know of the archive'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Run a version of the message center that does.';
    END IF;
    RETURN NEW;
END
$$
"""
GUARDED = """
CREATE TRIGGER archive_guard_start BEFORE UPDATE OF start_offset ON queue
FOR EACH ROW WHEN (NEW.start_offset > OLD.start_offset) EXECUTE FUNCTION archive_guard_start()
"""


def upgrade() -> None:
    """Make the tables and the guard."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for statement in (ARCHIVE_POLICY, ARCHIVE_DAY, ARCHIVE_RUN, ARCHIVE_RANGE, ACT):
        op.execute(statement)
    op.create_index("archive_run_table_name_day_idx", "archive_run", ["table_name", "day"])
    op.create_index("act_at_idx", "act", ["at"])
    op.execute(GUARD)
    op.execute(GUARDED)


def downgrade() -> None:
    """Drop them all."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TRIGGER archive_guard_start ON queue")
    op.execute("DROP FUNCTION archive_guard_start")
    for table in ("act", "archive_range", "archive_run", "archive_day", "archive_policy"):
        op.execute(f"DROP TABLE {table}")
