"""A PostgreSQL of a test's own, with fsync on, to be killed and started again."""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

import confdb.schema
import msgdb.schema
from msgdb.embedded import EmbeddedPostgres

_DATABASE = "center"


@dataclass(slots=True)
class OwnPostgres:
    """See the module."""

    server: EmbeddedPostgres
    url: str

    @classmethod
    def start(cls, directory: Path) -> Self:
        """Start a server and migrate a database in it."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        server = EmbeddedPostgres(directory, tcp_port=port, settings={"fsync": "on"})
        server.start()
        try:
            url = server.create_database(_DATABASE)
            confdb.schema.upgrade(url)
            msgdb.schema.upgrade(url)
        except BaseException:
            server.stop()
            raise
        return cls(server, url)

    @property
    def data(self) -> Path:
        """Its data directory."""
        return self.server.log_file.parent / "data"

    def kill(self) -> None:
        """End it as a power cut would."""
        self.server.kill()

    def start_again(self) -> None:
        """Start it again; it recovers what was committed."""
        self.server.start()

    def stop(self) -> None:
        """Stop it for good."""
        self.server.stop()

    def freeze(self) -> None:
        """Stop all of its processes where they are."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        postmaster = psutil.Process(self.server.pid)
        for process in [postmaster, *postmaster.children(recursive=True)]:
            os.kill(process.pid, number)
