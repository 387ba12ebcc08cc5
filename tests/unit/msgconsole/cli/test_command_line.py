"""The command line as a whole: quick to start, and every command explained by an example."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise

import pytest
import typer
from typer.models import CommandInfo

from msgconsole.cli.main import COMMANDS, build_app
from msgconsole.cli.printing.help_text import as_prose


def every_command() -> Iterator[tuple[str, CommandInfo]]:
    for entry in COMMANDS:
        if find_spec(entry.module) is None:
            continue
        module = import_module(entry.module)
        if hasattr(module, "app"):
            yield from _commands_of(entry.name, module.app)
        else:
            yield entry.name, CommandInfo(entry.name, callback=module.command)


def _commands_of(path: str, app: typer.Typer) -> Iterator[tuple[str, CommandInfo]]:
    for command in (each for each in app.registered_commands if not each.hidden):
        yield f"{path} {command.name}", command
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from _commands_of(f"{path} {group.name}", group.typer_instance)


@pytest.mark.parametrize(
    "path, command", list(every_command()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_help_text_has_an_example_of_its_own_command(path: str, command: CommandInfo) -> None:
    assert command.callback is not None
    assert f"Example: msgcenter {path}" in (command.callback.__doc__ or "")


@pytest.mark.parametrize(
    "typed",
    ["lag", "topic update", "dead-letters redrive", "message status", "message replay", "message try", "topic", ""],
)
def test_help_is_prose_in_lines_of_the_terminal_and_a_flag_has_no_type(
    typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*typed.split(), "--help"]
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        build_app(arguments)(arguments, prog_name="msgcenter")
    help_text = capsys.readouterr().out

    assert "<bool>" not in help_text
    assert "[[" not in help_text
    assert "......" not in help_text.replace(" ", "")
    prose = [line.strip() for line in help_text.partition("╭")[0].splitlines()]
    for line, following in pairwise(prose):
        # A line that has room for the next word ends a sentence.
        fits = len(line) + 1 + len(following.partition(" ")[0]) <= 78
        assert not (line and following and fits) or line.endswith((".", ":")), line


@pytest.mark.parametrize(
    "text, prose",
    [
        ("It says so,\nand more.", "It says so, and more."),
        ("It says so.\nAnd more.", "It says so.\nAnd more."),
        ("Said:\n- one\n- two\n\nExample: it", "Said:\n- one\n- two\n\nExample: it"),
        ("Example: a b \\\n  --c", "Example: a b \\\n  --c"),
    ],
)
def test_lines_are_joined_where_a_sentence_goes_on(text: str, prose: str) -> None:
    assert as_prose(text) == prose


def test_a_summary_that_names_commands_leaves_none_out_in_silence() -> None:
    commands = [path.split()[:2] for path, _ in every_command()]
    for entry in COMMANDS:
        verbs = {verb for name, *more in commands if name == entry.name for verb in more}
        named = entry.summary.rpartition(": ")[2].rstrip(".").split(", ")
        if named[0] in verbs:
            assert set(filter(None, named)) <= verbs, entry.summary
            assert entry.summary.endswith(", ...") or verbs <= set(named), entry.summary


def test_each_thing_is_made_and_ended_by_the_same_words() -> None:
    verbs = {path for path, _ in every_command()}

    for thing in ("namespace", "topic", "event-code", "group", "subscription"):
        assert {f"{thing} create", f"{thing} list", f"{thing} delete"} <= verbs
        assert not {f"{thing} add", f"{thing} remove"} & verbs


def test_help_lists_every_command_and_imports_none_of_them() -> None:
    program = (
        "import sys\n"
        "from msgconsole.cli.main import main\n"
        "sys.argv = ['msgcenter', '--help']\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    heavy = {'sqlalchemy', 'grpc', 'psycopg', 'alembic'} & set(sys.modules)\n"
        "    sys.stderr.write(' '.join(sorted(heavy)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for entry in COMMANDS:
        assert f" {entry.name} " in done.stdout


def test_only_the_command_that_was_typed_is_built() -> None:
    app = build_app(["topic", "list"])
    assert [group.name for group in app.registered_groups] == ["topic"]
