"""Keyword arguments that arrive in a dict: one that nobody knows is refused by its own name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from msgbroker.contract.errors import InvalidSettingError


def check_options(callee: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise InvalidSettingError for an argument that *callee* does not take, with the one probably meant."""
    names = list(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            meant = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(names)}"
            raise InvalidSettingError(name, f"is no argument of {callee}: {meant}")
