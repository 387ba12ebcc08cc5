"""Archiving a day of many messages with one GiB of memory for Spark's executor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.bench.archive.server import serving_postgres
from tests.bench.archive.setting import Sizes, day_before_today, worker
from tests.bench.archive.spending import MemoryPeaks
from tests.bench.archive.stored_day import store_day

MEMORY: Final = "1g"
_SECONDS_MAX: Final = 3_600.0


def archive_many(directory: Path, sizes: Sizes, say: Callable[[str], None]) -> dict[str, Any]:
    """Return what it took, and the memory of its processes."""
    day = day_before_today(1)
    more = {
        "day": f"{day}",
        # In local mode the driver's Java is the executor's, too.
        "settings": {"spark.driver.memory": MEMORY},
        "warms_up": False,
        "until_stopped": False,
        "nice": 0,
    }
    with serving_postgres(directory) as server:
        say(f"Storing a day of {sizes.many_messages:,} messages ...")
        store_day(server.url, day, sizes.many_messages)
        say(f"Archiving it with {MEMORY} of memory ...")
        with worker("archive", server.url, server.pid, directory, sizes, **more) as archiving:
            archiving.wait_until_ready()
            with MemoryPeaks(archiving.pid) as peaks:
                archiving.tell()
                (archived,) = archiving.result(_SECONDS_MAX)["archived"]
    return {**archived, "rss_bytes": dict(peaks.bytes), "largest_worker_bytes": peaks.largest_worker}
