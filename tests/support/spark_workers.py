"""The processes in Python that tasks of this process's Spark run in."""

from __future__ import annotations

from contextlib import suppress

import psutil


def list_workers() -> list[psutil.Process]:
    """Return those that are alive, with the one that they are forked from."""
    found = []
    for process in psutil.Process().children(recursive=True):
        # One may end while it is looked at.
        with suppress(psutil.NoSuchProcess):
            if "pyspark.daemon" in process.cmdline():
                found.append(process)
    return found
