"""Fixtures for tests on more than one server."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.replicated_postgres import ReplicatedPostgres


@pytest.fixture
def replicated() -> Iterator[ReplicatedPostgres]:
    """Return a primary with migrated databases and a standby that follows it."""
    with tempfile.TemporaryDirectory(prefix="msgcenter-replicated-") as directory:
        postgres = ReplicatedPostgres.start(Path(directory))
        try:
            yield postgres
        finally:
            postgres.stop()


@pytest.fixture
def synchronous(replicated: ReplicatedPostgres) -> ReplicatedPostgres:
    """Return a primary whose commits wait for its standby."""
    replicated.make_synchronous()
    return replicated
