"""A standalone cluster of Spark, a `Master` and two workers, for all processes of a test run.

The process that leads the run names a directory. Whichever test asks first starts the cluster there, and it
ends it. Drivers are programs in processes of their own: their configuration is in a directory of the cluster's.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil

from spark_etl.sessions import check_java
from tests.support.eventually import eventually_blocking
from tests.support.processes import LoggedProcess, left_running, start_program

_ROOT = Path(__file__).parents[2]
_WORKERS = 2
_START_SECONDS = 60
_MASTER_URL = re.compile(r"Starting Spark master at (spark://[\d.:]+)")


@dataclass(frozen=True)
class SparkCluster:
    """A cluster that runs."""

    directory: Path
    master_url: str
    pids: list[int]

    @classmethod
    def find_or_start(cls, directory: Path) -> SparkCluster:
        """Return the cluster of this directory; the first who asks starts it, and the others wait for that."""
        check_java()
        state = directory / "cluster.json"
        with (directory / "cluster.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not state.exists():
                cluster = _start(directory)
                state.write_text(json.dumps({**asdict(cluster), "directory": str(directory)}))
            found = json.loads(state.read_text())
        return cls(directory, found["master_url"], found["pids"])

    def environment(self, given: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a driver: this process's, with *given* in it."""
        mine = {"SPARK_CONF_DIR": str(self.directory / "conf"), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(_ROOT)}
        return {**os.environ, **mine, "PYSPARK_PYTHON": sys.executable, **(given or {})}

    def start(
        self, program: str, log_file: Path, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> LoggedProcess:
        """Start a driver: *program* opens a session without naming a cluster, as under spark-submit."""
        process = start_program(program, log_file, *arguments, environment=self.environment(environment))
        return LoggedProcess(process, log_file)

    def run(
        self,
        program: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        given: str = "",
        seconds: float = 90,
    ) -> tuple[str, str]:
        """Run a driver to its end, with *given* for its input; it must not fail.

        Returns what it has printed, and what it has said of errors.
        """
        command = [(environment or {}).get("PYSPARK_PYTHON", sys.executable), "-c", program, *arguments]
        done = subprocess.run(
            command,
            env=self.environment(environment),
            # Python would find the checkout where it is started.
            cwd=self.directory,
            input=given,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            start_new_session=True,
        )
        assert done.returncode == 0, f"the driver ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout, done.stderr


def end_cluster(directory: Path) -> None:
    """End what was started in this directory, if anything was."""
    state = directory / "cluster.json"
    if not state.exists():
        return
    processes = []
    for pid in json.loads(state.read_text())["pids"]:
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            processes.append(psutil.Process(pid))
            # Executors are of their worker's group.
            os.killpg(pid, signal.SIGTERM)
    eventually_blocking(lambda: not left_running(processes), 20, what="the cluster has ended")


def _start(directory: Path) -> SparkCluster:
    _write_configuration(directory / "conf", None)
    master = _spawn(directory, "master", "master.Master", "--port", "0", "--webui-port", "0")
    log = directory / "master.log"
    found = eventually_blocking(lambda: _MASTER_URL.search(log.read_text()), _START_SECONDS, what="a `Master`")
    assert found is not None
    pids = [master]
    for number in range(_WORKERS):
        name = f"worker-{number}"
        resources = ("--cores", "4", "--memory", "4g", "--work-dir", str(directory / name))
        pids.append(_spawn(directory, name, "worker.Worker", "--webui-port", "0", *resources, found[1]))
    eventually_blocking(
        lambda: log.read_text().count("Registering worker") == _WORKERS, _START_SECONDS, what="workers have registered"
    )
    _write_configuration(directory / "conf", found[1])
    return SparkCluster(directory, found[1], pids)


def _spawn(directory: Path, name: str, entry: str, *arguments: str) -> int:
    """Start a process that outlives the one of the tests which starts it, and return its id."""
    home = next(iter(find_spec("pyspark").submodule_search_locations))  # type: ignore[union-attr,arg-type]
    environment = {each: value for each, value in os.environ.items() if each != "PYTHONPATH"}
    environment |= {"SPARK_HOME": home, "SPARK_CONF_DIR": str(directory / "conf"), "SPARK_DAEMON_MEMORY": "192m"}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(directory / "local")}
    log = (str(directory / f"{name}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{entry}", "--host", "127.0.0.1", *arguments]
    redirected = [(os.POSIX_SPAWN_OPEN, 1, *log), (os.POSIX_SPAWN_DUP2, 1, 2)]
    redirected.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    return os.posix_spawn(command[0], command, environment, file_actions=redirected, setsid=True)


def _write_configuration(directory: Path, master_url: str | None) -> None:
    directory.mkdir(exist_ok=True)
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        # What a test runs is over before a better compiler has paid.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": str(_WORKERS),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.executorEnv.PYTHONPATH": str(_ROOT),
    }
    if master_url is not None:
        settings["spark.master"] = master_url
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (directory / "spark-defaults.conf").write_text("".join(lines))
