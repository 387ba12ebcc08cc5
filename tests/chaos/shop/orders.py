"""What the shop's parts agree on."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel

TOPIC: Final = "TP_SHOP"
PLACED: Final = "EC_PLACED"
OPENED: Final = "EC_OPENED"
POINTS: Final = "SG_POINTS"
STOCK: Final = "SG_STOCK"


class Order(BaseModel):
    """An order."""

    number: int
    kind: Literal["plain", "slow", "flaky", "never"]
    """What handling it is like: quick; longer than the ack timeout; failing at first; failing for good."""
