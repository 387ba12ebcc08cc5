"""An application of a user, with FastAPI, pydantic, threads and a server that forks, while brokers come and go.

A minute in every test run, ten with MSGCENTER_CHAOS=long.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgdb.log.queues import QueueTailReader
from msgdb.store import MessageStore
from tests.chaos.shop.orders import OPENED, PLACED, POINTS, STOCK, TOPIC
from tests.support.broker_fixtures import StartBrokerProcess
from tests.support.broker_processes import BrokerProcess, port_to_come_back_to
from tests.support.dead_letter_rows import all_dead_letters
from tests.support.eventually import eventually

_IS_LONG = os.environ.get("MSGCENTER_CHAOS", "") == "long"
_SECONDS = 600.0 if _IS_LONG else 15.0
_PAUSE_SECONDS = 0.02 if _IS_LONG else 0.01
"""Between the requests of one customer."""
_CUSTOMERS = 3
_KINDS = ["plain"] * 40 + ["flaky"] * 6 + ["slow"] * 3 + ["never"]
_ROOT = Path(__file__).parents[2]
_HANDLED = re.compile(r"^HANDLED (\d+) (\S+) (\d+)$", re.MULTILINE)
_ALARMING = re.compile(r"SURPRISE.*|CRITICAL.*|ERROR .*|.*never awaited.*|.*was never retrieved.*|ResourceWarning.*")


@dataclass(slots=True)
class Program:
    """A program of the shop, started again and again under one name."""

    arguments: list[str]
    log_file: Path
    brokers: str
    process: subprocess.Popen[bytes] | None = None
    exits: list[int] = field(default_factory=list)

    def start(self) -> None:
        """Start it once more; what it says is added to its log."""
        with self.log_file.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "default", *self.arguments],
                env={**os.environ, "MSGCENTER_BROKER": self.brokers, "PYTHONPATH": str(_ROOT)},
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def stop(self) -> None:
        """Ask it to end as a supervisor does, and note how it ended."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.exits.append(self.process.wait(60))
            self.process = None

    def end(self) -> None:
        """End it, whatever state it is in, with all its workers."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def log(self) -> str:
        """All that it has said."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def ready_count(self) -> int:
        """How often its handlers have been started."""
        return self.log.count("READY ")


@dataclass(slots=True)
class Shop:
    """All programs of the shop, and what it was told."""

    web: Program
    services: list[Program]
    port: int
    placed: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Kind and message id, by the order's number."""
    refused: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def buy(self, closing: asyncio.Event, seed: int) -> None:
        """Be a customer until the shop closes."""
        chance = random.Random(seed)
        while not closing.is_set():
            number, kind = next(self.numbers), chance.choice(_KINDS)
            try:
                said = await asyncio.to_thread(self._post, {"number": number, "kind": kind})
            except OSError as error:
                self.refused.append(f"order {number}: {error}")
            else:
                self.placed[number] = (kind, said["message_id"])
            await asyncio.sleep(_PAUSE_SECONDS)

    def _post(self, order: dict[str, Any]) -> dict[str, str]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/orders",
            data=json.dumps(order).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            said: dict[str, str] = json.load(answer)
            return said

    def is_up(self) -> bool:
        """Whether the web server answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/docs", timeout=5):
                return True
        except OSError:
            return False

    def handled(self, program: str) -> Counter[int]:
        """How often each order was handled, by all instances of a service."""
        return Counter(
            int(number)
            for each in self.services
            if program in each.arguments[-1]
            for number, _, _ in _HANDLED.findall(each.log)
        )


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Return the shop; none of it runs yet."""
    port = port_to_come_back_to()
    gunicorn = ["-m", "gunicorn", "--preload", "--workers", "2", "--bind", f"127.0.0.1:{port}"]
    worker = ["--worker-class", "uvicorn_worker.UvicornWorker", "tests.chaos.shop.web:app"]
    services = [
        Program(["-m", f"tests.chaos.shop.{name}"], tmp_path / f"{name}-{number}.log", "")
        for name in ("points", "stock")
        for number in range(2)
    ]
    shop = Shop(Program([*gunicorn, *worker], tmp_path / "web.log", ""), services, port)
    yield shop
    for program in (shop.web, *services):
        program.end()
        sys.stdout.write(f"--- {program.log_file.name}\n{program.log[-4_000:]}\n")


