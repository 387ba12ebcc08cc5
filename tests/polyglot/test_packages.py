"""What is installed from npm is the same everywhere, and from whatever registry a machine has."""

from __future__ import annotations

import json
import re

import pytest

from tests.polyglot.node import HERE, _run_npm


def test_the_packages_from_npm_have_exact_versions() -> None:
    wanted = json.loads((HERE / "package.json").read_text())["dependencies"]

    assert {name: version for name, version in wanted.items() if not re.fullmatch(r"\d+\.\d+\.\d+", version)} == {}


def test_the_lock_names_no_registry_and_no_path_of_a_machine() -> None:
    packages = json.loads((HERE / "package-lock.json").read_text())["packages"]

    assert [name for name, package in packages.items() if "resolved" in package or "link" in package] == []
    assert [name for name, package in packages.items() if name and not package["integrity"].startswith("sha512-")] == []


def test_a_failed_installation_says_why() -> None:
    with pytest.raises(RuntimeError, match="npm no-such-command failed; it needs npm's registry:\n"):
        _run_npm("no-such-command")
