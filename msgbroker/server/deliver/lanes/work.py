"""The kinds of work on a lane that may fail by themselves: each is set aside and tried again alone."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from msgdb.lanes.records import LaneKey


class Work(StrEnum):
    """What is done for a lane, in the words of its alarm."""

    CLAIMING = "claiming"
    RENEWING = "renewing its lease"
    SERVING = "serving"
    """All that happens to a lane in memory."""
    LOOKING = "looking for its queue's end"
    READING = "reading"
    FETCHING = "reading again what comes again"
    PERSISTING = "persisting"
    EVALUATING = "its expressions"
    RELEASING = "giving it up"
    """Giving the lane up; not tried again, as its lease passes anyway."""


class LaneWork(NamedTuple):
    """Work of one kind on one lane."""

    key: LaneKey
    work: Work
