"""The embedded PostgreSQL server: start, stop, restart."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from msgbroker.contract.errors import EmbeddedPostgresError
from msgdb.embedded import postmaster
from msgdb.embedded.account import choose_account
from msgdb.embedded.binaries import get_binaries
from msgdb.embedded.layout import SUPERUSER, Layout, clean_environment, prepare
from msgdb.embedded.lock import DirectoryLock
from msgdb.embedded.log_tail import log_tail
from msgdb.embedded.signals import signals_held_back

_SOCKET_PORT: Final = 5432
# Long enough for recovery after a power cut with max_wal_size of log to replay.
_READY_SECONDS_MAX: Final = 300.0

_SETTINGS: Final[Mapping[str, str]] = {
    # An acknowledged message is on disk. Tests may say otherwise.
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "128MB",
    # Fewer checkpoints under load; recovery stays within a minute.
    "max_wal_size": "2GB",
    "wal_compression": "off",
    "max_connections": "200",
    "log_checkpoints": "off",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


class EmbeddedPostgres:
    """A PostgreSQL server of one's own in *data_directory*, which it makes where there is none.

    Connections come by a Unix socket in a private directory; with *tcp_port* also by 127.0.0.1, with a password. It
    runs in a session of its own, so Ctrl-C does not reach it. *settings* are PostgreSQL settings that win over ours.

    Example:
        with EmbeddedPostgres(Path(".msgcenter/postgres")) as postgres:
            psycopg.connect(postgres.url("postgres"))
    """

    def __init__(
        self, data_directory: Path, *, tcp_port: int | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._layout = Layout(data_directory.resolve())
        self._tcp_port = tcp_port
        self._settings = {**_SETTINGS, **(settings or {})}
        self._lock = DirectoryLock(self._layout.root / "lock")
        self._process: psutil.Popen | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._running().pid

    @property
    def is_alive(self) -> bool:
        """Whether the server runs."""
        return self._process is not None and self._process.poll() is None

    def check(self) -> None:
        """Raise if the server has ended by itself, with the end of its log."""
        if not self.is_alive:
            message = f"PostgreSQL in {self._layout.root} has ended{log_tail(self._layout.log)}"
            raise EmbeddedPostgresError(message)

    @property
    def log_file(self) -> Path:
        """Where the server writes what it has to say."""
        return self._layout.log

    def start(self) -> str:
        """Start the server, return the URL of its `postgres` database when it takes connections."""
        if self._process is not None:
            return self.url(SUPERUSER)
        binaries = get_binaries()
        self._make_directory()
        holder = self._lock.try_acquire()
        if holder is not None:
            message = f"the embedded PostgreSQL in {self._layout.root} is in use by process {holder}"
            raise EmbeddedPostgresError(message)
        try:
            self._start_locked(binaries)
        except BaseException:
            # Ctrl-C included: nothing may stay behind that nobody stops.
            self.stop()
            raise
        return self.url(SUPERUSER)

    def stop(self) -> None:
        """Stop the server: clients are cut off, data is written out. A second time changes nothing."""
        if self._process is not None:
            postmaster.stop(self._process)
            self._process = None
            self._layout.remove_short_sockets()
        self._lock.release()

    def restart(self) -> None:
        """Stop and start again, with the same URL."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """End the server as a power cut would; `start` recovers. For tests."""
        postmaster.kill(self._layout, self._running())
        self._process = None
        self._lock.release()

    def url(self, database: str) -> str:
        """Return the libpq URL of *database* by the Unix socket."""
        socket = quote(str(self._layout.sockets), safe="/")
        return f"postgresql://{SUPERUSER}@/{quote(database, safe='')}?host={socket}&port={self._port}"

    def tcp_url(self, database: str) -> str:
        """Return the libpq URL of *database* by TCP, password included."""
        if self._tcp_port is None:
            message = "the embedded PostgreSQL was started without a TCP port"
            raise EmbeddedPostgresError(message)
        password = self._layout.password.read_text().strip()
        return f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{self._tcp_port}/{quote(database, safe='')}"

    def create_database(self, name: str) -> str:
        """Make database *name* if there is none, return its URL."""
        with psycopg.connect(self.url(SUPERUSER), autocommit=True) as connection:
            exists = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone()
            if exists is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    @property
    def _port(self) -> int:
        return self._tcp_port or _SOCKET_PORT

    def _running(self) -> psutil.Popen:
        if self._process is None:
            message = "the embedded PostgreSQL is not running"
            raise EmbeddedPostgresError(message)
        return self._process

    def _make_directory(self) -> None:
        try:
            self._layout.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"{self._layout.root} cannot be made: {error.strerror}"
            raise EmbeddedPostgresError(message) from error

    def _start_locked(self, binaries: Path) -> None:
        account = choose_account(self._layout.data, binaries / "postgres")
        postmaster.take_over(self._layout)
        try:
            prepare(self._layout, account, binaries, sync=self._settings["fsync"] != "off")
            self._spawn([*account.prefix, str(binaries / "postgres"), "-D", str(self._layout.data), *self._options()])
        except OSError as error:
            message = f"the embedded PostgreSQL cannot be started in {self._layout.root}: {error}"
            raise EmbeddedPostgresError(message) from error
        postmaster.wait_until_ready(self._layout, self.pid, lambda: self.is_alive, _READY_SECONDS_MAX)
        if self._tcp_port is not None:
            self._set_password()

    def _set_password(self) -> None:
        password = secrets.token_urlsafe(24)
        self._layout.password.touch(mode=0o600)
        self._layout.password.write_text(password + "\n")
        with psycopg.connect(self.url(SUPERUSER), autocommit=True) as connection:
            statement = sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(SUPERUSER), sql.Literal(password))
            connection.execute(statement)

    def _options(self) -> list[str]:
        settings = {
            **self._settings,
            "listen_addresses": "127.0.0.1" if self._tcp_port else "",
            "port": str(self._port),
            # A list: quoted, so that a comma in the path stays part of it.
            "unix_socket_directories": '"' + str(self._layout.sockets).replace('"', '""') + '"',
            "hba_file": str(self._layout.access_rules),
            "ident_file": str(self._layout.user_map),
        }
        return [f"--{name}={value}" for name, value in settings.items()]

    def _spawn(self, command: list[str]) -> None:
        with self._layout.log.open("ab") as log, signals_held_back():
            self._process = psutil.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=clean_environment(),
                start_new_session=True,
            )
