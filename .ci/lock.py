"""Write and check `.ci/lock.txt`: the one version of each package that all environments of this repository install.

`pyproject.toml` has ranges, for those who install the packages beside their own; with the lock, a checkout is today
what it was yesterday. It holds for all extras and all supported platforms. pip is given it as constraints, so each
target of the Makefile installs of it what that target needs.

`--add` locks what pyproject asks for and leaves what is locked where it is, as far as the ranges let it; `--renew`
takes the newest of everything; `--check` ends with what is wrong, without a network.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import NormalizedName, canonicalize_name

_LOCK = Path(".ci", "lock.txt")
# For all platforms and extras at once; what needs what is said beside each package.
_COMPILE = (
    *("pip", "compile", "pyproject.toml", "--all-extras", "--universal", "--python-version", "3.11"),
    *("--no-header", "--annotation-style", "line", "--quiet", "--output-file", str(_LOCK)),
)
_HEADING = """\
# The versions that environments of this repository install: `make lock` renews them, `make lock-added` adds to them.
"""


class Lock:
    """The versions that are locked; a package may have several, each where its marker holds."""

    def __init__(self, text: str) -> None:
        self._pins: dict[str, list[Requirement]] = {}
        for line in text.splitlines():
            if pinned := line.partition("#")[0].strip():
                pin = _pin(pinned)
                self._pins.setdefault(canonicalize_name(pin.name), []).append(pin)

    def version_here(self, name: str) -> str | None:
        """Return the version of *name* that this machine and this Python are to have, if one is locked."""
        pins = self._pins.get(canonicalize_name(name), [])
        here = [pin for pin in pins if pin.marker is None or pin.marker.evaluate()]
        return next(iter(here[0].specifier)).version if here else None

    def faults_of(self, wanted: Requirement) -> Iterator[str]:
        """Say what of *wanted*, a line of pyproject, the lock does not have."""
        pins = self._pins.get(canonicalize_name(wanted.name), [])
        if not pins:
            yield f"{wanted.name} is not locked"
        for pin in pins:
            locked = next(iter(pin.specifier)).version
            if not wanted.specifier.contains(locked, prereleases=True):
                yield f"{wanted.name} is locked at {locked}, and pyproject.toml asks for {wanted.specifier}"


def _pin(line: str) -> Requirement:
    try:
        pin = Requirement(line)
    except InvalidRequirement as error:
        raise SystemExit(f"{_LOCK} holds a line that is no package with its version: {line}") from error
    if pin.url or pin.extras or [specifier.operator for specifier in pin.specifier] != ["=="]:
        raise SystemExit(f"{_LOCK} holds a line that is no package with its version: {line}")
    return pin


def wanted_by(pyproject: str) -> Iterator[Requirement]:
    """Return what the text of a `pyproject.toml` asks for, to build, to run and in its extras, but for itself."""
    table = tomllib.loads(pyproject)
    project = table["project"]
    lines = [*table["build-system"]["requires"], *project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        lines += extra
    own = canonicalize_name(project["name"])
    return (wanted for wanted in map(Requirement, lines) if canonicalize_name(wanted.name) != own)


def faults_of_pyproject(lock: Lock, pyproject: str) -> list[str]:
    """Say what the text of a `pyproject.toml` asks for and *lock* does not give."""
    return sorted({fault for wanted in wanted_by(pyproject) for fault in lock.faults_of(wanted)})


def faults_of_environment(lock: Lock, root: str) -> list[str]:
    """Say which packages that *root* (a name with extras) needs are installed here otherwise than *lock* says."""
    faults = []
    for name in sorted(_needed_by(Requirement(root))):
        installed, locked = version(name), lock.version_here(name)
        if installed != locked:
            faults.append(f"{name} {installed} is installed, and locked is {locked or 'none'}")
    return faults


def _needed_by(root: Requirement) -> set[NormalizedName]:
    """Return what is installed of what *root* needs, and of what that needs in turn, without *root* itself."""
    waiting, seen = [(canonicalize_name(root.name), extra) for extra in ("", *root.extras)], set()
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for needed in map(Requirement, _installed_requirements(name)):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(needed.name), of_needed) for of_needed in ("", *needed.extras)]
    return {name for name, _ in seen if _is_installed(name)} - {canonicalize_name(root.name)}


def _installed_requirements(name: str) -> list[str]:
    try:
        return distribution(name).requires or []
    except PackageNotFoundError:
        return []


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def check() -> None:
    """End the program unless the lock has what pyproject asks for, and this environment has what is locked."""
    lock = Lock(_LOCK.read_text())
    if faults := faults_of_pyproject(lock, Path("pyproject.toml").read_text()):
        raise SystemExit("\n".join([*faults, "Run `make lock-added`, and commit what it writes to .ci/lock.txt."]))
    if faults := faults_of_environment(lock, "msgcenter[dev]"):
        raise SystemExit("\n".join([*faults, "Install what is locked: `touch .ci/lock.txt`, and the same again."]))


def write(*, newest: bool) -> None:
    """Lock what pyproject asks for: with *newest* everything anew, else only what the lock does not have yet."""
    uv = Path(sysconfig.get_path("scripts"), "uv")
    subprocess.run([uv, *_COMPILE, *(["--upgrade"] if newest else [])], check=True, stdout=subprocess.DEVNULL)
    _LOCK.write_text(_HEADING + _LOCK.read_text())


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        check()
    elif sys.argv[1:] in (["--add"], ["--renew"]):
        write(newest="--renew" in sys.argv[1:])
    else:
        raise SystemExit("lock.py takes one of --add, --renew and --check")
