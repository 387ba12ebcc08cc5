"""The loop that gives jobs their turns: what ends it once does not end its next run, nor the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from msgbroker.server.jobs import runner
from msgbroker.server.jobs.runner import JobRunner, JobRunnerConfig

_JOB: Any = SimpleNamespace(job_id=1, kind="REPLAY", rate=1_000, tries=0)


class _NoStore:
    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield


class _Waiting:
    """Work that goes on for as long as it may."""

    async def step(self, job: Any, messages_max: int) -> Any:
        await asyncio.Event().wait()


async def test_a_turn_that_was_broken_off_with_the_loop_does_not_end_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claims: list[Any] = [[_JOB], ZeroDivisionError(), []]
    let_go: list[Any] = []

    async def claim_jobs(*_: object) -> list[Any]:
        claimed = claims.pop(0)
        if isinstance(claimed, Exception):
            raise claimed
        return list(claimed)

    async def note_let_go(_: object, job: Any) -> None:
        let_go.append(job)

    monkeypatch.setattr(runner, "claim_jobs", claim_jobs)
    monkeypatch.setattr(runner, "let_go", note_let_go)
    jobs = JobRunner(
        store=_NoStore(),  # type: ignore[arg-type]
        owner=uuid4(),
        works={"REPLAY": _Waiting()},
        config=JobRunnerConfig(look_seconds=0.0),
    )
    stop = asyncio.Event()
    with pytest.raises(ZeroDivisionError):
        await jobs.run(stop)
    (turn,) = jobs._turns
    await asyncio.wait([turn])

    assert await jobs.begin_turns_once(stop) == 0
    # Its lease passes; it is not let go of twice.
    await jobs.leave()
    assert let_go == []
