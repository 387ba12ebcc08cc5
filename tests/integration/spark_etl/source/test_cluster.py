"""The data source on a cluster: a driver and executors in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.eventually import eventually_blocking
from tests.support.message_rows import put_rows, run_of
from tests.support.spark_cluster import SparkCluster

pytestmark = pytest.mark.slow

_COUNT = """
import sys
from spark_etl.sessions import open_session
from spark_etl.source.data_source import register

spark = open_session("count")
register(spark)
messages = spark.read.format("msgdb").option("partition_bytes", "20000").load()
print(messages.rdd.getNumPartitions(), messages.where("queue_id = 1").count(), spark.sparkContext.master)
spark.stop()
"""

# What a batch has goes to a file named by the batch's number: a batch that is tried again writes the same file again.
_FOLLOW = """
import json
import sys
import time
from pathlib import Path
from spark_etl.sessions import open_session
from spark_etl.source.data_source import register

directory, last_batch = Path(sys.argv[1]), int(sys.argv[2])
spark = open_session("follow")
register(spark)

def keep(rows, batch_id):
    found = [tuple(row) for row in rows.collect()]
    (directory / f"{batch_id}.json").write_text(json.dumps(found))
    if batch_id == last_batch:
        # Stored, and not noted as done: here the driver is killed.
        (directory / "waiting").touch()
        time.sleep(600)

log = spark.readStream.schema("queue_id long, queue_offset long").format("msgdb")
log = log.option("max_messages_per_batch", 50).load()
writer = log.writeStream.foreachBatch(keep).option("checkpointLocation", str(directory / "checkpoint"))
writer.trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


def test_executors_read_what_the_driver_has_planned(spark_cluster: SparkCluster, database_url: str) -> None:
    put_rows(database_url, [*run_of(1, 200), *run_of(2, 100)])

    said, _ = spark_cluster.run(_COUNT, environment={"MSGCENTER_MSGDB_URL": database_url})

    tasks, count, master = said.split()
    assert int(tasks) > 2
    assert (count, master) == ("200", spark_cluster.master_url)


@pytest.mark.timeout(240)
def test_a_driver_that_is_killed_in_the_middle_loses_no_message_and_doubles_none(
    spark_cluster: SparkCluster, database_url: str, tmp_path: Path
) -> None:
    put_rows(database_url, [*run_of(1, 70), *run_of(2, 50)])
    environment = {"MSGCENTER_MSGDB_URL": database_url}
    driver = spark_cluster.start(_FOLLOW, tmp_path / "log", str(tmp_path), "1", environment=environment)
    try:
        eventually_blocking(lambda: (tmp_path / "waiting").exists() or driver.process.poll() is not None, 90)
        assert driver.process.poll() is None, driver.log
    finally:
        driver.end()
    first = (tmp_path / "1.json").read_text()
    put_rows(database_url, run_of(1, 10, first=70))

    spark_cluster.run(_FOLLOW, str(tmp_path), "-1", environment=environment)

    # The batch that was not noted as done has the same messages again.
    assert sorted(json.loads((tmp_path / "1.json").read_text())) == sorted(json.loads(first))
    seen = [tuple(row) for path in tmp_path.glob("*.json") for row in json.loads(path.read_text())]
    assert sorted(seen) == [(1, n) for n in range(80)] + [(2, n) for n in range(50)]


# --- secrets ----------------------------------------------------------------------------------------------------

_SECRET = "s3cret\N{HORIZONTAL ELLIPSIS}"

# All that Spark shows and keeps goes below the directory, and the command lines of all processes with it.
_SHOW_ALL = """
import json
import sys
import urllib.request
from pathlib import Path

import psutil
import psycopg

from spark_etl.sessions import SETTINGS, open_session
from spark_etl.source.batch import pin_bounds
from spark_etl.source.data_source import register

directory, (url, *broken_urls) = Path(sys.argv[1]), json.load(sys.stdin)
events = {"enabled": "true", "dir": str(directory / "events"), "compress": "false", "logBlockUpdates.enabled": "true"}
(directory / "events").mkdir()
settings = {f"spark.eventLog.{name}": value for name, value in events.items()}
spark = open_session("show", None, {**SETTINGS, **settings, "spark.ui.enabled": "true", "spark.ui.port": "0"})
register(spark)

by_option = spark.read.format("msgdb").option("url", url).option("bounds", pin_bounds(url)).load()
by_environment = spark.read.format("msgdb").load()
print(by_option.where("queue_offset > 3").count(), by_environment.count())
by_option.explain("formatted")
by_option.createOrReplaceTempView("messages")
spark.sql("SELECT count(*) FROM messages").collect()

log = spark.readStream.format("msgdb").option("url", url).load()
writer = log.writeStream.format("noop").option("checkpointLocation", str(directory / "checkpoint"))
query = writer.trigger(availableNow=True).start()
query.awaitTermination()
print(query.lastProgress)

for broken in broken_urls:
    try:
        spark.read.format("msgdb").option("url", broken).load().count()
    except Exception as error:
        print("refused:", error)
with psycopg.connect(url, autocommit=True) as connection:
    connection.execute("TRUNCATE message")
try:
    by_environment.rdd.count()
except Exception as error:
    print("failed on an executor:", error)

ui, application = spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId
api = f"/api/v1/applications/{application}"
pages = ["/environment/", "/SQL/", "/SQL/execution/?id=1", "/stages/", "/executors/", "/StreamingQuery/"]
pages += [f"{api}/environment", f"{api}/sql?details=true&planDescription=true", f"{api}/stages?details=true"]
for page in pages:
    print(page, urllib.request.urlopen(ui + page).read().decode())
print(json.dumps([process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]))
spark.stop()
"""


@pytest.mark.timeout(240)
def test_a_password_in_the_url_is_shown_and_kept_nowhere(
    spark_cluster: SparkCluster, database_url: str, tmp_path: Path
) -> None:
    put_rows(database_url, run_of(1, 10))
    url = database_url.replace("postgres@", f"postgres:{quote(_SECRET)}@")
    assert "s3cret" in url

    password = quote(_SECRET)
    broken = [
        f"postgresql://u:{password}@127.0.0.1:1/nowhere",
        f"postgresql://u:{password}%zz@/nowhere",
        f"x={password}",
    ]

    said, told = spark_cluster.run(
        _SHOW_ALL,
        str(tmp_path),
        environment={"MSGCENTER_MSGDB_URL": url},
        given=json.dumps([url, *broken]),
        seconds=200,
    )

    assert said.startswith("6 10\n")
    assert said.count("refused: ") == len(broken)
    assert "OffsetGoneError" in said
    assert [
        line[max(0, line.index("s3cret") - 200) :][:400] for line in (said + told).splitlines() if "s3cret" in line
    ] == []
    kept = [
        path for directory in (tmp_path, spark_cluster.directory) for path in directory.rglob("*") if path.is_file()
    ]
    assert any("events" in path.parts for path in kept)
    assert any(path.name == "stderr" and b"OffsetGoneError" in path.read_bytes() for path in kept)
    assert [path for path in kept if b"s3cret" in path.read_bytes()] == []
