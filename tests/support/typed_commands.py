"""What documents have readers type: for tests that type it."""

from __future__ import annotations

import re
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"


def typed_in(page: str, chapter: str, number: int) -> list[str]:
    """Return what is typed in one of the console blocks of a chapter, counted from 0."""
    text = (_DOCS / page).read_text().partition(f"\n## {chapter}\n")[2].partition("\n## ")[0]
    block = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)[number]
    return [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