async def register(url: str) -> None:
    """Register the shop's topic and groups."""
    async with ConfigStore.open(url) as config_store, MessageStore.open(url, pool_size=2) as store:
        config = ConfigService(config_store, "shop", QueueTailReader(store))
        await config.topics.create("default", TOPIC)
        for event_code in (OPENED, PLACED):
            await config.event_codes.add("default", TOPIC, event_code)
        for group in (POINTS, STOCK):
            await config.subscriber_groups.create(
                "default", group, ack_timeout_seconds=1.0, retry_schedule_seconds=(0.5,) * 20
            )
            made = await config.subscriptions.create("default", group, TOPIC, PLACED)
            await config.wait_until_active(made.version)


async def disturb(shop: Shop, brokers: list[BrokerProcess], broker_process: StartBrokerProcess) -> int:
    """Kill and restart brokers and services in turn, for a while, and once each at least; return how often."""
    until = time.monotonic() + _SECONDS
    count = 0
    for what in itertools.cycle(["broker killed", "service", "broker stopped", "service"]):
        await asyncio.sleep(4)
        if count >= 2 and time.monotonic() > until - 4:
            return count
        count += 1
        if what == "service":
            program = shop.services[count // 2 % len(shop.services)]
            ready = program.ready_count()
            await asyncio.to_thread(program.stop)
            program.start()
            await eventually(lambda: program.ready_count() > ready, 60)  # noqa: B023 - it is looked at here
            continue
        victim = brokers.pop(0)
        if what == "broker killed":
            victim.kill()
        else:
            victim.terminate()
            await asyncio.to_thread(victim.process.wait, 60)
        brokers.append(broker_process(listen=victim.address))
        await asyncio.to_thread(lambda: brokers[-1].address)
    return count


@pytest.mark.timeout(1_200 if _IS_LONG else 240)
async def test_an_application_runs_without_a_surprise_while_brokers_come_and_go(
    shop: Shop, broker_process: StartBrokerProcess, database_url: str
) -> None:
    await register(database_url)
    brokers = [broker_process(), broker_process()]
    for program in (shop.web, *shop.services):
        program.brokers = ",".join(broker.address for broker in brokers)
        program.start()
    await eventually(lambda: all(program.ready_count() == 1 for program in shop.services), 60, what="the services")

    async def is_up() -> bool:
        return await asyncio.to_thread(shop.is_up)

    await eventually(is_up, 60, what="the web server")
    began_at, closing = time.monotonic(), asyncio.Event()
    customers = [asyncio.create_task(shop.buy(closing, seed)) for seed in range(_CUSTOMERS)]
    faults = await disturb(shop, brokers, broker_process)
    closing.set()
    await asyncio.gather(*customers)
    in_a_second = len(shop.placed) / (time.monotonic() - began_at)

    wanted = {number for number, (kind, _) in shop.placed.items() if kind != "never"}
    await eventually(
        lambda: all(not wanted - shop.handled(name).keys() for name in ("points", "stock")), 120, what="all is handled"
    )
    for program in (shop.web, *shop.services):
        await asyncio.to_thread(program.stop)

    assert shop.refused == []
    assert faults >= (40 if _IS_LONG else 2), "the machine is too busy for so many"
    for program in (shop.web, *shop.services):
        assert _ALARMING.findall(program.log) == [], program.log_file.name
        # A handler's failure is logged with its traceback; nothing else has one.
        assert program.log.count("Traceback") == program.log.count("handler.failed: "), program.log_file.name
        assert set(program.exits) == {0}
    assert sorted(await dead_letters(database_url)) == sorted(
        [(group, "REJECTED") for group in (POINTS, STOCK) for kind, _ in shop.placed.values() if kind == "never"]
    )
    for name in ("points", "stock"):
        # Duplicates come of faults alone, and only of what was under way or settled since the last checkpoint: on a
        # machine with nothing else to do some 60 orders, and never more than a second of them.
        handled = shop.handled(name)
        assert sum(count - 1 for count in handled.values()) <= in_a_second * faults


async def dead_letters(url: str) -> list[tuple[str, str]]:
    """Return group and reason of all dead letters."""
    async with ConfigStore.open(url) as config_store, MessageStore.open(url, pool_size=2) as store:
        config = ConfigService(config_store, "shop", QueueTailReader(store))
        found = []
        for name in (POINTS, STOCK):
            group = await config.subscriber_groups.get("default", name)
            async with store.connection() as connection:
                letters = await all_dead_letters(connection, group.group_id)
                found += [(name, str(letter.reason)) for letter in letters]
        return found
