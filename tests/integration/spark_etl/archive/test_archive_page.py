"""The queries of docs/archive.md run as they are written, on an archive."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from msgdb.postgres.connections import Connection
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.job import run
from tests.support.rows import make_queue, put_messages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PAGE = Path(__file__).parents[4] / "docs" / "archive.md"


async def test_the_queries_of_the_page_run(
    spark: SparkSession, conn: Connection, config: ArchiveConfig, capfd: pytest.CaptureFixture[str]
) -> None:
    await put_messages(conn, await make_queue(conn), range(10), days_ago=1)
    day = (datetime.now(UTC) - timedelta(days=1)).date()
    await asyncio.to_thread(run, spark, config, day)
    queries = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    at_hand: dict[str, Any] = {"PLACE": config.place, "DAY": f"{day}", "spark": spark}

    for query in queries:
        exec(query, at_hand)  # noqa: S102 - what the page tells people to type

    assert len(queries) == 4
    said = capfd.readouterr().out
    assert re.search(r"EC_PAID\s+│\s+10\b", said), said
    assert re.search(r"TP_TRADE\s+10\b", said), said
    assert re.search(r"\|TP_TRADE\|\s*hz\|\s*10\|", said), said
