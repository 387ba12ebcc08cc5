"""Where things are: the databases and the broker, from options, environment, or what a running `msgcenter up` wrote."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from msgbroker.contract.errors import FailedPreconditionError, InvalidSettingError

DIRECTORY: Final = ".msgcenter"
DEFAULT_BROKER: Final = "127.0.0.1:7400"
CONFDB_VARIABLE: Final = "MSGCENTER_CONFDB_URL"
MSGDB_VARIABLE: Final = "MSGCENTER_MSGDB_URL"
BROKER_VARIABLE: Final = "MSGCENTER_BROKER"
_PORT_MAX: Final = 65_535
_STATE_FILE: Final = "state.json"
_PASSWORD_PARAMETER: Final = re.compile(r"((?:^|&)(?:ssl)?password=)[^&]*")


class NoDatabaseError(FailedPreconditionError):
    """Nothing says where the databases are."""

    reason = "NO_DATABASE"

    def __init__(self, variable: str, dead: Path | None = None) -> None:
        if dead is None:
            problem = "no database: start `msgcenter up` in this directory or above it"
        else:
            problem = f"no database: the `msgcenter up` that served {dead} has died; start it again"
        super().__init__(f"{problem}, or set {variable}", variable=variable)


@dataclass(frozen=True, slots=True)
class State:
    """What a running `msgcenter up` tells the other commands."""

    pid: int
    pid_started: int
    """In the kernel's ticks: a recycled process id has another one."""
    broker: str
    broker_pid: int
    broker_pid_started: int
    confdb_url: str
    msgdb_url: str

    def write(self, directory: Path) -> None:
        """Put it where the other commands look. The URLs may hold passwords: for the owner only."""
        path = directory / _STATE_FILE
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(self), file, indent=2)


def read_state(directory: Path) -> State | None:
    """Return what the last `msgcenter up` in *directory* wrote, if it did not end in good order; it may run."""
    path = directory / _STATE_FILE
    if not os.access(path, os.R_OK):
        return None
    return State(**json.loads(path.read_text()))


def remove_state(directory: Path) -> None:
    """Take back what `State.write` wrote."""
    (directory / _STATE_FILE).unlink(missing_ok=True)


def find_state(start: Path | None = None) -> State | None:
    """Return what the nearest running `msgcenter up` wrote, from *start* (default: here) upwards; None if none runs."""
    here = (start or Path.cwd()).resolve()
    for directory in (here, *here.parents):
        state = read_state(directory / DIRECTORY)
        if state is not None and started_ticks(state.pid) == state.pid_started:
            return state
    return None


def find_dead_directory(start: Path | None = None) -> Path | None:
    """Return the nearest directory whose `msgcenter up` did not end in good order, and does not run any more."""
    here = (start or Path.cwd()).resolve()
    for directory in (here, *here.parents):
        state = read_state(directory / DIRECTORY)
        if state is not None and started_ticks(state.pid) != state.pid_started:
            return directory / DIRECTORY
    return None


def started_ticks(pid: int) -> int | None:
    """Return when process *pid* was started, None if there is none, or if it is dead and only not reaped yet."""
    try:
        # The second field, the program's name, is in parentheses and may hold anything.
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def confdb_url(environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the configuration database."""
    state = None if environment.get(CONFDB_VARIABLE) else find_state()
    return _url(environment, CONFDB_VARIABLE, state.confdb_url if state else None)


def msgdb_url(environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the message store."""
    state = None if environment.get(MSGDB_VARIABLE) else find_state()
    return _url(environment, MSGDB_VARIABLE, state.msgdb_url if state else None)


def broker_address(given: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the broker to talk to: as *given*, else by environment, else the one of `msgcenter up`."""
    if given:
        return _address("--broker", given)
    if environment.get(BROKER_VARIABLE):
        return _address(BROKER_VARIABLE, environment[BROKER_VARIABLE])
    state = find_state()
    return state.broker if state else DEFAULT_BROKER


def without_password(url: str) -> str:
    """Return *url* fit for showing."""
    parts = urlsplit(url)
    query = _PASSWORD_PARAMETER.sub(r"\1***", parts.query)
    netloc = parts.netloc
    if parts.password is not None:
        netloc = f"{parts.username}:***@{netloc.rpartition('@')[2]}"
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def _address(setting: str, address: str) -> str:
    host, _, port = address.rpartition(":")
    is_bare_ipv6 = ":" in host and not host.startswith("[")
    if not host or is_bare_ipv6 or not port.isdigit() or not 0 < int(port) <= _PORT_MAX:
        raise InvalidSettingError(setting, f"is {address!r}; host:port is wanted, e.g. {DEFAULT_BROKER}")
    return address


def _url(environment: Mapping[str, str], variable: str, running: str | None) -> str:
    url = environment.get(variable) or running
    if not url:
        raise NoDatabaseError(variable, find_dead_directory())
    if not url.startswith(("postgresql://", "postgres://")):
        raise InvalidSettingError(variable, "is not a URL like postgresql://user@host/database")
    return url
