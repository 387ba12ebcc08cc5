"""The metadata tables.

What: namespaces, topics, event codes, groups, subscriptions, stress rules and whitelist, brokers, audit trail, and the
version row; the namespace `default` with the default stress rule.
Phase: expand
Locks: none that matter: the tables are new
Undo: drops every table, with what is in it
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = (
    """
    CREATE TABLE config_version (
        singleton smallint NOT NULL,
        version bigint NOT NULL,
        changed_at timestamptz DEFAULT now() NOT NULL,
        CONSTRAINT config_version_pkey PRIMARY KEY (singleton),
        CONSTRAINT config_version_singleton_check CHECK (singleton = 1)
    )
    """,
    """
    CREATE TABLE namespace (
        namespace_id bigint GENERATED ALWAYS AS IDENTITY,
        name text NOT NULL,
        description text DEFAULT '' NOT NULL,
        created_at timestamptz DEFAULT now() NOT NULL,
        CONSTRAINT namespace_pkey PRIMARY KEY (namespace_id),
        CONSTRAINT namespace_name_key UNIQUE (name)
    )
    """,
    """
    CREATE TABLE topic (
        topic_id bigint GENERATED ALWAYS AS IDENTITY,
        namespace_id bigint NOT NULL,
        name text NOT NULL,
        kind text DEFAULT 'NORMAL' NOT NULL,
        queue_count integer NOT NULL,
        generation integer DEFAULT 1 NOT NULL,
        body_bytes_max integer NOT NULL,
        is_open boolean DEFAULT false NOT NULL,
        is_closed boolean DEFAULT false NOT NULL,
        stress_refused boolean DEFAULT false NOT NULL,
        description text DEFAULT '' NOT NULL,
        created_at timestamptz DEFAULT now() NOT NULL,
        CONSTRAINT topic_pkey PRIMARY KEY (topic_id),
        CONSTRAINT topic_namespace_id_name_key UNIQUE (namespace_id, name),
        CONSTRAINT topic_kind_check CHECK (kind IN ('NORMAL', 'ORDERED', 'SCHEDULED', 'TRANSACTIONAL')),
        CONSTRAINT topic_queue_count_check CHECK (queue_count > 0),
        CONSTRAINT topic_namespace_id_fkey FOREIGN KEY (namespace_id) REFERENCES namespace (namespace_id)
    )
    """,
    """
    CREATE TABLE event_code (
        topic_id bigint NOT NULL,
        name text NOT NULL,
        created_at timestamptz DEFAULT now() NOT NULL,
        CONSTRAINT event_code_pkey PRIMARY KEY (topic_id, name),
        CONSTRAINT event_code_topic_id_fkey FOREIGN KEY (topic_id) REFERENCES topic (topic_id)
    )
    """,
    """
    CREATE TABLE publisher_group (
        publisher_group_id bigint GENERATED ALWAYS AS IDENTITY,
        namespace_id bigint NOT NULL,
        name text NOT NULL,
        description text DEFAULT '' NOT NULL,
        created_at timestamptz DEFAULT now() NOT NULL,
        CONSTRAINT publisher_group_pkey PRIMARY KEY (publisher_group_id),
        CONSTRAINT publisher_group_namespace_id_name_key UNIQUE (namespace_id, name),
        CONSTRAINT publisher_group_namespace_id_fkey FOREIGN KEY (namespace_id) REFERENCES namespace (namespace_id)
    )
    """,
    """
    CREATE TABLE subscriber_group (
        group_id bigint GENERATED ALWAYS AS IDENTITY,
        namespace_id bigint NOT NULL,
        name text NOT NULL,
        ack_timeout_seconds double precision NOT NULL,
        retry_schedule_seconds double precision[] NOT NULL,
        attempts_max integer NOT NULL,
        unsettled_max integer NOT NULL,
        group_order text DEFAULT 'NONE' NOT NULL,
        mode text DEFAULT 'SHARED' NOT NULL,
        paused boolean DEFAULT false NOT NULL,
        description text DEFAULT '' NOT NULL,
        created_at timestamptz DEFAULT now() NOT NULL,
        CONSTRAINT subscriber_group_pkey PRIMARY KEY (group_id),
        CONSTRAINT subscriber_group_namespace_id_name_key UNIQUE (namespace_id, name),
        CONSTRAINT subscriber_group_group_order_check CHECK (group_order IN ('NONE', 'KEY', 'GLOBAL')),
        CONSTRAINT subscriber_group_mode_check CHECK (mode IN ('SHARED', 'BROADCAST')),
        CONSTRAINT subscriber_group_attempts_max_check CHECK (attempts_max > 0),
        CONSTRAINT subscriber_group_namespace_id_fkey FOREIGN KEY (namespace_id) REFERENCES namespace (namespace_id)
    )
    """,
    """
    CREATE TABLE subscription (
        subscription_id bigint GENERATED ALWAYS AS IDENTITY,
        group_id bigint NOT NULL,
        topic_id bigint NOT NULL,
        event_code text NOT NULL,
        mode text DEFAULT 'DIRECT' NOT NULL,
        expression text,
        start_offsets jsonb DEFAULT '{}' NOT NULL,
        created_at timestamptz DEFAULT now() NOT NULL,
        CONSTRAINT subscription_pkey PRIMARY KEY (subscription_id),
        CONSTRAINT subscription_group_id_topic_id_event_code_key UNIQUE (group_id, topic_id, event_code),
        CONSTRAINT subscription_mode_check CHECK (mode IN ('DIRECT', 'HEADER')),
        CONSTRAINT subscription_expression_check CHECK ((mode = 'HEADER') = (expression IS NOT NULL)),
        CONSTRAINT subscription_group_id_fkey FOREIGN KEY (group_id) REFERENCES subscriber_group (group_id),
        CONSTRAINT subscription_topic_id_fkey FOREIGN KEY (topic_id) REFERENCES topic (topic_id)
    )
    """,
    """
    CREATE INDEX subscription_topic_id_idx ON subscription (topic_id)
    """,
    """
    CREATE TABLE stress_rule (
        stress_rule_id bigint GENERATED ALWAYS AS IDENTITY,
        namespace_id bigint NOT NULL,
        header text NOT NULL,
        operator text NOT NULL,
        value text DEFAULT '' NOT NULL,
        created_at timestamptz DEFAULT now() NOT NULL,
        CONSTRAINT stress_rule_pkey PRIMARY KEY (stress_rule_id),
        CONSTRAINT stress_rule_namespace_id_header_operator_value_key UNIQUE (namespace_id, header, operator, value),
        CONSTRAINT stress_rule_operator_check CHECK (operator IN ('EQUALS', 'PREFIX', 'EXISTS')),
        CONSTRAINT stress_rule_namespace_id_fkey FOREIGN KEY (namespace_id) REFERENCES namespace (namespace_id)
    )
    """,
    """
    CREATE TABLE stress_whitelist (
        stress_whitelist_id bigint GENERATED ALWAYS AS IDENTITY,
        group_id bigint NOT NULL,
        topic_id bigint NOT NULL,
        event_code text NOT NULL,
        created_at timestamptz DEFAULT now() NOT NULL,
        CONSTRAINT stress_whitelist_pkey PRIMARY KEY (stress_whitelist_id),
        CONSTRAINT stress_whitelist_group_id_topic_id_event_code_key UNIQUE (group_id, topic_id, event_code),
        CONSTRAINT stress_whitelist_group_id_fkey FOREIGN KEY (group_id) REFERENCES subscriber_group (group_id),
        CONSTRAINT stress_whitelist_topic_id_fkey FOREIGN KEY (topic_id) REFERENCES topic (topic_id)
    )
    """,
    """
    CREATE INDEX stress_whitelist_topic_id_idx ON stress_whitelist (topic_id)
    """,
    """
    CREATE TABLE broker (
        broker_id uuid NOT NULL,
        address text NOT NULL,
        host text NOT NULL,
        pid integer NOT NULL,
        process_version text DEFAULT '' NOT NULL,
        started_at timestamptz DEFAULT now() NOT NULL,
        heartbeat_at timestamptz DEFAULT now() NOT NULL,
        snapshot_version bigint NOT NULL,
        draining boolean DEFAULT false NOT NULL,
        groups jsonb DEFAULT '{}' NOT NULL,
        CONSTRAINT broker_pkey PRIMARY KEY (broker_id)
    ) WITH (
        fillfactor = 50,
        autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_scale_factor = 0.02,
        vacuum_truncate = off
    )
    """,
    """
    CREATE TABLE audit_entry (
        audit_id bigint GENERATED ALWAYS AS IDENTITY,
        at timestamptz DEFAULT now() NOT NULL,
        actor text NOT NULL,
        action text NOT NULL,
        kind text NOT NULL,
        namespace text NOT NULL,
        name text NOT NULL,
        before jsonb,
        after jsonb,
        config_version bigint NOT NULL,
        CONSTRAINT audit_entry_pkey PRIMARY KEY (audit_id)
    )
    """,
    """
    CREATE INDEX audit_entry_kind_namespace_name_audit_id_idx ON audit_entry (kind, namespace, name, audit_id)
    """,
)

_ROWS = (
    "INSERT INTO config_version (singleton, version) VALUES (1, 1)",
    "INSERT INTO namespace (name, description) VALUES ('default', 'Exists from the start')",
    """
    INSERT INTO stress_rule (namespace_id, header, operator, value)
    SELECT namespace_id, 'x-stress-test', 'EQUALS', 'true' FROM namespace WHERE name = 'default'
    """,
)

_NAMES = (
    "audit_entry",
    "broker",
    "stress_whitelist",
    "stress_rule",
    "subscription",
    "subscriber_group",
    "publisher_group",
    "event_code",
    "topic",
    "namespace",
    "config_version",
)


def upgrade() -> None:
    """Make the tables and the first rows."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for statement in (*_TABLES, *_ROWS):
        op.execute(statement)


def downgrade() -> None:
    """Drop the tables."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for name in _NAMES:
        op.execute(f"DROP TABLE {name}")
