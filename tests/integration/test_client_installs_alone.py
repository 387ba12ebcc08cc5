"""The client installs next to anything: a wheel without extras, in a virtual environment with nothing else.

It works there and its types are checked, and what needs more says what to install.
"""

from __future__ import annotations

import builtins
import fcntl
import os
import re
import shutil
import subprocess
import symtable
import sys
import tarfile
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_SOURCES = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    ".ci",
    "msgbroker",
    "msgconsole",
    "msgdb",
    "confdb",
    "spark_etl",
    "migrations",
)
_PACKAGES = ("confdb", "msgbroker", "msgconsole", "msgdb", "spark_etl")
_PROGRAM = """
import sys
from importlib.metadata import distributions

import msgbroker.client
import msgbroker.client.testing

extras = {"sqlalchemy", "psycopg", "pydantic", "structlog", "uvloop", "cel_expr_python", "alembic", "typer"}
foreign = extras & set(sys.modules)
assert not foreign, foreign


async def main():
    async with msgbroker.client.testing.InMemoryCenter() as center:
        seen = []

        @center.subscriber(group="SG", topic="TP")
        async def handle(body: dict):
            seen.append(body)

        await center.start()
        await center.publish("TP", "EC", {"n": 1})
        await center.settle_all()
        assert seen == [{"n": 1}], seen


import asyncio

asyncio.run(main())
print(sorted(found.metadata["Name"].lower() for found in distributions()))
"""
_WITH_AN_EXPRESSION = """
import asyncio

from msgbroker.client import Message
from msgbroker.client.testing import InMemoryCenter


async def main():
    async with InMemoryCenter() as center:
        center.register_topic("TP", "EC")
        center.register_group("SG")
        center.register_subscription("SG", "TP", expression="headers.region == 'hz'")
        seen = []

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message):
            seen.append(message.text())

        await center.start()
        await center.publish("TP", "EC", "1", headers={"region": "bj"})
        await center.publish("TP", "EC", "2", headers={"region": "hz"})
        await center.settle_all()
        print(seen)


asyncio.run(main())
"""
_WITHOUT_PYDANTIC = """
from msgbroker.client import InvalidSettingError, MessageCenter

def handle(numbers: list[int]): ...

try:
    MessageCenter().subscriber(group="SG", topic="TP")(handle)
except InvalidSettingError as error:
    print(error.message)
"""

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Installed:
    """A wheel, and a virtual environment that has it and what it brings."""

    wheel: Path
    environment: Path

    @property
    def python(self) -> str:
        """The interpreter of the environment."""
        return str(self.environment / "bin" / "python")

    def run(self, program: str, *, with_module: Path | None = None) -> str:
        """Return what *program* prints; it may import *with_module* as well."""
        paths = f"import sys; sys.path.append({str(with_module)!r})\n" if with_module else ""
        return _run(self.python, "-I", "-W", "error", "-c", paths + program, cwd=self.environment)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return the environment, made once for all workers of a run."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    directory, is_made = shared / "installed-alone", shared / "installed-alone.made"
    with (shared / "installed-alone.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_made.exists():
            shutil.rmtree(directory, ignore_errors=True)
            _install(directory)
            is_made.touch()
    (wheel,) = (directory / "dist").glob("*.whl")
    return Installed(wheel, directory / "environment")


def _install(directory: Path) -> None:
    tree = _copy_sources(directory / "tree")
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(directory / "dist"), str(tree))
    (wheel,) = (directory / "dist").glob("*.whl")
    environment = directory / "environment"
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))


def test_a_wheel_without_extras_brings_grpcio_and_protobuf_and_nothing_else(installed: Installed) -> None:
    names = set(installed.run(_PROGRAM).strip("[]\n").replace("'", "").split(", "))
    assert names - {"pip", "setuptools"} == {"grpcio", "msgcenter", "protobuf", "typing_extensions"}


# --- types ------------------------------------------------------------------------------------------------------


