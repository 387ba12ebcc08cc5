"""Who pays for an instance that went away, or hangs, and has not said what it had begun.

It may have died too fast to say anything. Were nobody to pay, a message that ends every process it comes to would do so
for ever. So one message does: of those that the instance still held, the one it was handed first.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgbroker.engine.lane.lane import Lane
from msgbroker.server.log.message import LogMessage


def blame_first(lanes: Iterable[Lane[LogMessage]], instance_name: str) -> bool:
    """Count one message as begun if the instance has begun none; return whether it holds any at all."""
    held = [(first, lane) for lane in lanes if (first := lane.first_held(instance_name)) is not None]
    if held and not any(first.has_begun for first, _ in held):
        first, lane = min(held, key=lambda found: found[0].place)
        lane.begin(instance_name, first.held)
    return bool(held)
