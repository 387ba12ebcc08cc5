"""Retention can be set down, not up."""

from __future__ import annotations

import pytest

from msgbroker.contract.errors import InvalidSettingError
from msgdb.days.maintenance import MaintenanceConfig


@pytest.mark.parametrize("days", [1, 7])
def test_retention_within_its_bounds_is_taken(days: int) -> None:
    assert MaintenanceConfig(retention_days={"message": days}).retention_days == {"message": days}


@pytest.mark.parametrize("days", [0, 8])
def test_retention_out_of_its_bounds_is_refused(days: int) -> None:
    with pytest.raises(InvalidSettingError, match="retention of message"):
        MaintenanceConfig(retention_days={"message": days})