def test_the_wheel_says_that_all_of_it_is_typed(installed: Installed) -> None:
    with ZipFile(installed.wheel) as wheel:
        packed = set(wheel.namelist())

    assert {f"{package}/py.typed" for package in _PACKAGES} <= packed
    generated = {name.removesuffix(".py") for name in packed if re.fullmatch(r"msgbroker/v1/\w+_pb2\.py", name)}
    assert len(generated) == len(list(_ROOT.glob("msgbroker/proto/msgbroker/v1/*.proto")))
    assert {f"{name}.pyi" for name in generated} <= packed


def test_the_source_distribution_says_so_too(tmp_path: Path) -> None:
    tree = _copy_sources(tmp_path / "tree")
    _run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(tree))
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}

    assert {f"{package}/py.typed" for package in _PACKAGES} <= packed
    assert "msgbroker/v1/publisher_pb2.pyi" in packed


def _whole_programs(page: Path) -> Iterator[str]:
    """Return the examples of a page that can be run as they are: all that they use is theirs, or Python's."""
    for example in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        try:
            top = symtable.symtable(example, str(page), "exec")
        except SyntaxError:
            # It awaits outside of a function: a piece of one.
            continue
        known = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
        if _globals_of(top) <= known | set(dir(builtins)):
            yield example


def _globals_of(table: symtable.SymbolTable) -> set[str]:
    is_top = table.get_type() == "module"
    used = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() or is_top}
    return used.union(*(_globals_of(child) for child in table.get_children()))


def test_applications_and_examples_pass_mypy_strict(installed: Installed, tmp_path: Path) -> None:
    # Not where they are: there, it is the checkout that they would be checked against.
    (tmp_path / "application.py").write_text((_ROOT / "tests/integration/typed_application.py").read_text())
    for page in ("README.md", "docs/client.md"):
        examples = list(_whole_programs(_ROOT / page))
        assert examples, page
        for number, example in enumerate(examples):
            (tmp_path / f"{Path(page).stem.lower()}_{number}.py").write_text(example)
    programs = sorted(map(str, tmp_path.glob("*.py")))

    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file=",
            "--python-executable",
            installed.python,
            *programs,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout


# --- what needs more --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--help"], ["up"], ["topic", "list"]], ids=" ".join)
def test_the_command_line_says_what_to_install(installed: Installed, arguments: list[str]) -> None:
    for command in ([str(installed.environment / "bin" / "msgcenter")], [installed.python, "-m", "msgconsole.cli"]):
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False, cwd=installed.wheel.parent
        )

        said = "The msgcenter command line needs more: pip install 'msgcenter[console]'\n"
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_an_expression_in_memory_needs_the_extra_for_tests_and_nothing_else(
    installed: Installed, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=r"ModuleNotFoundError: .*: pip install 'msgcenter\[testing\]'"):
        installed.run(_WITH_AN_EXPRESSION)
    # What the extra brings, without asking a package registry for it.
    cel = find_spec("cel_expr_python")
    assert cel is not None
    assert cel.submodule_search_locations is not None
    (tmp_path / "cel_expr_python").symlink_to(next(iter(cel.submodule_search_locations)))
    assert installed.run(_WITH_AN_EXPRESSION, with_module=tmp_path) == "['2']\n"
    brought = installed.run("from importlib.metadata import requires\nprint(*requires('msgcenter'), sep='\\n')")
    assert [re.split("[<>]", line)[0] for line in brought.splitlines() if "'testing'" in line] == ["cel-expr-python"]


def test_a_body_that_only_pydantic_can_read_says_so(installed: Installed) -> None:
    assert "handle asks for a body of list[int], which needs pydantic 2: pip install pydantic" in installed.run(
        _WITHOUT_PYDANTIC
    )


def _copy_sources(tree: Path) -> Path:
    """Return a copy to build in: building writes generated files, and other tests read those of the checkout."""
    tree.mkdir(parents=True)
    for name in _SOURCES:
        source = _ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        else:
            shutil.copy(source, tree / name)
    return tree


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[:4]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout
