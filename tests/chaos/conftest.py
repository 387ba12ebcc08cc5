"""How long the faults go on: a round in every test run, many with MSGCENTER_CHAOS=long (`make chaos`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_IS_LONG = os.environ.get("MSGCENTER_CHAOS", "") == "long"
_LONG_ROUNDS = 10


@pytest.fixture
def rounds() -> int:
    """Return how often a fault is repeated."""
    return _LONG_ROUNDS if _IS_LONG else 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.chaos)
            item.add_marker(pytest.mark.timeout(900 if _IS_LONG else 120))
            if item.get_closest_marker("long") and not _IS_LONG:
                item.add_marker(pytest.mark.skip(reason="takes minutes: `make chaos` runs it"))
