"""How long something takes, or has taken, as people read it."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "m"), (0.0, "s"))


def length(seconds: float | None) -> str | None:
    """Return a length of time in the unit that tells it best."""
    if seconds is None:
        return None
    unit_seconds, unit = next(each for each in _UNITS if seconds >= each[0])
    return f"{seconds / max(unit_seconds, 1.0):.0f} {unit}"
