"""What may hold a password or a key shows it nowhere: not where a value is printed, as logs and tracebacks do."""

from __future__ import annotations

import pytest

from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.live import LiveConfig
from spark_etl.archive.parts import PartInputs
from spark_etl.archive.verify import _FileInputs
from spark_etl.files.digest import DigestKind
from spark_etl.files.places import Place
from spark_etl.source.contract import SOURCES
from spark_etl.source.options import batch_options, stream_options
from spark_etl.source.reading import TaskReader

URL = "postgresql://ada:hush@db/msgdb"
PLACE = "s3://AKIA:hush@bucket/archive"
STORE = {"url": URL, "replica_url": URL}


@pytest.mark.parametrize(
    "value",
    [
        ArchiveConfig(URL, PLACE, replica_url=URL),
        LiveConfig(PLACE, "/checkpoint"),
        PartInputs(URL, PLACE, "message/day=2026-11-17", "message", "message", (), DigestKind.SHA256),
        _FileInputs(PLACE, "message"),
        batch_options(STORE),
        stream_options(STORE),
        TaskReader(URL, SOURCES["message"], ()),
        Place.at(f"{PLACE}?region=eu-central-1&endpoint_override=127.0.0.1:1&scheme=http"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_secret_is_not_shown(value: object) -> None:
    assert "hush" not in repr(value)
