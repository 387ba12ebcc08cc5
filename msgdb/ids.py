"""Message ids: UUIDv7, minted by the broker in runs of consecutive numbers."""

from __future__ import annotations

import secrets
import time
from typing import Final

RUN_MAX: Final = 1 << 20
_VERSION: Final = 7 << 76
_VARIANT: Final = 2 << 62
_RANDOM_A_BITS: Final = 12
_RUN_FREE_BITS: Final = 42


def mint_run(now_us: int | None = None) -> int:
    """Return the first number of a run: RUN_MAX ids follow it without a collision with other runs.

    The time is in the first 48 bits, the random part above the last 20 bits, so a run counts up in place.
    """
    milliseconds = (now_us if now_us is not None else time.time_ns() // 1_000) // 1_000
    random_a = secrets.randbits(_RANDOM_A_BITS) << 64
    random_b = secrets.randbits(_RUN_FREE_BITS) << 20
    return milliseconds << 80 | _VERSION | random_a | _VARIANT | random_b


def to_bytes(number: int) -> bytes:
    """Return an id's 16 bytes."""
    return number.to_bytes(16, "big")


def time_us_of(message_id: bytes) -> int:
    """Return when an id was minted, to the millisecond, in microseconds since 1970."""
    return int.from_bytes(message_id[:6], "big") * 1_000
