"""The client installs next to anything: a wheel without extras, in a virtual environment with nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

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


@pytest.mark.timeout(300)
def test_a_wheel_without_extras_brings_grpcio_and_protobuf_and_nothing_else(tmp_path: Path) -> None:
    tree = _copy_sources(tmp_path / "tree")
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(tree))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))

    installed = _run(python, "-I", "-W", "error", "-c", _PROGRAM, cwd=tmp_path)

    names = set(installed.strip("[]\n").replace("'", "").split(", "))
    assert names - {"pip", "setuptools"} == {"grpcio", "msgcenter", "protobuf", "typing_extensions"}


def _copy_sources(tree: Path) -> Path:
    """Return a copy to build in: building writes generated files, and other tests read those of the checkout."""
    tree.mkdir()
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
