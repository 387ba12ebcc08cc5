"""The migrations of confdb make what the models say, and can be undone."""

from __future__ import annotations

import threading

import psycopg
import pytest
import sqlalchemy as sa

import confdb.schema
from confdb.models import Base

# What a schema dump would show of the tables of one schema, one row a fact.
CATALOGUE = """
    SELECT 'column', c.relname, a.attnum::text, a.attname, format_type(a.atttypid, a.atttypmod),
           a.attnotnull::text || a.attidentity::text, coalesce(pg_get_expr(d.adbin, d.adrelid), '')
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT 'constraint', conrelid::regclass::text, '', conname, pg_get_constraintdef(oid), '', ''
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'index', tablename, '', indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL
    SELECT 'table', relname, relkind::text, '', coalesce(array_to_string(reloptions, ','), ''), '', ''
    FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'S', 'v')
    ORDER BY 1, 2, 3, 4
"""

WAITING_FOR_ADVISORY_LOCKS = """
    SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
    WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted
"""


def catalogue(url: str) -> list[tuple[str, ...]]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(CATALOGUE).fetchall()
    return [row for row in rows if row[1] != confdb.schema.VERSION_TABLE]


def create_all(url: str) -> None:
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=sa.NullPool)
    Base.metadata.create_all(engine)


def test_the_migrated_schema_is_the_schema_of_the_models(empty_database_url: str) -> None:
    create_all(empty_database_url)
    of_the_models = catalogue(empty_database_url)
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")

    confdb.schema.upgrade(empty_database_url)

    assert catalogue(empty_database_url) == of_the_models
    assert len(of_the_models) > 100


def test_up_down_up_ends_where_it_began(empty_database_url: str) -> None:
    assert confdb.schema.find_revision(empty_database_url) is None
    confdb.schema.upgrade(empty_database_url)
    first = catalogue(empty_database_url)

    confdb.schema.downgrade(empty_database_url, "base")
    assert catalogue(empty_database_url) == []
    assert confdb.schema.find_revision(empty_database_url) is None

    confdb.schema.upgrade(empty_database_url)
    assert catalogue(empty_database_url) == first
    assert confdb.schema.find_revision(empty_database_url) == "0009"


# As brokers and services of the first version write and read; they run on while a rolling upgrade is under way.
OF_THE_FIRST_VERSION = (
    """
    INSERT INTO topic (namespace_id, name, kind, queue_count, body_bytes_max, is_open, description)
    VALUES (1, 'TP_' || %(n)s, 'NORMAL', 4, 8192, false, '')
    """,
    """
    INSERT INTO subscriber_group (namespace_id, name, ack_timeout_seconds, retry_schedule_seconds, attempts_max,
        unsettled_max, group_order, mode, paused, description)
    VALUES (1, 'SG_' || %(n)s, 60, '{10}', 2, 100, 'NONE', 'SHARED', false, '')
    """,
    """
    INSERT INTO subscription (group_id, topic_id, event_code, mode, start_offsets)
    SELECT group_id, topic_id, '*', 'DIRECT', '{}' FROM subscriber_group g, topic t
    WHERE g.name = 'SG_' || %(n)s AND t.name = 'TP_' || %(n)s
    """,
    """
    INSERT INTO broker (broker_id, address, host, pid, process_version, snapshot_version, draining, groups)
    VALUES (gen_random_uuid(), 'host:' || %(n)s, 'host', 1, '0.1.0', 1, false, '{}')
    """,
)


def test_what_the_first_version_wrote_and_goes_on_to_write_requires_and_understands_nothing(
    empty_database_url: str,
) -> None:
    def write(number: int) -> None:
        with psycopg.connect(empty_database_url) as connection:
            for statement in OF_THE_FIRST_VERSION:
                connection.execute(statement, {"n": str(number)})

    confdb.schema.upgrade(empty_database_url, "0001")
    write(1)
    confdb.schema.upgrade(empty_database_url)
    write(2)

    with psycopg.connect(empty_database_url) as connection:
        for table in ("topic", "subscriber_group", "subscription"):
            assert connection.execute(f"SELECT requires FROM {table}").fetchall() == [([],), ([],)]
        assert connection.execute("SELECT features, withheld FROM broker").fetchall() == [([], {}), ([], {})]


def test_a_migration_waits_for_a_change_and_not_the_other_way_round(empty_database_url: str) -> None:
    confdb.schema.upgrade(empty_database_url, "0001")
    waiting_for_the_row = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    with psycopg.connect(empty_database_url) as change, psycopg.connect(empty_database_url, autocommit=True) as other:
        change.execute("SELECT version FROM config_version FOR UPDATE")
        upgrade = threading.Thread(target=confdb.schema.upgrade, args=(empty_database_url,))
        upgrade.start()
        while other.execute(waiting_for_the_row).fetchone() != (1,):
            assert upgrade.is_alive()
        # In an order that would be a deadlock with half a migration.
        for table in ("broker", "subscription", "subscriber_group", "topic"):
            change.execute(f"SELECT count(*) FROM {table}")
    upgrade.join()

    assert confdb.schema.find_revision(empty_database_url) == "0009"


def test_a_second_upgrade_changes_nothing(empty_database_url: str) -> None:
    confdb.schema.upgrade(empty_database_url)
    confdb.schema.upgrade(empty_database_url)

    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT version FROM config_version").fetchall() == [(1,)]
        assert connection.execute("SELECT name FROM namespace").fetchall() == [("default",)]


def test_an_upgrade_waits_for_the_one_that_runs(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(1297237583)")
        upgrade = threading.Thread(target=confdb.schema.upgrade, args=(empty_database_url,))
        upgrade.start()
        waiting = (
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid <> pg_backend_pid()"
        )
        waiting += " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        while other.execute(waiting).fetchone() != (1,):
            assert upgrade.is_alive()
        assert confdb.schema.find_revision(empty_database_url) is None
    upgrade.join()

    assert confdb.schema.find_revision(empty_database_url) == "0009"


def test_a_path_with_a_percent_sign_is_no_obstacle(
    empty_database_url: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path_factory.mktemp("50%s off")
    (directory / "migrations").symlink_to(confdb.schema.script_location())
    monkeypatch.setattr(confdb.schema, "script_location", lambda: directory / "migrations")

    confdb.schema.upgrade(empty_database_url)

    assert confdb.schema.find_revision(empty_database_url) == "0009"
