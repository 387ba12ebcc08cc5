"""Spark for tests: a session for all tests of a process, and a cluster for all processes of a run.

Whichever test asks first starts them. Most tests need the session; the cluster is for what only a real one shows.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.spark_cluster import SparkCluster

_DIRECTORY_VARIABLE = "MSGCENTER_TEST_SPARK_DIRECTORY"

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "768m",
    # What a test runs is over before a better compiler has paid.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # Nor has compiling what a query does, for a few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.log.level": "ERROR",
}


def pytest_configure(config: pytest.Config) -> None:
    """Name the directory of the run's cluster, in the process that leads it; its workers inherit the variable."""
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    directory = Path(tempfile.mkdtemp(prefix="msgcenter-spark-"))
    os.environ[_DIRECTORY_VARIABLE] = str(directory)
    config.add_cleanup(lambda: _end(directory))


def _end(directory: Path) -> None:
    if any(directory.iterdir()):
        from tests.support.spark_cluster import end_cluster

        end_cluster(directory)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def spark_cluster() -> SparkCluster:
    """Return the cluster of this test run, with two workers."""
    from tests.support.spark_cluster import SparkCluster

    return SparkCluster.find_or_start(Path(os.environ[_DIRECTORY_VARIABLE]))


@pytest.fixture(scope="session")
def spark_of_process() -> Iterator[SparkSession]:
    """Return the session of this process; its Java ends with the process's tests."""
    from pyspark import SparkContext

    from spark_etl.sessions import SETTINGS, open_session
    from spark_etl.source.data_source import register

    # Spark takes SIGINT for itself, and other tests of this process are about who has it.
    on_interrupt = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr("pyspark.java_gateway.Popen", _start_java)
        session = open_session("tests", "local[2]", {**SETTINGS, **_SETTINGS})
    signal.signal(signal.SIGINT, on_interrupt)
    register(session)
    yield session
    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    java = gateway.proc
    # It ends with its input.
    java.stdin.close()
    java.wait(30)
    SparkContext._gateway = SparkContext._jvm = None


def _start_java(command: list[str], *, preexec_fn: object, **how: Any) -> subprocess.Popen[bytes]:
    """Start Java as Spark does, out of reach of Ctrl-C, without running Python in the child.

    Spark's own way forks, and gRPC, which other tests of this process may have used, can end the child then.
    """
    return subprocess.Popen(command, start_new_session=True, **how)


@pytest.fixture
def spark(spark_of_process: SparkSession) -> Iterator[SparkSession]:
    """Return a Spark session on two threads of this machine, which knows the format `msgdb`; days are in UTC."""
    yield spark_of_process
    spark_of_process.conf.set("spark.sql.session.timeZone", "UTC")
