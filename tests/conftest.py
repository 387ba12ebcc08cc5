"""Fixtures every kind of test may use: a PostgreSQL server for the run, and a fresh migrated database per test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

_TEMPLATE = "msgcenter_template"


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """Return the URL of a superuser's database on the server that serves this test run."""
    return os.environ["MSGCENTER_TEST_POSTGRES_URL"]


@pytest.fixture(scope="session")
def template_database(postgres_url: str) -> str:
    """Migrate a template database once per server and return its name."""
    import confdb.schema
    import msgdb.schema

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        # Other test processes wait here until the first one has made it.
        connection.execute("SELECT pg_advisory_lock(7400)")
        name = f"{_TEMPLATE}_{os.environ.get('PYTEST_XDIST_TESTRUNUID', uuid.uuid4().hex)[:12]}"
        exists = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone()
        if not exists:
            connection.execute(f'CREATE DATABASE "{name}"')
            confdb.schema.upgrade(database_named(postgres_url, name))
            msgdb.schema.upgrade(database_named(postgres_url, name))
    return name


@pytest.fixture
def empty_database_url(postgres_url: str) -> Iterator[str]:
    """Return the URL of a new, empty database."""
    yield from _database(postgres_url, None)


@pytest.fixture
def database_url(postgres_url: str, template_database: str) -> Iterator[str]:
    """Return the URL of a new database that holds both schemas, migrated and empty."""
    yield from _database(postgres_url, template_database)


def database_named(url: str, name: str) -> str:
    """Return *url* with its database replaced."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def _database(postgres_url: str, template: str | None) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex[:16]}"
    template_clause = f' TEMPLATE "{template}"' if template else ""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"{template_clause}')
    try:
        yield database_named(postgres_url, name)
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
