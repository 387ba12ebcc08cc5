"""Which user the embedded PostgreSQL runs as, and how a program is started as that user.

PostgreSQL refuses to run as root. Started by root it runs as an unprivileged user, who must reach its programs and its
data even below a home directory of mode 0700. Nobody's permissions are changed for that: the process is given the one
capability to pass through directories, and only where it is needed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgbroker.contract.errors import EmbeddedPostgresError

# initdb looks its user up by number, so it must be one that every system has.
_UNPRIVILEGED_USER: Final = "nobody"

# linux/capability.h. The second is what containers commonly keep of the first.
_PASSING_CAPABILITIES: Final = (("dac_read_search", 2), ("dac_override", 1))


@dataclass(frozen=True, slots=True)
class Account:
    """A user to run as: *prefix* goes before each command line."""

    uid: int
    gid: int
    prefix: tuple[str, ...]
    is_switched: bool
    """Whether it is another user than the caller (who is root then)."""

    def own(self, path: Path) -> None:
        """Give *path*, which we made, to this user."""
        if self.is_switched:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def choose_account(data: Path, program: Path) -> Account:
    """Return the user to run as, who must be able to run *program* and to reach *data*."""
    uid = os.geteuid()
    if uid != 0:
        _check_owner(data, uid)
        return Account(uid, os.getegid(), (), is_switched=False)
    user_id, group_id = _unprivileged(data)
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        message = "PostgreSQL refuses to run as root, and `setpriv` is missing: install the package util-linux"
        raise EmbeddedPostgresError(message)
    prefix = [setpriv, "--reuid", str(user_id), "--regid", str(group_id), "--clear-groups", "--no-new-privs"]
    hidden = [path for path in (program, data) if not _is_reachable(path, user_id, group_id)]
    if not program.stat().st_mode & stat.S_IXOTH:
        # Installed under a strict umask: passing through directories is not enough.
        prefix += _capability_options(program, _PASSING_CAPABILITIES[1:])
    elif hidden:
        prefix += _capability_options(hidden[0], _PASSING_CAPABILITIES)
    else:
        prefix.append("--inh-caps=-all")
    return Account(user_id, group_id, (*prefix, "--"), is_switched=True)


def _check_owner(data: Path, uid: int) -> None:
    if data.exists() and data.stat().st_uid != uid:
        message = (
            f"{data} belongs to user id {data.stat().st_uid}: it was made when running as root or as another user. "
            f"Run as that user, or move {data.parent} away to start afresh"
        )
        raise EmbeddedPostgresError(message)


def _unprivileged(data: Path) -> tuple[int, int]:
    # Data that is there already keeps its user, whatever the system calls it today.
    if data.exists() and data.stat().st_uid != 0:
        return data.stat().st_uid, data.stat().st_gid
    try:
        entry = pwd.getpwnam(_UNPRIVILEGED_USER)
    except KeyError:
        message = f"PostgreSQL refuses to run as root, and there is no user {_UNPRIVILEGED_USER!r} to run it as"
        raise EmbeddedPostgresError(message) from None
    return entry.pw_uid, entry.pw_gid


def _is_reachable(path: Path, uid: int, gid: int) -> bool:
    for directory in path.resolve().parents:
        status = directory.stat()
        if status.st_uid == uid:
            bit = stat.S_IXUSR
        elif status.st_gid == gid:
            bit = stat.S_IXGRP
        else:
            bit = stat.S_IXOTH
        if not status.st_mode & bit:
            return False
    return True


def _capability_options(hidden: Path, capabilities: Iterable[tuple[str, int]]) -> list[str]:
    permitted = _permitted_capabilities()
    for name, number in capabilities:
        if permitted & (1 << number):
            # An ambient capability survives exec; the secure bit keeps it through the change of user.
            return [
                f"--inh-caps=-all,+{name}",
                f"--ambient-caps=-all,+{name}",
                "--securebits=+no_setuid_fixup",
            ]
    message = (
        f"PostgreSQL refuses to run as root, and only root may reach {hidden}: "
        "run as an ordinary user, or install and run where others may enter"
    )
    raise EmbeddedPostgresError(message)


def _permitted_capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "CapPrm":
            return int(value, 16)
    return 0
