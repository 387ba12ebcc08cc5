"""What a job of the archive may be told."""

from __future__ import annotations

import math

import pytest

from msgbroker.contract.errors import InvalidSettingError
from spark_etl.archive.config import ArchiveConfig
from spark_etl.archive.live import LiveConfig


@pytest.mark.parametrize(
    "name, value",
    [
        ("file_mib", 0),
        ("file_mib", 4_097),
        ("lease_seconds", 0.5),
        ("lease_seconds", 3_601.0),
        ("lease_seconds", math.nan),
        ("replay_seconds_max", -1.0),
        ("replay_seconds_max", math.inf),
        ("grace_days", -1),
        ("grace_days", 10_000_000),
    ],
)
def test_what_is_out_of_bounds_is_refused_by_its_name(name: str, value: float) -> None:
    with pytest.raises(InvalidSettingError, match=rf"{name}.* must be \d+ to \d+"):
        ArchiveConfig("postgresql:///msgdb", "/archive", **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("every_seconds", [-1.0, 3_601.0, math.nan])
def test_a_stream_gathers_for_an_hour_at_most(every_seconds: float) -> None:
    with pytest.raises(InvalidSettingError, match=r"every_seconds.* must be 0 to 3600"):
        LiveConfig("/archive", "/checkpoint", every_seconds)
