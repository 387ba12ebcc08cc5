"""A Spark session for the tests of a process, which its first test of Spark starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "768m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="session")
def spark_of_process() -> Iterator[SparkSession]:
    """Return the session of this process; its Java ends with the process's tests."""
    from pyspark import SparkContext

    from spark_etl.sessions import SETTINGS, open_session
    from spark_etl.source.data_source import register

    session = open_session("tests", "local[2]", {**SETTINGS, **_SETTINGS})
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


@pytest.fixture
def spark(spark_of_process: SparkSession) -> Iterator[SparkSession]:
    """Return a Spark session on two threads of this machine, which knows the format `msgdb`; days are in UTC."""
    yield spark_of_process
    spark_of_process.conf.set("spark.sql.session.timeZone", "UTC")
