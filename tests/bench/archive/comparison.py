"""Archiving a day that is over, and copying the same day by JDBC, in turns and in one Spark session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.bench.archive import by_jdbc
from tests.bench.archive.server import serving_postgres
from tests.bench.archive.setting import Sizes, day_before_today, worker
from tests.bench.archive.stored_day import store_day

_SECONDS_MAX: Final = 3_600.0


def compare(directory: Path, sizes: Sizes, say: Callable[[str], None]) -> dict[str, Any]:
    """Return each round of both: what it took, and whose CPU."""
    day = day_before_today(1)
    with serving_postgres(directory) as server:
        say(f"Storing a day of {sizes.messages:,} messages ...")
        queues = store_day(server.url, day, sizes.messages)
        more = {"day": f"{day}", "queues": queues, "rounds": sizes.rounds, "with_jdbc": by_jdbc.JAR.exists()}
        say("Archiving it, and copying it by JDBC, in turns ...")
        with worker("compare", server.url, server.pid, directory, sizes, **more) as comparing:
            comparing.wait_until_ready()
            comparing.tell()
            result = comparing.result(_SECONDS_MAX)
    return {**result, "messages": result["archived"][0]["rows"]}
