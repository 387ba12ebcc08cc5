"""A broker end to end, with one group, alone and while a day is archived out of the same PostgreSQL, in turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from msgconsole.bench import catalogue
from msgconsole.bench.phases.center import BenchCenter
from msgconsole.bench.phases.runner import PhaseRunner
from tests.bench.archive.setting import Sizes, day_before_today, worker
from tests.bench.archive.stored_day import store_day

ALONE: Final = "no archive"
BESIDE: Final = "archive beside it"
PATIENT: Final = "archive beside it, its tasks at nice 19"
_NICE: Final = {BESIDE: 0, PATIENT: 19}
_SECONDS_MAX: Final = 600.0


def measure(directory: Path, sizes: Sizes, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the rates of the broker and of the archive, by how they were measured."""
    broker: dict[str, list[float]] = {ALONE: [], BESIDE: [], PATIENT: []}
    archive: dict[str, list[float]] = {BESIDE: [], PATIENT: []}
    with BenchCenter(directory / "center", say) as center:
        say(f"Storing a day of {sizes.beside_messages:,} messages ...")
        store_day(center.msgdb_url, day_before_today(1), sizes.beside_messages)
        runner = PhaseRunner(center)
        runner.run(catalogue.warm_up(sizes.published // 10))
        for _ in range(sizes.beside_rounds):
            for how, rates in broker.items():
                if how == ALONE:
                    rates.append(runner.run(catalogue.one_group(sizes.published)).messages_per_second)
                else:
                    rate, archived = _beside(runner, directory, sizes, _NICE[how])
                    rates.append(rate)
                    archive[how].append(archived)
                say(f"broker, {how}: {rates[-1]:,.0f} msg/s")
    return {"broker": broker, "archive": archive}


def _beside(runner: PhaseRunner, directory: Path, sizes: Sizes, nice: int) -> tuple[float, float]:
    """Return the broker's rate and the archive's, in messages a second."""
    center = runner.center
    more = {
        "day": f"{day_before_today(1)}",
        "settings": {},
        "warms_up": True,
        "until_stopped": True,
        "nice": nice,
    }
    with worker("archive", center.msgdb_url, center.postgres.pid, directory, sizes, **more) as archiving:
        archiving.wait_until_ready()
        archiving.tell()
        phase = runner.run(catalogue.one_group(sizes.published))
        archiving.tell()
        archived = archiving.result(_SECONDS_MAX)["archived"]
    seconds = sum(each["ended_at"] - each["started_at"] for each in archived)
    return phase.messages_per_second, round(sum(each["rows"] for each in archived) / seconds, 1)
