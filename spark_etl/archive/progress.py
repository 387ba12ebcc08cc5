"""How far a run is, told while Spark works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """What a run is doing, as people are told."""

    CLAIMING = "claiming the day"
    CLOSING = "waiting for what is in flight"
    WAITING = "waiting for the replica"
    WRITING = "writing and verifying"
    MARKING = "marking it archived"
    FOLLOWING = "following the log"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is."""

    step: Step
    parts_done: int = 0
    parts: int = 0
    rows: int = 0
    """How many rows the day has, about, as soon as that is known."""
    of: str = ""
    """Which table and day it is, where there are several."""


Tell = Callable[[Progress], None]


def tell_nobody(_progress: Progress) -> None:
    """Take no notice."""
