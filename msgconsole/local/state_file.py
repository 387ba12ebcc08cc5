"""What a running `msgcenter up` tells the other commands, in a file of its directory.

The file says which broker to talk to and which databases to trust, and commands look for it from where they are
upwards: it is believed only where it is the reader's own or root's, because anybody may put one into /tmp. It is
written whole or not at all, and what cannot be used of it is said, not guessed.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, get_type_hints

_NAME: Final = "state.json"
_BYTES_MAX: Final = 65_536
_ROOT: Final = 0


class UnusableStateError(Exception):
    """There is such a file, but nothing can be learnt from it: its text says why, and what to do.

    Caught by `read_state`, for which there is no state then, and by `places.find_problem`, which tells it.
    """


@dataclass(frozen=True, slots=True)
class State:
    """What a running `msgcenter up` tells the other commands."""

    pid: int
    pid_started: int
    """When the process was started, in the kernel's ticks: a recycled process id has another time."""
    broker: str
    broker_pid: int
    broker_pid_started: int
    confdb_url: str
    msgdb_url: str

    def write(self, directory: Path) -> None:
        """Put it where the other commands look. The URLs may hold passwords: for the owner only."""
        half_written = directory / f"{_NAME}.new"
        half_written.unlink(missing_ok=True)
        descriptor = os.open(half_written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(self), file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        half_written.replace(directory / _NAME)


def read_state(directory: Path) -> State | None:
    """Return what the last `msgcenter up` in *directory* wrote, if it did not end in good order; it may run.

    None as well where it cannot be used: `check_state` says why.
    """
    try:
        return check_state(directory)
    except UnusableStateError:
        return None


def check_state(directory: Path) -> State | None:
    """Return what `read_state` does; raise UnusableStateError where there is something that cannot be used."""
    path = directory / _NAME
    if not os.path.lexists(path):
        return None
    try:
        return _parse(path, _read(path))
    except OSError as error:
        raise UnusableStateError(f"{path} cannot be read ({error.strerror}); start `msgcenter up` again") from error


def remove_state(directory: Path) -> None:
    """Remove the file that `State.write` wrote."""
    (directory / _NAME).unlink(missing_ok=True)


def started_ticks(pid: int) -> int | None:
    """Return when process *pid* was started, None if there is none, or if it is dead and only not reaped yet."""
    try:
        # The second field, the program's name, is in parentheses and may hold anything.
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def _read(path: Path) -> bytes:
    # Not through a link of somebody else, and without waiting for the writer of a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_uid not in {os.geteuid(), _ROOT}:
            raise UnusableStateError(
                f"{path} belongs to another user (id {status.st_uid}) and is not believed; run as that user, or start "
                "`msgcenter up` in a directory of your own"
            )
        return file.read(_BYTES_MAX) if stat.S_ISREG(status.st_mode) else b""


def _parse(path: Path, text: bytes) -> State:
    """Return what *text* says, as far as this version knows it: a newer one may say more."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        record = None
    types = get_type_hints(State)
    if not isinstance(record, dict) or any(type(record.get(name)) is not kind for name, kind in types.items()):
        raise UnusableStateError(
            f"{path} is damaged, or of another version of msgcenter; start `msgcenter up` there again"
        )
    return State(**{name: record[name] for name in types})
