"""The embedded PostgreSQL's directory: what is where, its lock, and making the database cluster in it.

`data/` and `run/` belong to the user PostgreSQL runs as; the directory itself and the access rules stay with the
caller, so that root never writes where another user may plant a link.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgbroker.contract.errors import EmbeddedPostgresError
from msgdb.embedded.account import Account
from msgdb.embedded.binaries import MAJOR_VERSION
from msgdb.embedded.log_tail import tail

SUPERUSER: Final = "postgres"
_SOCKET_PATH_BYTES_MAX: Final = 107
_SOCKET_NAME_BYTES: Final = len("/.s.PGSQL.65535.lock")
_SHORT_DIRECTORY: Final = Path("/tmp")  # noqa: S108 - a path of its own below it, made with 0700 and checked
_LOG_BYTES_KEPT: Final = 10 * 1024 * 1024
_INITDB_SECONDS_MAX: Final = 120.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the parts of one embedded PostgreSQL are."""

    root: Path

    @property
    def data(self) -> Path:
        """The directory of PostgreSQL's own data."""
        return self.root / "data"

    @property
    def log(self) -> Path:
        """The file with what the server logs."""
        return self.root / "postgres.log"

    @property
    def access_rules(self) -> Path:
        """The file that says who may connect (pg_hba.conf)."""
        return self.root / "pg_hba.conf"

    @property
    def user_map(self) -> Path:
        """Which system user is which database user (pg_ident.conf)."""
        return self.root / "pg_ident.conf"

    @property
    def password(self) -> Path:
        """The file with the password for connections by TCP."""
        return self.root / "password"

    @property
    def sockets(self) -> Path:
        """The directory of the Unix socket: below /tmp where the path would be too long for one."""
        path = self.root / "run"
        if len(os.fsencode(path)) + _SOCKET_NAME_BYTES <= _SOCKET_PATH_BYTES_MAX:
            return path
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        return _SHORT_DIRECTORY / f"msgcenter-{digest}"

    def remove_short_sockets(self) -> None:
        """Remove the socket's directory if it is outside of ours and empty."""
        if self.sockets.parent == self.root:
            return
        try:
            self.sockets.rmdir()
        except OSError:
            # A socket is left in it (the server was killed): the next start uses it again.
            return


def prepare(layout: Layout, account: Account, binaries: Path, *, sync: bool) -> None:
    """Make what is missing in the directory, the database cluster included."""
    if not layout.data.exists():
        _make_cluster(layout, account, binaries, sync=sync)
    _check_version(layout)
    _make_socket_directory(layout, account)
    _write_access_rules(layout, account)
    if layout.log.exists() and layout.log.stat().st_size > _LOG_BYTES_KEPT:
        layout.log.replace(layout.log.with_suffix(".log.1"))


def _make_cluster(layout: Layout, account: Account, binaries: Path, *, sync: bool) -> None:
    # Made beside its place and renamed: an initdb that was killed halfway leaves nothing that looks like a cluster.
    half_made = layout.root / "data.new"
    if half_made.exists():
        shutil.rmtree(half_made)
    half_made.mkdir(mode=0o700)
    account.own(half_made)
    command = [
        *account.prefix,
        str(binaries / "initdb"),
        f"--pgdata={half_made}",
        f"--username={SUPERUSER}",
        "--encoding=UTF8",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--locale=C",
        "--auth-local=peer",
        "--auth-host=reject",
        *([] if sync else ["--no-sync"]),
    ]
    try:
        done = subprocess.run(
            command,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=clean_environment(),
            start_new_session=True,
            timeout=_INITDB_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"initdb did not finish within {_INITDB_SECONDS_MAX:g} s in {half_made}"
        raise EmbeddedPostgresError(message) from error
    if done.returncode != 0:
        message = f"initdb could not make a database in {half_made}{tail(done.stdout, 'what it said')}"
        raise EmbeddedPostgresError(message)
    half_made.rename(layout.data)


def _check_version(layout: Layout) -> None:
    version_file = layout.data / "PG_VERSION"
    found = version_file.read_text().strip() if version_file.exists() else "an unknown version"
    if found != str(MAJOR_VERSION):
        message = (
            f"{layout.data} holds data of PostgreSQL {found}; this is PostgreSQL {MAJOR_VERSION}. Dump it with the "
            "old version and load it again, or move the directory away to start afresh"
        )
        raise EmbeddedPostgresError(message)


def _make_socket_directory(layout: Layout, account: Account) -> None:
    directory = layout.sockets
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        status = directory.lstat()
        if status.st_uid not in {account.uid, os.geteuid()} or directory.is_symlink():
            message = f"{directory} is needed for the database's socket, but belongs to somebody else: remove it"
            raise EmbeddedPostgresError(message) from None
    account.own(directory)


def _write_access_rules(layout: Layout, account: Account) -> None:
    # The socket's directory keeps others out. Where PostgreSQL runs as another user than the caller, the other
    # processes of that user would still come in: there, only the caller's own name is let in.
    caller = pwd.getpwuid(os.geteuid()).pw_name if account.is_switched else ""
    local = "peer map=caller" if account.is_switched else "trust"
    layout.access_rules.write_text(f"local all all {local}\nhost all all 127.0.0.1/32 scram-sha-256\n")
    layout.user_map.write_text(f"caller {caller} {SUPERUSER}\n" if caller else "")
    for path in (layout.access_rules, layout.user_map):
        path.chmod(0o644)


def clean_environment() -> dict[str, str]:
    """Return an environment without the caller's locale and libpq variables."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}
