"""A primary and its streaming standby, both a test's own: to be stopped, cut off and promoted."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psycopg

import confdb.schema
import msgdb.schema
from msgdb.embedded import EmbeddedPostgres
from msgdb.embedded.account import choose_account
from msgdb.embedded.binaries import get_binaries
from msgdb.embedded.layout import clean_environment
from tests.support.eventually import eventually_blocking

_DATABASE = "center"
_STANDBY_NAME = "standby"
_SETTINGS = {"fsync": "off", "wal_keep_size": "256MB", "max_connections": "100"}


@dataclass(slots=True)
class ReplicatedPostgres:
    """See the module. Killing their processes loses nothing that was written, with fsync or without."""

    primary: EmbeddedPostgres
    standby: EmbeddedPostgres

    @classmethod
    def start(cls, directory: Path) -> Self:
        """Start a primary with a migrated database, and a standby that follows it asynchronously."""
        # PostgreSQL may run as another user, and passes through here.
        directory.chmod(0o755)
        primary = EmbeddedPostgres(directory / "primary", tcp_port=_free_port(), settings=_SETTINGS)
        primary.start()
        try:
            url = primary.create_database(_DATABASE)
            confdb.schema.upgrade(url)
            msgdb.schema.upgrade(url)
            _let_standbys_in(primary)
            _copy(primary, directory / "standby")
            standby = EmbeddedPostgres(directory / "standby", settings=_SETTINGS)
            standby.start()
        except BaseException:
            primary.stop()
            raise
        replicated = cls(primary, standby)
        replicated.wait_until_followed()
        return replicated

    @property
    def url(self) -> str:
        """Of whichever of them is the primary: what an application is given."""
        hosts = ",".join(quote(_socket_directory(server), safe="/") for server in (self.primary, self.standby))
        ports = ",".join(_port(server) for server in (self.primary, self.standby))
        return f"postgresql://postgres@/{_DATABASE}?host={hosts}&port={ports}&target_session_attrs=read-write"

    @property
    def primary_url(self) -> str:
        """Of the first primary, whatever it is now."""
        return self.primary.url(_DATABASE)

    def make_synchronous(self) -> None:
        """Let every commit wait until the standby has it."""
        with psycopg.connect(self.primary.url("postgres"), autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{_STANDBY_NAME}'")
            connection.execute("SELECT pg_reload_conf()")
            eventually_blocking(
                lambda: connection.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").fetchone(),
                what="a synchronous standby",
            )

    def wait_until_followed(self) -> None:
        """Wait until the standby has replayed all that is written."""
        with psycopg.connect(self.primary.url("postgres"), autocommit=True) as connection:
            row = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
            assert row is not None
            eventually_blocking(
                lambda: connection.execute("SELECT 1 FROM pg_stat_replication WHERE replay_lsn >= %s", row).fetchone(),
                30,
                what="the standby has all",
            )

    def take_standby_away(self) -> None:
        """Stop the standby: what is written from here on it does not have."""
        self.standby.stop()
        with psycopg.connect(self.primary.url("postgres"), autocommit=True) as connection:
            eventually_blocking(
                lambda: connection.execute("SELECT 1 FROM pg_stat_replication").fetchone() is None, what="it is gone"
            )

    def bring_standby_back(self) -> None:
        """Start the standby again."""
        self.standby.start()

    def fail_over(self) -> None:
        """End the primary as a power cut would, and promote the standby with what it has."""
        self.primary.kill()
        if not self.standby.is_alive:
            self.standby.start()
        self.promote()

    def promote(self) -> None:
        """Promote the standby with what it has; the primary, if it is alive, lives on beside it."""
        with psycopg.connect(self.standby.url("postgres"), autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def stop(self) -> None:
        """Stop both for good."""
        self.standby.stop()
        self.primary.stop()


def _let_standbys_in(primary: EmbeddedPostgres) -> None:
    rules = Path(primary.log_file).parent / "pg_hba.conf"
    rules.write_text(rules.read_text() + "host replication all 127.0.0.1/32 scram-sha-256\n")
    with psycopg.connect(primary.url("postgres"), autocommit=True) as connection:
        connection.execute("SELECT pg_reload_conf()")


def _copy(primary: EmbeddedPostgres, directory: Path) -> None:
    """Make the standby's data: a copy of the primary's, with the way to it."""
    directory.mkdir()
    data = directory / "data"
    binaries = get_binaries()
    account = choose_account(data, binaries / "postgres")
    data.mkdir(mode=0o700)
    account.own(data)
    url = f"{primary.tcp_url('postgres')}?application_name={_STANDBY_NAME}"
    command = [str(binaries / "pg_basebackup"), "-d", url, "-D", str(data), "-R", "--checkpoint=fast", "--no-sync"]
    subprocess.run([*account.prefix, *command], cwd="/", env=clean_environment(), check=True, timeout=60)


def _socket_directory(server: EmbeddedPostgres) -> str:
    return server.url("").partition("host=")[2].partition("&")[0]


def _port(server: EmbeddedPostgres) -> str:
    return server.url("").partition("port=")[2]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
