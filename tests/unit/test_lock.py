"""What is locked is what pyproject asks for, and what is installed."""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("lock", Path(__file__).parents[2] / ".ci" / "lock.py")
assert _SPEC is not None
assert _SPEC.loader is not None
lock = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(lock)

_PYPROJECT = """
[build-system]
requires = ["hatchling>=1.27"]

[project]
name = "msgcenter"
dependencies = ["grpcio>=1.76,<2"]

[project.optional-dependencies]
server = ["psycopg[binary]>=3.3,<4"]
dev = ["msgcenter[server]", "ruff>=0.14,<1"]
"""
_LOCKED = "grpcio==1.84.0\nhatchling==1.30.0\npsycopg==3.3.1  # via msgcenter\nruff==0.17.5\n"


def test_what_pyproject_asks_for_is_found_in_the_lock() -> None:
    assert lock.faults_of_pyproject(lock.Lock(_LOCKED), _PYPROJECT) == []


@pytest.mark.parametrize("name", ["hatchling", "grpcio", "psycopg", "ruff"])
def test_what_was_added_to_pyproject_and_not_locked_is_named(name: str) -> None:
    locked = "\n".join(line for line in _LOCKED.splitlines() if not line.startswith(name))

    assert lock.faults_of_pyproject(lock.Lock(locked), _PYPROJECT) == [f"{name} is not locked"]


def test_a_version_outside_of_its_range_is_named() -> None:
    faults = lock.faults_of_pyproject(lock.Lock(_LOCKED.replace("ruff==0.17.5", "ruff==1.0.0")), _PYPROJECT)

    assert faults == ["ruff is locked at 1.0.0, and pyproject.toml asks for <1,>=0.14"]


def test_of_several_versions_the_one_for_this_python_counts() -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    locked = lock.Lock(f"numpy==1.0 ; python_version != '{here}'\nnumpy==2.0 ; python_version == '{here}'")

    assert locked.version_here("NumPy") == "2.0"


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://example.org/simple",
        "-e .",
        "/tmp/ruff.whl",
        "ruff @ https://example.org/r.whl",
        "ruff>=0.1",
    ],
)
def test_a_lock_names_no_registry_and_no_place_and_leaves_no_choice(line: str) -> None:
    with pytest.raises(SystemExit, match="holds a line that is no package with its version"):
        lock.Lock(f"grpcio==1.84.0\n{line}\n")


def test_what_is_installed_otherwise_than_locked_is_named_and_so_is_what_is_not_locked() -> None:
    locked = f"iniconfig==0.0.1\npluggy=={version('pluggy')}\n"

    faults = lock.faults_of_environment(lock.Lock(locked), "pytest")

    assert f"iniconfig {version('iniconfig')} is installed, and locked is 0.0.1" in faults
    assert f"packaging {version('packaging')} is installed, and locked is none" in faults
    assert [fault for fault in faults if "pluggy" in fault] == []
