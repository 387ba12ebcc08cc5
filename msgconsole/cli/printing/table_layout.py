"""How wide the columns of a table are, and where their text breaks: pure, so that it can be tried at any width.

Text breaks at spaces, and after the characters that join the parts of a name; inside a word only where a column would
otherwise be wider than the table. No character of a word is ever lost, unless a text is `cut`. Widths are those of a
terminal, in cells: many characters (Chinese, emoji) have two.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from rich.cells import cell_len

GAP: Final = 2
"""How many spaces are between two columns."""
_WIDTH_MIN: Final = 4
_LEFT_OUT: Final = "..."
_PIECE: Final = re.compile(r"\s+|[^\s_\-/.,=@]*[_\-/.,=@]+|[^\s_\-/.,=@]+")


def layout(rows: Sequence[Sequence[str]], width: int, whole: Collection[int] = ()) -> list[int]:
    """Return the columns' widths: as wide as their text if that fits in *width*, the widest narrowed first if not.

    *whole*: columns that are never narrowed, of what people copy.
    """
    columns = list(zip(*rows, strict=True))
    widths = [min(max(width, _WIDTH_MIN), max(_longest(text.splitlines()) for text in column)) for column in columns]
    by_piece = [max(_longest(_pieces(text)) for text in column) for column in columns]
    available = width - GAP * (len(widths) - 1)
    # First down to whole pieces of names, then, if need be, through them.
    by_character = [min(_WIDTH_MIN, each) for each in by_piece]
    for place in whole:
        longest = max(_longest(text.splitlines()) for text in columns[place])
        widths[place] = by_piece[place] = by_character[place] = longest
    for floors in (by_piece, by_character):
        while sum(widths) > available:
            spare = [(each, index) for index, each in enumerate(widths) if each > floors[index]]
            if not spare:
                break
            widths[max(spare)[1]] -= 1
    return widths


def wrap(text: str, width: int) -> str:
    """Return *text* in lines of *width* at most."""
    return "\n".join(line for paragraph in text.splitlines() for line in _lines(paragraph, width))


def cut(text: str, width: int) -> str:
    """Return *text* in one line of *width* at most, with dots where something is left out."""
    line = " ".join(text.split())
    if cell_len(line) <= width:
        return line
    return _parts(line, width - cell_len(_LEFT_OUT))[0].rstrip() + _LEFT_OUT


def _lines(text: str, width: int) -> list[str]:
    lines = [""]
    for piece in _pieces(text):
        # A gap that does not fit ends its line: what it is too long by is no text.
        if not piece.isspace() and lines[-1] and cell_len(lines[-1] + piece) > width:
            lines.append("")
        if piece.isspace() or cell_len(piece) <= width:
            lines[-1] += piece
        else:
            lines[-1:] = _parts(piece, width)
    return [line.rstrip() for line in lines if line.strip()] or [""]


def _parts(word: str, width: int) -> list[str]:
    """Return *word* cut into parts of *width* at most, of a character at least."""
    parts = []
    start = 0
    while start < len(word):
        # Marks have no width of their own, and stay with their letter.
        end = min(start + 2 * width, len(word))
        while (over := cell_len(word[start:end]) - width) > 0 and end > start + 1:
            end -= max(1, over // 2)
        parts.append(word[start:end])
        start = end
    return parts


def _pieces(text: str) -> list[str]:
    return _PIECE.findall(text)


def _longest(pieces: Sequence[str]) -> int:
    return max((cell_len(piece.strip()) for piece in pieces), default=0)
