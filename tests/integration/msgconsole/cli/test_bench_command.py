"""`msgcenter bench` as a process: ended early, it takes along what it started."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.eventually import eventually_blocking
from tests.support.processes import left_running


def test_a_bench_that_is_told_to_stop_leaves_neither_a_database_nor_a_broker(tmp_path: Path) -> None:
    # Of its full length: on a busy machine a short one would have ended before it is told to.
    command = [sys.executable, "-m", "msgconsole.cli", "bench", "--directory", str(tmp_path)]
    children: list[psutil.Process] = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert any(line.startswith("Starting a broker") for line in process.stderr)
            children = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
            assert process.returncode == 130
            assert children
            # A broker's helper process ends by itself a moment after its broker.
            eventually_blocking(lambda: not left_running(children))
        finally:
            process.kill()
            for child in children:
                if child.is_running():
                    child.kill()
