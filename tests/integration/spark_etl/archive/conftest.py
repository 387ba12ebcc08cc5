"""An archive of the test's own, of a store of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_etl.archive.config import ArchiveConfig


@pytest.fixture
def config(database_url: str, tmp_path: Path) -> ArchiveConfig:
    return ArchiveConfig(url=database_url, place=str(tmp_path / "archive"), file_mib=1)
