"""Which client this is, as operators see it among those that are connected."""

from __future__ import annotations

import importlib.metadata
from functools import cache


@cache
def client_version() -> str:
    """Return the client's name and version; without the version where it was not installed as a package."""
    try:
        return f"python/{importlib.metadata.version('msgcenter')}"
    except importlib.metadata.PackageNotFoundError:
        return "python"
