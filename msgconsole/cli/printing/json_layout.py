"""JSON laid out for people without being changed: each number, string and name stays as its publisher wrote it.

Reading and writing it anew would round numbers and drop what is there twice. Pure.
"""

from __future__ import annotations

import json
import re
from typing import Final

_INDENT: Final = "  "
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')
_OPENING: Final = frozenset("[{")
_CLOSING: Final = frozenset("]}")


def lay_out(text: str) -> str | None:
    """Return a JSON text on lines of its own, indented; None: it is no JSON."""
    if not _is_json(text):
        return None
    written: list[str] = []
    depth = 0
    before = ""
    for token in _TOKEN.findall(text):
        if token in _CLOSING:
            depth -= 1
            if before not in _OPENING:
                written.append("\n" + _INDENT * depth)
        elif before in _OPENING or before == ",":
            written.append("\n" + _INDENT * depth)
        elif before == ":":
            written.append(" ")
        if token in _OPENING:
            depth += 1
        written.append(token)
        before = token
    return "".join(written)


def _is_json(text: str) -> bool:
    try:
        # What numbers are worth is not asked: there may be more digits than Python reads. NaN is no JSON.
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> object:
    message = f"{name} is no JSON"
    raise ValueError(message)
