"""The Spark session of a job: the settings without which it would be wrong, and a clear word where Java is missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from msgbroker.contract.errors import JavaMissingError

SETTINGS: Final[Mapping[str, str]] = {
    # Off by default, and a filter on a source in Python would be an error then.
    "spark.sql.python.filterPushdown.enabled": "true",
    # INT96, the default, has no smallest and no largest value.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A day is a day in UTC.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}

# Nobody else takes part, so nothing is to listen where others are.
_ALONE: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


def open_session(application: str, master: str | None = None, settings: Mapping[str, str] = SETTINGS) -> SparkSession:
    """Return a session with what jobs need set, on the cluster that is named, or the one of `spark-submit`.

    Raises JavaMissingError where no Java is found: Spark's own word for it does not say what to install.
    """
    check_java()
    # Spark's own default is whatever `python3` is on the path, which knows none of this.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(application)
    if master is not None:
        builder = builder.master(master)
    alone = _ALONE if master is not None and master.startswith("local") else {}
    for name, value in {**alone, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def check_java() -> None:
    """Raise JavaMissingError where there is no Java to run Spark on."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=os.path.join(home, "bin") if home else None) is None:  # noqa: PTH118 - one entry of a path
        raise JavaMissingError
