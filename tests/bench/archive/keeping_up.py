"""The open day, written as it goes on, while one publisher publishes as fast as the broker takes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from msgbroker.contract.errors import BenchFailedError
from msgconsole.bench.measures.timeline import Point, count_at, reached_at, series
from msgconsole.bench.phases.center import BenchCenter
from msgconsole.bench.phases.registration import Registration
from msgconsole.bench.phases.worker_process import WorkerProcess
from msgconsole.bench.scenario import Groups, Phase
from tests.bench.archive.setting import Sizes, worker

EVERY_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.05
_SECONDS_MAX: Final = 300.0
_SHARES: Final = (1 / 3, 2 / 3, 1.0)


def follow(directory: Path, sizes: Sizes, say: Callable[[str], None]) -> dict[str, Any]:
    """Return how fast was published and followed, and how far the archive was behind meanwhile."""
    warm_up = Phase("warm-up", messages=sizes.followed_first, groups=Groups(direct=0))
    phase = Phase("open day", seconds=sizes.follow_seconds, groups=Groups(direct=0))
    with BenchCenter(directory / "open", say) as center:
        Registration(center).prepare(phase)
        more = {"checkpoint": f"file://{directory / 'checkpoint'}", "every_seconds": EVERY_SECONDS}
        with worker("follow", center.msgdb_url, center.postgres.pid, directory, sizes, **more) as following:
            following.wait_until_ready()
            following.tell()
            # A stream runs for days: what Java compiles at first is no part of what is timed.
            before, _ = _publish(center, warm_up, following, 0)
            say(f"Publishing for {sizes.follow_seconds:g} s, and writing what comes ...")
            published, points = _publish(center, phase, following, before["published"])
            following.tell()
            batches = following.result(_SECONDS_MAX)["batches"]
    followed = series([tuple(following.history)], lambda progress: float(progress["followed"] - before["published"]))
    totals = accumulate(each["messages"] for each in batches)
    timed = [each for each, total in zip(batches, totals, strict=True) if total > before["published"] + 1]
    return {**_told(published, points, followed), "batches": timed}


def _publish(
    center: BenchCenter, phase: Phase, following: WorkerProcess, before: int
) -> tuple[dict[str, Any], list[Point]]:
    """Publish, wait until all is written, and return what the publisher says of it, at its end and on the way."""
    with WorkerProcess("publish", {**asdict(phase), "addresses": center.address}) as publishing:
        publishing.wait_until_ready()
        # Its first message has been through all of Spark's.
        _wait(following, before + 1)
        publishing.tell()
        published = publishing.result(_SECONDS_MAX)
        _wait(following, before + published["published"])
    return published, series([tuple(publishing.history)], lambda progress: float(progress["published"]))


def _wait(following: WorkerProcess, count: int) -> None:
    deadline = time.monotonic() + _SECONDS_MAX
    while following.latest.get("followed", 0) < count:
        following.check()
        if time.monotonic() > deadline:
            raise BenchFailedError(f"the open day was not written in time: {following.latest} of {count}")
        time.sleep(_POLL_SECONDS)


def _told(published: dict[str, Any], points: list[Point], followed: list[Point]) -> dict[str, Any]:
    started_at, ended_at, count = published["started_at"], published["ended_at"], published["published"]
    # The last report of the publisher may be some moments older than its end.
    points = [*points, (ended_at, float(count))]
    caught_up_at = next(at for at, written in followed if written >= count)
    seconds = ended_at - started_at
    return {
        "messages": count,
        "published_per_second": round(count / seconds, 1),
        "followed_per_second": round(count / (caught_up_at - started_at), 1),
        "behind_seconds": [round(_behind(points, followed, started_at + share * seconds), 2) for share in _SHARES],
        "behind_messages": round(count - _written(followed, ended_at)),
        "caught_up_after_seconds": round(caught_up_at - ended_at, 2),
    }


def _behind(points: list[Point], followed: list[Point], at: float) -> float:
    """Return how old the oldest message was then that was not written."""
    written = _written(followed, at)
    if written >= count_at(points, at):
        return 0.0
    return at - (reached_at(points, written) or at)


def _written(followed: list[Point], at: float) -> float:
    """Return how much was written by then: in whole batches, nothing in between."""
    return max((written for moment, written in followed if moment <= at), default=0.0)
