"""Servers of other systems as processes of ours, on 127.0.0.1, ended by their process ids."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgbroker.contract.errors import EmbeddedPostgresError
from msgdb.embedded import EmbeddedPostgres
from tests.bench.peers.peer import PeerMissingError

_READY_SECONDS_MAX = 60.0
_END_SECONDS_MAX = 20.0


@contextlib.contextmanager
def running(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run *command* while the block lasts."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**environment}, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Return when *process* takes connections at *port*."""
    deadline = time.monotonic() + _READY_SECONDS_MAX
    while not _answers(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise PeerMissingError(f"its server did not start: {log.read_text(errors='replace')[-2_000:]}")
        time.sleep(0.05)


@contextlib.contextmanager
def serving_postgres(directory: Path, database: str) -> Iterator[str]:
    """Run an embedded PostgreSQL with the same settings as ours (fsync on), and give the URL of a database."""
    try:
        with EmbeddedPostgres(directory / "postgres") as postgres:
            yield postgres.create_database(database)
    except EmbeddedPostgresError as error:
        raise PeerMissingError(str(error)) from error


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def server_versions() -> dict[str, str]:
    """Return the versions of the servers that came as Debian packages."""
    asked = ["dpkg-query", "--show", "--showformat", "${Package} ${Version}\n", "nats-server", "rabbitmq-server"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        # No Debian.
        return {}
    named = (line.partition(" ") for line in done.stdout.splitlines())
    return {name: found for name, _, found in named if found}


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
