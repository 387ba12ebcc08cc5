"""Keyword arguments that arrive in a dict: one that nobody knows, or of another type, is refused by its own name."""

from __future__ import annotations

import difflib
import math
import types
from collections.abc import Iterable, Mapping

from msgbroker.contract.errors import InvalidSettingError


def check_options(callee: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise InvalidSettingError for an argument that *callee* does not take, with the one probably meant."""
    names = list(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            meant = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(names)}"
            raise InvalidSettingError(name, f"is no argument of {callee}: {meant}")


def check_types(given: Mapping[str, object], wanted: Mapping[str, tuple[type, ...]]) -> None:
    """Raise InvalidSettingError for the first argument that is of another type, or a number that is none."""
    for name, value in given.items():
        kinds = wanted[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds and object not in kinds):
            shown = " or ".join("None" if kind is types.NoneType else kind.__name__ for kind in kinds)
            raise InvalidSettingError(name, f"is {value!r} of type {type(value).__name__}; {shown} is wanted")
        if float in kinds and isinstance(value, float) and math.isnan(value):
            raise InvalidSettingError(name, "is nan, which is no number")
