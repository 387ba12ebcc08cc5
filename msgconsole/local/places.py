"""Where things are: the databases and the broker, from options, environment, or what a running `msgcenter up` wrote."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgbroker.contract.addresses import BROKER_DEFAULT, BROKER_VARIABLE, split_addresses
from msgbroker.contract.errors import ArchivePlaceError, InvalidSettingError, NoDatabaseError
from msgconsole.local.state_file import State, UnusableStateError, check_state, read_state, started_ticks

__all__ = [
    "ARCHIVE_VARIABLE",
    "BROKER_VARIABLE",
    "CONFDB_VARIABLE",
    "DEFAULT_BROKER",
    "DIRECTORY",
    "MSGDB_VARIABLE",
    "State",
    "archive_place",
    "broker_address",
    "check_database_url",
    "confdb_url",
    "find_directory",
    "find_problem",
    "find_state",
    "msgdb_url",
    "started_ticks",
    "without_password",
]

DIRECTORY: Final = ".msgcenter"
DEFAULT_BROKER: Final = BROKER_DEFAULT
CONFDB_VARIABLE: Final = "MSGCENTER_CONFDB_URL"
MSGDB_VARIABLE: Final = "MSGCENTER_MSGDB_URL"
ARCHIVE_VARIABLE: Final = "MSGCENTER_ARCHIVE"
# As libpq takes a URL apart, which lets a password hold nearly everything; the last @ before a slash, to be on the safe
# side.
_PASSWORD: Final = re.compile(r"\A(\w+://[^:@/]*:)[^/]*@")
_PASSWORD_PARAMETER: Final = re.compile(r"([?&](?:ssl)?password=)[^&]*")


def find_state(start: Path | None = None) -> State | None:
    """Return what the nearest running `msgcenter up` wrote, from *start* (default: here) upwards; None if none runs."""
    found = _find_running(start)
    return None if found is None else found[1]


def find_directory(start: Path | None = None) -> Path | None:
    """Return the directory of the nearest running `msgcenter up`; None if none runs."""
    found = _find_running(start)
    return None if found is None else found[0]


def _find_running(start: Path | None) -> tuple[Path, State] | None:
    for directory in _upwards(start):
        state = read_state(directory)
        if state is not None and started_ticks(state.pid) == state.pid_started:
            return directory, state
    return None


def find_problem(start: Path | None = None) -> str | None:
    """Return what is wrong with the nearest `msgcenter up` that did not end in good order, or tells nothing of use."""
    for directory in _upwards(start):
        try:
            state = check_state(directory)
        except UnusableStateError as error:
            return str(error)
        if state is not None and started_ticks(state.pid) != state.pid_started:
            return f"the `msgcenter up` that served {directory} has died; start it again"
    return None


def _upwards(start: Path | None) -> Iterator[Path]:
    """Give the directories in which a `msgcenter up` may have written, the nearest first."""
    try:
        here = (start or Path.cwd()).resolve()
    except FileNotFoundError:
        # The directory that we are in was removed: nothing is above it any more.
        return
    for directory in (here, *here.parents):
        yield directory / DIRECTORY


def confdb_url(environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the configuration database."""
    state = None if environment.get(CONFDB_VARIABLE) else find_state()
    return _url(environment, CONFDB_VARIABLE, state.confdb_url if state else None)


def msgdb_url(environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the message store."""
    state = None if environment.get(MSGDB_VARIABLE) else find_state()
    return _url(environment, MSGDB_VARIABLE, state.msgdb_url if state else None)


def broker_address(given: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the broker to talk to: as *given*, else by environment, else the one of `msgcenter up`.

    Several with commas, as for a client, where several are given.
    """
    if given:
        return ",".join(split_addresses("--broker", given))
    named = environment.get(BROKER_VARIABLE)
    if named:
        return ",".join(split_addresses(BROKER_VARIABLE, named))
    state = find_state()
    return state.broker if state else DEFAULT_BROKER


def archive_place(given: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Return where the archive lies: as *given*, else by environment, else beside the data of `msgcenter up`.

    Raises ArchivePlaceError where nothing says.
    """
    named = given or environment.get(ARCHIVE_VARIABLE)
    if named:
        return named
    directory = find_directory()
    if directory is None:
        raise ArchivePlaceError("", f"give --place, or set {ARCHIVE_VARIABLE}")
    return str(directory / "archive")


def without_password(url: str) -> str:
    """Return *url* with stars for its password, to be shown."""
    return _PASSWORD_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1***@", url))


def check_database_url(setting: str, url: str) -> None:
    """Raise InvalidSettingError that names *setting* unless *url* is one that libpq can read."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    if not url.startswith(("postgresql://", "postgres://")):
        raise InvalidSettingError(setting, "is not a URL like postgresql://user@host/database")
    try:
        conninfo_to_dict(url)
    except (ProgrammingError, UnicodeEncodeError) as error:
        # What libpq quotes of it may be the password.
        said = f": {str(error).strip()}" if without_password(url) == url else ""
        problem = "cannot be read (special characters are written as %40, IPv6 addresses in brackets)"
        raise InvalidSettingError(setting, problem + said) from error


def _url(environment: Mapping[str, str], variable: str, running: str | None) -> str:
    url = environment.get(variable) or running
    if not url:
        raise NoDatabaseError(variable, find_problem())
    check_database_url(variable, url)
    return url
