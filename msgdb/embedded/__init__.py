"""PostgreSQL 18 from a wheel, for laptops and tests: no installation, no Docker, no root needed (nor minded)."""

from __future__ import annotations

from msgbroker.contract.errors import EmbeddedPostgresError
from msgdb.embedded.server import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "EmbeddedPostgresError"]
