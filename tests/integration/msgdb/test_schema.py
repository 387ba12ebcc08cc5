"""The store's schema: migrations and metadata say the same, and migrating works both ways."""

from __future__ import annotations

import threading
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

from msgdb import schema, tables
from tests.support.catalogue import describe


def test_the_migrated_schema_is_the_one_of_the_metadata(database_url: str, empty_database_url: str) -> None:
    engine = create_engine(make_url(empty_database_url).set(drivername="postgresql+psycopg"))
    tables.metadata.create_all(engine)
    engine.dispose()

    migrated, created = describe(database_url), describe(empty_database_url)

    ours = {table.name for table in tables.metadata.sorted_tables}
    for kind, rows in created.items():
        assert [row for row in migrated[kind] if row[0] in ours] == rows, kind


def test_it_migrates_up_down_and_up_again(empty_database_url: str) -> None:
    assert schema.find_revision(empty_database_url) is None
    schema.upgrade(empty_database_url)
    first = describe(empty_database_url)
    schema.downgrade(empty_database_url, "base")

    assert schema.find_revision(empty_database_url) is None
    assert describe(empty_database_url)["tables"] == []

    schema.upgrade(empty_database_url)

    assert describe(empty_database_url) == first
    assert schema.find_revision(empty_database_url) == "0017"


def test_migrating_twice_changes_nothing(empty_database_url: str) -> None:
    schema.upgrade(empty_database_url)
    schema.upgrade(empty_database_url)

    assert schema.find_revision(empty_database_url) == "0017"


def test_two_processes_may_migrate_at_the_same_time(empty_database_url: str) -> None:
    failures: list[BaseException] = []

    def migrate() -> None:
        try:
            schema.upgrade(empty_database_url)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            failures.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []


def test_the_first_migration_makes_the_days_from_yesterday_on(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT to_char(day, '\"message_p\"YYYYMMDD'), to_regclass(to_char(day, '\"message_p\"YYYYMMDD'))::text,"
            "       to_regclass(to_char(day, '\"publisher_frame_p\"YYYYMMDD')) IS NOT NULL "
            "FROM generate_series((now() AT TIME ZONE 'UTC')::date - 1, (now() AT TIME ZONE 'UTC')::date + 3,"
            "                     interval '1 day') AS day"
        ).fetchall()

    assert len(rows) == 5
    assert all(expected == found and has_frames for expected, found, has_frames in rows)


def test_the_guard_of_a_migration_holds_no_snapshot(database_url: str) -> None:
    # CREATE INDEX CONCURRENTLY, in a migration that the guard stands for, would wait for it forever.
    with schema._guarded(database_url), psycopg.connect(database_url) as connection:
        guards = connection.execute(
            "SELECT backend_xmin FROM pg_stat_activity"
            " WHERE datname = current_database() AND state = 'idle in transaction' AND pid <> pg_backend_pid()"
        ).fetchall()

    assert guards == [(None,)]


def test_a_url_of_several_hosts_leads_to_the_store(database_url: str) -> None:
    given = conninfo_to_dict(database_url)
    place = f"{quote(str(given['host']), safe='')}:{given.get('port', 5432)}"
    user = ":".join(quote(str(given[name]), safe="") for name in ("user", "password") if given.get(name))

    assert schema.find_revision(f"postgresql://{user}@{place},{place}/{given['dbname']}") == schema.find_revision(
        database_url
    )
