"""The examples of docs/client.md work as they are printed."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import msgbroker.client
from msgbroker.client.testing import InMemoryCenter, SyncInMemoryCenter
from tests.support.fake_broker import FakeBroker

_EXAMPLES = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[3] / "docs/client.md").read_text(), re.DOTALL)
_SERVICES = [example for example in _EXAMPLES if example.startswith("# service.py")]
_SNIPPETS = [example for example in _EXAMPLES if example not in _SERVICES and "await center.run()" not in example]
_SYNC_SERVICE = """
from msgbroker.client import SyncMessageCenter

with SyncMessageCenter("127.0.0.1:7400") as center:

    @center.subscriber(group="SG_POINTS", topic="TP_TRADE", event_code="EC_PAID")
    def add_points(order: dict) -> None:
        print(order)

    center.run()
"""


@pytest.mark.parametrize("example", _SNIPPETS, ids=range(len(_SNIPPETS)))
async def test_an_example_works_as_printed(example: str) -> None:
    points: list[str] = []
    async with InMemoryCenter() as center:

        def attach_handlers(to: InMemoryCenter) -> None:
            @to.subscriber(group="SG_POINTS", topic="TP_TRADE", event_code="EC_PAID")
            async def add_points(order: dict[str, int]) -> None:
                points.append("customer-1")

        scope: dict[str, Any] = {
            **vars(msgbroker.client),
            "Any": Any,
            "SyncMessageCenter": lambda _: SyncInMemoryCenter(),
            "center": center,
            "rows": [{"order": "1"}, {"order": "2"}],
            "on_stored": lambda future: points.append(future.result().queue_id),
            "attach_handlers": attach_handlers,
            "points_of": lambda customer: 10 * points.count(customer),
        }
        program = compile(example, "docs/client.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        running = eval(program, scope)  # noqa: S307 - our own page
        if inspect.iscoroutine(running):
            await running
        for name, test in list(scope.items()):
            if name.startswith("test_"):
                await test()


def test_every_example_is_run() -> None:
    assert len(_SERVICES) == 1
    assert len(_EXAMPLES) - len(_SERVICES) - len(_SNIPPETS) <= 1
    page = "".join(_SNIPPETS)
    wanted = [
        "Reject(",
        "RetryAfter(",
        "Release(",
        "publish_many(",
        "publish_soon(",
        "SyncMessageCenter(",
        "timeout_seconds",
    ]
    wanted += ["concurrency=", ".advance(", ".settle_all(", ".dead_letters", ".published", "MessageCenterError as"]
    assert [word for word in wanted if word not in page] == []


@pytest.mark.parametrize("program", [*_SERVICES, _SYNC_SERVICE], ids=["async", "sync"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_service_ends_well_at_a_signal(
    program: str, broker: FakeBroker, tmp_path: Path, number: signal.Signals
) -> None:
    script = tmp_path / "service.py"
    script.write_text(program.replace("127.0.0.1:7400", broker.address))
    service = await asyncio.create_subprocess_exec(sys.executable, str(script), stderr=asyncio.subprocess.PIPE)
    call = await asyncio.wait_for(broker.subscribe_calls.get(), 20)
    service.send_signal(number)
    _, stderr = await asyncio.wait_for(service.communicate(), 20)

    assert (service.returncode, stderr) == (0, b"")
    # It took its leave, instead of just being gone: that is on its way here, and nothing else comes.
    await asyncio.wait_for(call.half_closed.wait(), 20)
