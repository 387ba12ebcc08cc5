"""A web server that loads the application before it forks its workers: what that has published does not harm them."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from confdb.services import ConfigService
from msgbroker.server.app import Broker
from msgdb.store import MessageStore
from tests.support.eventually import eventually_blocking
from tests.support.stored import publishers_of, stored_in

REPOSITORY = Path(__file__).parents[4]
WORKERS = 3

APPLICATION = """
import json, os

from msgbroker.client import SyncMessageCenter

center = SyncMessageCenter(os.environ["BROKER"], publish_timeout_seconds=20)
first = center.publish("TP_TRADE", "EC_PAID", "loaded")


def application(request, start_response):
    receipt = center.publish("TP_TRADE", "EC_PAID", request["PATH_INFO"])
    said = {"process": os.getpid(), "stored": str(receipt.message_id), "instance": center.instance_id}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(said).encode()]
"""

SETTINGS = f"""
preload_app = True
workers = {WORKERS}
bind = "127.0.0.1:0"
# A name that older ones do not know is passed over.
control_socket_disable = True
"""


@contextmanager
def served(directory: Path, broker_address: str) -> Iterator[int]:
    """Run the application behind gunicorn, and return the port."""
    (directory / "application.py").write_text(APPLICATION)
    log_file = directory / "gunicorn.log"
    (directory / "settings.py").write_text(SETTINGS)
    with log_file.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--config", "settings.py", "application"],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "BROKER": broker_address},
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def find_port() -> int:
        assert server.poll() is None, log_file.read_text()
        listening = re.search(r"Listening at: http://127.0.0.1:(\d+)", log_file.read_text())
        return int(listening[1]) if listening else 0

    try:
        yield eventually_blocking(find_port, 30)
        server.terminate()
        assert server.wait(30) == 0, log_file.read_text()
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def get(port: int, path: str) -> dict[str, Any]:
    """Return what the application says."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200
        said: dict[str, Any] = json.loads(answer.read())
    finally:
        connection.close()
    return {**said, "path": path}


def ask_all(port: int) -> list[dict[str, Any]]:
    """Ask, several at a time, until each worker has answered; return the answers."""
    answers: list[dict[str, Any]] = []

    def ask() -> bool:
        paths = [f"/{len(answers) + n}" for n in range(2 * WORKERS)]
        with ThreadPoolExecutor(len(paths)) as threads:
            answers.extend(threads.map(partial(get, port), paths))
        return len({answer["process"] for answer in answers}) == WORKERS

    eventually_blocking(ask, 60)
    return answers


async def test_workers_that_a_server_forks_publish_by_the_center_that_was_used_before(
    trade: ConfigService, broker: Broker, message_store: MessageStore, tmp_path: Path
) -> None:
    def run() -> list[dict[str, Any]]:
        with served(tmp_path, broker.address) as port:
            return ask_all(port)

    answers = await asyncio.to_thread(run)

    stored = await stored_in(message_store)
    assert [body for body, _ in stored].count("loaded") == 1
    assert [each for each in stored if each[0] != "loaded"] == sorted(
        [said["path"], said["stored"]] for said in answers
    )
    assert len({said["instance"] for said in answers}) == WORKERS
    assert await publishers_of(message_store) == 1 + WORKERS
