"""What the README and the tour of the command line say works as pasted, one after the other."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from tests.integration.msgconsole.cli.conftest import Msgcenter

_README = Path(__file__).parents[4] / "README.md"
_COMMAND_LINE = _README.parent / "docs/command-line.md"
_AN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def test_the_program_of_the_readme_works_as_pasted(running_broker: str, tmp_path: Path) -> None:
    program, _ = _blocks(_README, "python")
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


def test_the_commands_and_the_service_of_the_readme_and_then_the_tour_work_as_typed(
    msgcenter: Msgcenter, running_broker: str, tmp_path: Path
) -> None:
    _, register, use = _blocks(_README, "console")[:3]
    hello, service = (program.replace("127.0.0.1:7400", running_broker) for program in _blocks(_README, "python"))
    subprocess.run([sys.executable, "-c", hello], check=True, timeout=60, capture_output=True)
    for command in _typed(register):
        assert msgcenter(*command).status == 0
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", service], stdout=pipe, stderr=pipe, text=True, cwd=tmp_path, start_new_session=True
    ) as process:
        for command in _typed(use):
            assert msgcenter(*command).status == 0
        assert process.stdout is not None
        assert process.stdout.readline() == "reserved {'count': 2} attempt 2\n"
        # As Ctrl-C in its terminal does.
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert process.stderr is not None
        # What its handler raised is logged. That is all.
        assert process.stderr.read().count("Traceback") == 1
    (dead,) = msgcenter("dead-letters", "list", "--json").json
    assert (dead["reason"], dead["last_error"]) == ("REJECTED", "nothing to reserve")

    # What is typed of the archive needs a day that is over: see test_etl_jobs.
    tour, foretold, repeated, asked, acts, _, refused, missing, stress = _blocks(_COMMAND_LINE, "console")[:9]
    for command in _typed(_AN_ID.sub(dead["message_id"], asked)):
        assert "ROWS" in msgcenter(*command).out
    for command in [*_typed(tour), *_typed(foretold), *_typed(acts), *_typed(stress)]:
        if command != ["up"]:
            done = msgcenter(*command)
            assert done.status == 0, (command, done.err)
    (command,) = _typed(refused)
    done = msgcenter(*command)
    assert (done.status, done.err.split()) == (1, refused.partition("\n")[2].split())

    same, other = _typed(repeated)
    assert [msgcenter(*same).out, msgcenter(*other).err] == _said(repeated)
    registering, showing = _typed(missing)
    done = msgcenter(*registering)
    assert " ".join((done.out + done.err).split()) == " ".join(" ".join(_said(missing)).split())
    assert msgcenter(*showing).status == 0


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


def _typed(block: str) -> list[list[str]]:
    lines = (shlex.split(line, comments=True)[1:] for line in block.splitlines() if line.startswith("$ "))
    return [words[1:] for words in lines if words[0] == "msgcenter"]


def _said(block: str) -> list[str]:
    return [f"{line}\n" for line in block.splitlines() if not line.startswith("$ ")]


def test_the_readme_links_only_to_what_exists() -> None:
    root = _README.parent
    pages = [_README, *root.glob("docs/**/*.md"), *root.glob("msg*/**/README.md"), *root.glob("confdb/**/README.md")]
    assert root / "msgbroker/server/README.md" in pages
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
