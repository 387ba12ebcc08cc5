"""What runs before a commit is what `make check` runs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_check_is_a_hook_before_commits() -> None:
    listed = re.search(r"^check: (.*?) ##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    hooked = re.findall(r"entry: make --no-print-directory (\S+)", (ROOT / ".pre-commit-config.yaml").read_text())

    assert listed is not None
    assert hooked == listed[1].split()
