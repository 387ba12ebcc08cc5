"""A stream from an installed wheel: its readers run in processes that `--py-files` does not reach."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support.message_rows import put_rows, run_of
from tests.support.spark_cluster import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_ROOT = Path(__file__).resolve().parents[4]
_PACKAGES = ("confdb", "msgbroker", "msgconsole", "msgdb", "spark_etl")
_SOURCES = ("pyproject.toml", "README.md", "LICENSE", ".ci", "migrations", *_PACKAGES)

_STREAM = """
import sys
import spark_etl
from spark_etl.sessions import SETTINGS, open_session
from spark_etl.source.data_source import register

# What the cluster's own configuration would let executors find it by.
spark = open_session("from a wheel", None, {**SETTINGS, "spark.executorEnv.PYTHONPATH": ""})
register(spark)
log = spark.readStream.schema("queue_id long, queue_offset long").format("msgdb").load()
writer = log.writeStream.format("json").option("checkpointLocation", sys.argv[1] + "/checkpoint")
writer.trigger(availableNow=True).start(sys.argv[1] + "/rows").awaitTermination()
print(spark.read.json(sys.argv[1] + "/rows").count(), spark_etl.__file__)
spark.stop()
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return the Python of an environment that has the wheel, and the libraries of this one."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in _SOURCES:
        source = _ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        else:
            shutil.copy(source, tree / name)
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(tree))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    environment = tmp_path / "environment"
    venv.create(environment)
    packages = next((environment / "lib").glob("python*/site-packages"))
    install = (
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--disable-pip-version-check",
        "--target",
        str(packages),
    )
    _run(sys.executable, "-m", "pip", *install, str(wheel))
    # The libraries alone: as a path of its own it would bring the checkout, too.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin" / "python"


def test_a_stream_runs_on_a_cluster_from_an_installed_wheel(
    installed: Path, spark_cluster: SparkCluster, database_url: str, tmp_path: Path
) -> None:
    put_rows(database_url, run_of(1, 20))
    environment = {"MSGCENTER_MSGDB_URL": database_url, "PYSPARK_PYTHON": str(installed), "PYTHONPATH": ""}

    said, _ = spark_cluster.run(_STREAM, str(tmp_path), environment=environment, seconds=200)

    count, place = said.split()
    assert count == "20"
    assert place.startswith(str(tmp_path / "environment"))


def _run(*command: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{command[:4]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
