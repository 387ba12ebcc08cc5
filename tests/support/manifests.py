"""A manifest as a run writes it, for tests that are not about what is in it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from uuid import UUID

from spark_etl.files.manifest import Manifest


def make_manifest(day: date) -> Manifest:
    """Return the manifest of a day without messages."""
    return Manifest(
        table="message",
        day=day,
        run_id=UUID(int=1),
        base_run_id=None,
        system_identifier="7412",
        timeline="00000001",
        closed_at=datetime(2026, 11, 18, 0, 0, 1, tzinfo=UTC),
        written_at=datetime(2026, 11, 18, 0, 5, tzinfo=UTC),
        columns=(("queue_id", "int64"),),
        digests=(),
        files=(),
    )
