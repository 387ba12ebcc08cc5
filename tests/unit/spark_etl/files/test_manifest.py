"""A manifest says the same after it was written and read, and what is none is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgbroker.contract.errors import ManifestUnreadableError
from spark_etl.files.manifest import ArchiveFile, Extent, FileRange, Manifest, QueueDigest, from_json, to_json

FILE = ArchiveFile(
    path="message/day=2026-11-17/run=x/part-0.parquet",
    bytes=1_000,
    sha256="ab" * 32,
    rows=3,
    ranges=(FileRange(7, 10, 12, 3),),
    topics=("default/TP_TRADE",),
    message_id=Extent("a", "b"),
    key=Extent(None, None),
    time=Extent("2026-11-17T00:00:00+00:00", "2026-11-17T01:00:00+00:00"),
)
MANIFEST = Manifest(
    table="message",
    day=date(2026, 11, 17),
    run_id=UUID(int=1),
    base_run_id=None,
    system_identifier="7412",
    timeline="00000001",
    closed_at=datetime(2026, 11, 18, 0, 0, 1, tzinfo=UTC),
    written_at=datetime(2026, 11, 18, 0, 5, tzinfo=UTC),
    columns=(("queue_id", "int64"), ("key", "string")),
    digests=(QueueDigest(7, 10, 12, 3, "crc32c:00"),),
    files=(FILE,),
)


@given(
    st.builds(
        replace,
        st.just(MANIFEST),
        day=st.dates(),
        run_id=st.uuids(),
        base_run_id=st.none() | st.uuids(),
        timeline=st.text(),
        closed_at=st.none() | st.datetimes(timezones=st.just(UTC)),
        files=st.lists(
            st.builds(replace, st.just(FILE), key=st.builds(Extent, st.none() | st.text(), st.none() | st.text()))
        ).map(tuple),
    )
)
def test_what_was_written_is_what_is_read(manifest: Manifest) -> None:
    assert from_json(to_json(manifest), "here") == manifest


def test_it_begins_with_what_people_look_for() -> None:
    fields = json.loads(to_json(MANIFEST))

    assert list(fields)[:3] == ["format", "version", "totals"]
    assert fields["totals"] == {"rows": 3, "bytes": 1_000, "files": 1}


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "JSONDecodeError"),
        ("[]", "AttributeError"),
        ("{}", "format"),
        (to_json(MANIFEST)[:-100], "JSONDecodeError"),
        (to_json(MANIFEST).replace('"version": 1', '"version": 2'), "of version 2, and 1 is read here"),
        (to_json(MANIFEST).replace('"rows": 3,\n', '"rows": 4,\n', 1), "totals"),
        (to_json(MANIFEST).replace('"sha256"', '"sha"'), "KeyError"),
        (to_json(MANIFEST).replace('"totals"', '"total"'), "KeyError: 'totals'"),
    ],
)
def test_what_is_no_manifest_is_refused_by_its_place(text: str, problem: str) -> None:
    with pytest.raises(ManifestUnreadableError, match=problem) as raised:
        from_json(text, "s3://archive/_manifest.json")

    assert raised.value.path == "s3://archive/_manifest.json"
