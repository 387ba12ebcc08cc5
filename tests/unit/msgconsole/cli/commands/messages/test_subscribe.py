"""`msgcenter subscribe` where standard output does not take what it prints."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO

import pytest
import pytest_asyncio

from msgbroker.client import MessageCenter
from msgbroker.contract.errors import OutputFailedError
from msgconsole.cli.commands.messages.subscribe import Printer, print_messages
from msgconsole.cli.printing import streams
from tests.support.fake_broker import FakeBroker

pytestmark = pytest.mark.slow

ACK, RELEASE = 1, 3

Subscribe = Callable[..., "asyncio.Task[None]"]


@pytest_asyncio.fixture
async def subscribe(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Subscribe]:
    """Return a function that begins what the command does, with this standard output."""
    tasks: list[asyncio.Task[None]] = []

    def begin(output: IO[str], *, count: int | None = 1, as_json: bool = False) -> asyncio.Task[None]:
        monkeypatch.setattr(sys, "stdout", output)
        streams.prepare()
        printer = Printer(count, as_json=as_json)
        center = MessageCenter(broker.address, drain_timeout_seconds=0.3)
        center.subscriber(group="SG", topic="TP", concurrency=1)(printer.print_message)
        tasks.append(asyncio.create_task(print_messages(center, printer)))
        return tasks[-1]

    yield begin
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.parametrize(
    "encoding, body, printed",
    [
        ("utf-8", b"\xff paid", "\\xff paid"),
        ("gbk", b"\xff paid", "\\xff paid"),
        ("gbk", "✓ 支付".encode(), "\\u2713 支付"),
        ("ascii", "支付".encode(), "\\u652f\\u4ed8"),
        ("latin-1", "支付é".encode(), "\\u652f\\u4ed8é"),
    ],
)
async def test_what_a_terminal_cannot_show_is_escaped_and_acknowledged(
    broker: FakeBroker, subscribe: Subscribe, encoding: str, body: bytes, printed: str
) -> None:
    raw = io.BytesIO()
    running = subscribe(io.TextIOWrapper(raw, encoding))
    call = await broker.subscribe_calls.get()
    call.deliver(body)
    await running
    assert call.verdicts[0] == (0, ACK, 1)
    assert raw.getvalue().decode(encoding).splitlines()[1] == f"    {printed}"


@pytest.mark.parametrize("encoding", ["utf-8", "gbk", "ascii", "latin-1"])
async def test_json_is_json_in_every_encoding(broker: FakeBroker, subscribe: Subscribe, encoding: str) -> None:
    raw = io.BytesIO()
    running = subscribe(io.TextIOWrapper(raw, encoding), as_json=True)
    call = await broker.subscribe_calls.get()
    call.deliver("é ✓ 支付 👍".encode())
    await running
    assert call.verdicts[0] == (0, ACK, 1)
    assert json.loads(raw.getvalue())["body"] == "é ✓ 支付 👍"


async def test_a_body_can_neither_move_the_cursor_nor_pass_for_a_line_of_ours(
    broker: FakeBroker, subscribe: Subscribe
) -> None:
    raw = io.BytesIO()
    running = subscribe(io.TextIOWrapper(raw, "utf-8"))
    call = await broker.subscribe_calls.get()
    call.deliver(b"\x1b[2J1\n12:00:00 TP/EC 7/1\r\n\t2")
    await running
    assert raw.getvalue().decode().splitlines()[1:] == ["    \\x1b[2J1", "    12:00:00 TP/EC 7/1", "    \t2"]


@pytest.mark.parametrize("as_json", [True, False])
async def test_a_full_disk_ends_the_command_and_costs_no_attempt(
    broker: FakeBroker, subscribe: Subscribe, as_json: bool
) -> None:
    with Path("/dev/full").open("w") as full:  # noqa: ASYNC230 - nothing is waited for
        running = subscribe(full, as_json=as_json)
        call = await broker.subscribe_calls.get()
        call.deliver(b"1", b"2")
        with pytest.raises(OutputFailedError, match="standard output cannot be written: No space left on device"):
            await running
    await call.half_closed.wait()
    assert {verdict for _, verdict, _ in call.verdicts} == {RELEASE}


async def test_a_mistake_in_printing_is_raised_and_costs_no_attempt(broker: FakeBroker, subscribe: Subscribe) -> None:
    closed = io.TextIOWrapper(io.BytesIO(), "utf-8")
    running = subscribe(closed)
    call = await broker.subscribe_calls.get()
    closed.detach()
    call.deliver(b"1")
    with pytest.raises(ValueError, match="detached"):
        await running
    await call.half_closed.wait()
    assert [verdict for _, verdict, _ in call.verdicts] == [RELEASE]
