"""Fixtures every kind of test may use: a PostgreSQL server for the run, and a fresh migrated database per test.

The server is the one of MSGCENTER_TEST_POSTGRES_URL (a superuser's), else an embedded one for this run. Durability is
off in it; MSGCENTER_TEST_FSYNC=on leaves it on.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from hypothesis import settings

pytest_plugins = ("tests.support.broker_fixtures", "tests.support.spark_fixtures")

# How long an example takes on a busy machine says nothing about the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

_SERVER_VARIABLE = "MSGCENTER_TEST_POSTGRES_URL"
_TEMPLATE_VARIABLE = "MSGCENTER_TEST_TEMPLATE"
_SERVER_PREFIX = "msgcenter-tests-"
_MEMORY_BYTES_MIN = 6 * 2**30
_UNIT_TESTS = Path(__file__).parent / "unit"


def pytest_configure(config: pytest.Config) -> None:
    """Start the run's PostgreSQL in the process that leads it; its workers inherit the variables."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell starts what is to run in the background. What tests start would inherit it, and know no Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput") or config.option.collectonly or _runs_unit_tests_only(config):
        return
    os.environ[_TEMPLATE_VARIABLE] = f"msgcenter_template_{uuid.uuid4().hex[:12]}"
    if _SERVER_VARIABLE in os.environ:
        config.add_cleanup(_drop_template)
    else:
        _start_postgres(config)


def _start_postgres(config: pytest.Config) -> None:
    from msgdb.embedded import EmbeddedPostgres

    fsync = os.environ.get("MSGCENTER_TEST_FSYNC", "off")
    directory = Path(tempfile.mkdtemp(prefix=f"{_SERVER_PREFIX}{os.getpid()}-", dir=_server_root(fsync)))
    config.add_cleanup(lambda: shutil.rmtree(directory))
    server = EmbeddedPostgres(directory, settings={"fsync": fsync, "max_connections": "400"})
    # Registered before the start: cleanups run last in, first out, and on Ctrl-C, too.
    config.add_cleanup(server.stop)
    os.environ[_SERVER_VARIABLE] = server.start()


def _server_root(fsync: str) -> Path | None:
    """Return the directory for the server's own: in memory where there is enough, None for the usual one.

    A test's database is a copy of some four hundred files: 0.4 s on a disk, 0.02 s in memory.
    """
    memory = Path("/dev/shm")
    if fsync != "off" or not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < _MEMORY_BYTES_MIN:
        return None
    for left in memory.glob(f"{_SERVER_PREFIX}*"):
        # Of a run that was killed: it would be kept until the machine is started anew.
        if not Path(f"/proc/{left.name.removeprefix(_SERVER_PREFIX).partition('-')[0]}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return memory


def _runs_unit_tests_only(config: pytest.Config) -> bool:
    paths = [(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args]
    return all(path.is_relative_to(_UNIT_TESTS) for path in paths)


@pytest.fixture(autouse=True)
def client_log_level() -> Iterator[None]:
    """Put the level of the client's log back: commands that run in this process change it."""
    log = logging.getLogger("msgbroker.client")
    level = log.level
    log.setLevel(logging.NOTSET)
    yield
    log.setLevel(level)


def _drop_template() -> None:
    with psycopg.connect(os.environ[_SERVER_VARIABLE], autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{os.environ[_TEMPLATE_VARIABLE]}" WITH (FORCE)')


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """Return the URL of a superuser's database on the server that serves this test run."""
    return os.environ[_SERVER_VARIABLE]


@pytest.fixture(scope="session")
def template_database(postgres_url: str) -> str:
    """Migrate a template database once per run and return its name."""
    import confdb.schema
    import msgdb.schema

    name = os.environ[_TEMPLATE_VARIABLE]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        # Other test processes wait here until the first one has made it.
        connection.execute("SELECT pg_advisory_lock(7400)")
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


@pytest.fixture
def free_port() -> int:
    """Return a TCP port of 127.0.0.1 on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


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
