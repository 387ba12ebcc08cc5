"""The first tables: queue, message, publisher_frame, cursor, redelivery, dead_letter; partitions for five days.

Phase: expand.
Locks: none that anyone waits for: everything is new.
Undo: drops all of it, messages included.
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

QUEUE = """
CREATE TABLE queue (
    queue_id bigint GENERATED ALWAYS AS IDENTITY,
    topic_id bigint NOT NULL,
    generation integer NOT NULL,
    ordinal integer NOT NULL,
    start_offset bigint NOT NULL DEFAULT 0,
    sealed boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT queue_pkey PRIMARY KEY (queue_id),
    CONSTRAINT queue_topic_id_generation_ordinal_key UNIQUE (topic_id, generation, ordinal)
)
"""

MESSAGE = """
CREATE TABLE message (
    queue_id bigint NOT NULL,
    queue_offset bigint NOT NULL,
    stored_at timestamptz NOT NULL,
    message_id uuid NOT NULL,
    namespace text NOT NULL,
    topic text NOT NULL,
    event_code text NOT NULL,
    key text,
    ordering_key text,
    headers jsonb,
    body bytea NOT NULL,
    born_at timestamptz NOT NULL,
    born_host text,
    publisher_group text,
    stress boolean NOT NULL,
    target_group bigint,
    redrives smallint NOT NULL DEFAULT 0,
    CONSTRAINT message_pkey PRIMARY KEY (queue_id, queue_offset, stored_at)
) PARTITION BY RANGE (stored_at)
"""

PUBLISHER_FRAME = """
CREATE TABLE publisher_frame (
    publisher_id uuid NOT NULL,
    sequence bigint NOT NULL,
    stored_at timestamptz NOT NULL,
    first_sequence bigint NOT NULL,
    outcome bytea NOT NULL,
    CONSTRAINT publisher_frame_pkey PRIMARY KEY (publisher_id, sequence, stored_at)
) PARTITION BY RANGE (stored_at)
"""

# Updated in place, all the time: room for HOT updates on each page, and a vacuum long before the dead ones show.
UPDATED_IN_PLACE = """
WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off)
"""

CURSOR = f"""
CREATE TABLE cursor (
    group_id bigint NOT NULL,
    member text NOT NULL,
    queue_id bigint NOT NULL,
    acked_offset bigint NOT NULL,
    acked_ranges int8multirange NOT NULL DEFAULT '{{}}',
    owner uuid,
    epoch bigint NOT NULL DEFAULT 0,
    lease_until timestamptz,
    CONSTRAINT cursor_pkey PRIMARY KEY (group_id, member, queue_id)
) {UPDATED_IN_PLACE}
"""

REDELIVERY = f"""
CREATE TABLE redelivery (
    group_id bigint NOT NULL,
    member text NOT NULL,
    queue_id bigint NOT NULL,
    queue_offset bigint NOT NULL,
    stored_at timestamptz NOT NULL,
    attempt integer NOT NULL,
    due_at timestamptz NOT NULL,
    ordering_key text,
    last_error text,
    CONSTRAINT redelivery_pkey PRIMARY KEY (group_id, member, queue_id, queue_offset)
) {UPDATED_IN_PLACE}
"""

DEAD_LETTER = """
CREATE TABLE dead_letter (
    id bigint GENERATED ALWAYS AS IDENTITY,
    group_id bigint NOT NULL,
    group_name text NOT NULL,
    died_at timestamptz NOT NULL DEFAULT now(),
    attempts integer NOT NULL,
    reason text NOT NULL,
    last_error text,
    queue_id bigint NOT NULL,
    queue_offset bigint NOT NULL,
    stored_at timestamptz NOT NULL,
    message_id uuid NOT NULL,
    namespace text NOT NULL,
    topic text NOT NULL,
    event_code text NOT NULL,
    key text,
    ordering_key text,
    headers jsonb,
    body bytea NOT NULL,
    born_at timestamptz NOT NULL,
    born_host text,
    publisher_group text,
    stress boolean NOT NULL,
    redrives smallint NOT NULL DEFAULT 0,
    CONSTRAINT dead_letter_pkey PRIMARY KEY (id),
    CONSTRAINT dead_letter_group_id_queue_id_queue_offset_stored_at_key
        UNIQUE (group_id, queue_id, queue_offset, stored_at)
)
"""

INDEXES = (
    "CREATE INDEX message_message_id_idx ON message (message_id)",
    "CREATE INDEX message_topic_key_idx ON message (topic, key) WHERE key IS NOT NULL",
    "CREATE INDEX dead_letter_group_id_id_idx ON dead_letter (group_id, id)",
)

# Yesterday's, because a transaction may span midnight; later days are made by the maintenance loop.
FIRST_DAYS = """
DO $$
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
    first_day date;
    parent text;
BEGIN
    FOREACH parent IN ARRAY ARRAY['message', 'publisher_frame'] LOOP
        FOR days IN -1..3 LOOP
            first_day := today + days;
            EXECUTE format('CREATE TABLE %1$I PARTITION OF %2$I FOR VALUES FROM (%3$L) TO (%4$L)',
                           parent || '_p' || to_char(first_day, 'YYYYMMDD'), parent,
                           first_day || ' 00:00:00+00', first_day + 1 || ' 00:00:00+00');
        END LOOP;
    END LOOP;
END
$$
"""


def upgrade() -> None:
    """Make the tables, their indexes and the partitions of the first days."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for statement in (QUEUE, MESSAGE, PUBLISHER_FRAME, CURSOR, REDELIVERY, DEAD_LETTER, *INDEXES, FIRST_DAYS):
        op.execute(statement)


def downgrade() -> None:
    """Drop every table of the store."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE dead_letter, redelivery, cursor, publisher_frame, message, queue")
