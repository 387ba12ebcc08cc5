"""How wide the columns of a table are, and where their text breaks: pure, so that it can be tried at any width.

Free text breaks at spaces, in a word after the characters that join the parts of a name, and elsewhere only where its
column is narrower than that. Nothing else is ever broken: a number, a name, a time or a state in two lines is read as
two others. A table that is too wide for that leaves out columns, and is wider than the terminal if need be. No
character of a word is ever lost, unless a text is `cut`. Widths are those of a terminal, in cells: many characters
(Chinese, emoji) have two.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from rich.cells import cell_len

GAP: Final = 2
"""How many spaces are between two columns."""
NOTHING: Final = frozenset({"", "-"})
"""What a cell holds where there is nothing to tell."""
_TEXT_MIN: Final = 12
"""A column of free text is read with less only where a word of its title is no longer."""
_LEFT_OUT: Final = "..."
_WORD: Final = re.compile(r"\s+|\S+")
_PIECE: Final = re.compile(r"\s+|[^\s_\-/.,=@]*[_\-/.,=@]+|[^\s_\-/.,=@]+")
_NUMBER: Final = re.compile(r"(about |~)?-?\d[\d,]*(\.\d+)?(e[-+]?\d+)?( \+ \?| [smhd])?")
_NO_NUMBER: Final = NOTHING | {"not known", "it grows", "no instance", "paused"}
"""What is said in a column of numbers where there is none."""


def layout(rows: Sequence[Sequence[str]], width: int, text: Collection[int] = ()) -> list[int]:
    """Return the columns' widths: as wide as their cells if that fits in *width*, the widest narrowed first if not.

    The first row is the head. *text*: the columns of free text, which may be narrower than their cells are.
    """
    columns = list(zip(*rows, strict=True))
    widths = [max(_longest(cell.splitlines()) for cell in column) for column in columns]
    free = [place in text for place in range(len(columns))]
    stages = (
        # Titles of several words in several lines; then free text down to the parts of its words, then through them.
        [_floor(column, is_free=False) for column in columns],
        [_floor(column, is_free=each, by_piece=True) for column, each in zip(columns, free, strict=True)],
        [_floor(column, is_free=each) for column, each in zip(columns, free, strict=True)],
    )
    available = width - GAP * (len(widths) - 1)
    for floors in stages:
        while sum(widths) > available:
            spare = [(each, place) for place, each in enumerate(widths) if each > floors[place]]
            if not spare:
                break
            widths[max(spare)[1]] -= 1
    return widths


def left_out(
    rows: Sequence[Sequence[str]], width: int, text: Collection[int] = (), least: Sequence[int] = ()
) -> list[int]:
    """Return the columns without which the table fits in *width*, or nearly.

    First those are left out that have nothing to tell, the last first; then of *least* those that have zeros alone, and
    then the others of it, in its order.
    """
    columns = list(zip(*rows, strict=True))
    empty = [place for place in range(len(columns) - 1, 0, -1) if NOTHING.issuperset(columns[place][1:])]
    zeros = [place for place in least if (NOTHING | {"0"}).issuperset(columns[place][1:])]
    floors = {place: _floor(column, is_free=place in text) for place, column in enumerate(columns)}
    gone: list[int] = []
    for place in dict.fromkeys((*empty, *zeros, *least)):
        kept = [floor for each, floor in floors.items() if each not in gone]
        if sum(kept) + GAP * (len(kept) - 1) <= width:
            break
        gone.append(place)
    return gone


def is_of_numbers(cells: Sequence[str]) -> bool:
    """Return whether a column has numbers in its *cells*, and nothing else: they are compared by their last digits."""
    said = [cell for cell in cells if cell not in _NO_NUMBER]
    return bool(said) and all(_NUMBER.fullmatch(cell) for cell in said)


def _floor(column: Sequence[str], *, is_free: bool, by_piece: bool = False) -> int:
    """Return how wide a column is at least; its title breaks between words alone."""
    title, *cells = column
    words = _longest(title.split())
    longest = max((_longest(cell.splitlines()) for cell in cells), default=0)
    if not is_free:
        return max(words, longest)
    pieces = max((_longest(_pieces(cell)) for cell in cells), default=0)
    return max(words, min(longest, max(_TEXT_MIN, pieces) if by_piece else _TEXT_MIN))


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
    for word in _WORD.findall(text):
        for piece in [word] if cell_len(word) <= width else _pieces(word):
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
