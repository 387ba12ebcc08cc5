"""The README's program works as pasted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_README = Path(__file__).parents[3] / "README.md"


def test_the_program_of_the_readme_works_as_pasted(running_broker: str, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", _README.read_text(), flags=re.DOTALL)
    assert len(program.splitlines()) <= 24
    pasted = tmp_path / "hello.py"
    # Nothing but the port: that of the README may be in use where tests run.
    pasted.write_text(program.replace("127.0.0.1:7400", running_broker))
    done = subprocess.run(
        [sys.executable, str(pasted)], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    # The message may be there before its receipt.
    received, stored = sorted(done.stdout.splitlines())
    assert stored.startswith("stored as ")
    assert received == "received {'order': 1} attempt 1"


def test_the_readme_links_only_to_what_exists() -> None:
    root = _README.parent
    pages = [_README, *root.glob("docs/**/*.md"), *root.glob("msg*/**/README.md"), *root.glob("confdb/**/README.md")]
    assert root / "msgbroker/server/README.md" in pages
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
