"""A Spark session for the tests of this directory: one for each process that runs some of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_etl.archive.config import ArchiveConfig
from spark_etl.sessions import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with open_session("tests", "local[2]") as session:
        session.sparkContext.setLogLevel("ERROR")
        yield session


@pytest.fixture
def config(database_url: str, tmp_path: Path) -> ArchiveConfig:
    return ArchiveConfig(url=database_url, place=str(tmp_path / "archive"), file_mib=1)
