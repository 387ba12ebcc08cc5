"""PostgreSQL 18 from a wheel, for laptops and tests: no installation, no Docker, no root needed (nor minded)."""

from __future__ import annotations

from msgdb.embedded.errors import EmbeddedPostgresError
from msgdb.embedded.server import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "EmbeddedPostgresError"]
