"""A lock on a directory, held by one process for as long as it lives."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class DirectoryLock:
    """Holds a directory by a lock file in it; the kernel frees it when the process dies, however that happens."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> str | None:
        """Take the lock and return None, or return the id of the process that has it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip()
            os.close(descriptor)
            return holder or "unknown"
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor
        return None

    def release(self) -> None:
        """Give the directory back; a second time changes nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
