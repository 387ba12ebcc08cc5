"""Processes that fork: both go on, the parent undisturbed, the child anew, and nothing is lost or stored twice."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest

from confdb.services import ConfigService
from msgbroker.server.app import Broker
from msgdb.store import MessageStore
from tests.support.collecting import register_group
from tests.support.forking import FORKED
from tests.support.stored import publishers_of, stored_in

PROGRAM_SECONDS = 100.0


async def run(way: str, broker: Broker, **environment: str) -> dict[str, Any]:
    """Return what the program says that forks in that way."""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.support.forking", way, broker.address),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    try:
        out, _ = await asyncio.wait_for(program.communicate(), PROGRAM_SECONDS)
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    assert program.returncode == 0
    said: dict[str, Any] = json.loads(out)
    # What a child has raised, where it was to publish.
    assert [each for each in said.get("stored", []) if isinstance(each, str)] == []
    return said


@pytest.mark.parametrize(
    "way, publishers",
    [
        ("made", 2),
        ("published", 4),
        ("closed", 2),
        ("forgotten", 2),
        ("publishing", 6),
        ("beside_each_other", 13),
        ("locked", 4),
        ("pool", 4),
    ],
)
async def test_a_child_publishes_as_another_publisher_and_its_parent_goes_on(
    trade: ConfigService, broker: Broker, message_store: MessageStore, way: str, publishers: int
) -> None:
    said = await run(way, broker)

    assert sorted(said["stored"]) == await stored_in(message_store)
    # A pool may have a process that got nothing to do.
    assert publishers - (way == "pool") <= await publishers_of(message_store) <= publishers
    assert len(set(said.get("instances", ["a", "b"]))) == 2
    assert said.get("closed", "CenterClosedError") == "CenterClosedError"


async def test_receipts_that_are_waited_for_at_a_fork_are_the_parents(
    trade: ConfigService, broker: Broker, message_store: MessageStore
) -> None:
    said = await run("soon", broker)

    outcomes, heard_in_child = said["child"]
    assert FORKED in outcomes
    assert set(outcomes) <= {FORKED, "receipt"}
    assert heard_in_child == 0
    assert [each for each in await stored_in(message_store) if each[0] != "warm"] == sorted(said["stored"])


async def test_handlers_are_the_parents_until_the_child_starts_its_own(
    trade: ConfigService, broker: Broker, message_store: MessageStore
) -> None:
    await register_group(trade, ack_timeout_seconds=60)
    said = await run("handling", broker)

    assert said["handled_in_child"] == 0
    assert sorted(said["stored"]) == await stored_in(message_store)
    assert ["child", 1] in said["handled"]
    assert {attempt for _, attempt in said["handled"]} == {1}


async def test_a_child_of_a_process_whose_handlers_are_at_work_hears_what_is_wrong_at_once(
    trade: ConfigService, broker: Broker, message_store: MessageStore
) -> None:
    await register_group(trade, ack_timeout_seconds=60)
    # Or gRPC's core starts threads in the children, which may end them.
    said = await run("at_work", broker, GRPC_ENABLE_FORK_SUPPORT="false")

    assert said["errors"] == [FORKED] * 5
    assert said["attempts"] == [1]
    assert said["stored"] == await stored_in(message_store)


async def test_a_fork_in_a_running_loop_loses_nothing_and_its_child_hears_what_is_wrong(
    trade: ConfigService, broker: Broker, message_store: MessageStore
) -> None:
    said = await run("in_loop", broker)

    assert said["error"] == FORKED
    assert sorted(said["stored"]) == await stored_in(message_store)


async def test_a_center_in_memory_goes_on_in_both_processes(broker: Broker) -> None:
    assert await run("in_memory", broker) == {"child": ["parent", "child"], "parent": ["parent"]}
