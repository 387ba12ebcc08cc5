"""How wide the columns of a table are, and where their text breaks: pure, so that it can be tried at any width.

Text breaks at spaces, and after the characters that join the parts of a name; inside a word only where a column would
otherwise be wider than the table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

GAP: Final = 2
"""Between two columns."""
_WIDTH_MIN: Final = 4
_PIECE: Final = re.compile(r"\s+|[^\s_\-/.,=@]*[_\-/.,=@]+|[^\s_\-/.,=@]+")


def layout(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the columns' widths: as wide as their text if that fits in *width*, the widest narrowed first if not."""
    columns = list(zip(*rows, strict=True))
    widths = [max(_longest(text.splitlines()) for text in column) for column in columns]
    by_piece = [max(_longest(_pieces(text)) for text in column) for column in columns]
    available = width - GAP * (len(widths) - 1)
    # First down to whole pieces of names, then, if need be, through them.
    for floors in (by_piece, [min(_WIDTH_MIN, each) for each in by_piece]):
        while sum(widths) > available:
            spare = [(each, index) for index, each in enumerate(widths) if each > floors[index]]
            if not spare:
                break
            widths[max(spare)[1]] -= 1
    return widths


def wrap(text: str, width: int) -> str:
    """Return *text* in lines of *width* at most."""
    return "\n".join(line for paragraph in text.splitlines() for line in _lines(paragraph, width))


def _lines(text: str, width: int) -> list[str]:
    lines = [""]
    for piece in _pieces(text):
        rest = piece
        if len(lines[-1]) + len(rest.rstrip()) > width and lines[-1]:
            lines.append("")
            rest = rest.lstrip()
        while len(rest) > width:
            lines[-1] = rest[:width]
            rest = rest[width:]
            lines.append("")
        lines[-1] += rest
    return [line.rstrip() for line in lines if line.strip()] or [""]


def _pieces(text: str) -> list[str]:
    return _PIECE.findall(text)


def _longest(pieces: Sequence[str]) -> int:
    return max((len(piece.strip()) for piece in pieces), default=0)
