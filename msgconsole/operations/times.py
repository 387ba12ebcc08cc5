"""The times between which something is asked for: one check for all that takes two of them."""

from __future__ import annotations

from datetime import datetime

from msgbroker.contract.errors import InvalidSettingError


def check_order(since: datetime | None, until: datetime | None) -> None:
    """Raise InvalidSettingError where nothing can lie between two times; None: it is not bounded there."""
    if since is not None and until is not None and since >= until:
        raise InvalidSettingError("since", "must be before the end of the time that is asked for")
