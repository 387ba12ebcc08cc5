"""What all tables share: the metadata with its names, times, and how those are kept that are updated all the time."""

from __future__ import annotations

from typing import Final

from sqlalchemy import DateTime, MetaData

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
    }
)

UPDATED_IN_PLACE: Final = {
    "fillfactor": "50",
    "autovacuum_vacuum_threshold": "500",
    "autovacuum_vacuum_scale_factor": "0.02",
    "vacuum_truncate": "off",
}
"""Bounds on what a dead tuple costs, of tables whose rows are updated in place all the time."""


def timestamp() -> DateTime:
    """Return the type of a time: with a zone, always."""
    return DateTime(timezone=True)
