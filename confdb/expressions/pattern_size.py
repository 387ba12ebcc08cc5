"""How large a regular expression is once it is compiled, by its text: `matches` compiles its pattern for every message.

Only an estimate, and only ever of the size: whether a pattern is well-formed is the matter of whoever compiles it. What
repeats with `{n}` is there n times.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# Instructions that one character takes, measured against a letter (RE2 compiles to bytes of UTF-8).
_LETTER: Final = 1
_NOT_ASCII: Final = 4
_ANY: Final = 7
_UNICODE_CLASS: Final = 4_000
_CLASS_ESCAPES: Final = {"d": 1, "s": 2, "w": 3, "D": 8, "S": 8, "W": 10}
_CASE_FOLDED_TIMES: Final = 5
_WAYS: Final = 3
"""What `?`, `*` and the like are to a place: each way is followed on its own."""
_SIZE_MAX: Final = 10**9

_REPEAT: Final = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
_GROUP_KIND: Final = re.compile(r"\?(?:P?<[^>]*>|([a-zA-Z-]*)[:)])")
_CLASS: Final = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]?", re.DOTALL)
_UNICODE_NAME: Final = re.compile(r"[pP](?:\{[^}]*\}?|.)?", re.DOTALL)
_CODE_POINT: Final = re.compile(r"x(?:\{[0-9a-fA-F]+\}|[0-9a-fA-F]{2})|[0-7]{1,3}")
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)


@dataclass(slots=True)
class PatternSize:
    """How large a pattern becomes when it is compiled and looked for."""

    instructions: int = 0
    """How many instructions it compiles to: compiling takes time by these."""
    positions: int = 0
    """How many places a match may stand at: looking at a character takes time by these, at worst."""

    def add(self, other: PatternSize) -> None:
        """Add the size of a pattern that follows this one."""
        self.instructions = min(_SIZE_MAX, self.instructions + other.instructions)
        self.positions = min(_SIZE_MAX, self.positions + other.positions)

    def repeat(self, times: int) -> None:
        """Let it be there so many times."""
        self.instructions = min(_SIZE_MAX, self.instructions * times)
        self.positions = min(_SIZE_MAX, self.positions * times)

    def branch(self) -> None:
        """Let there be another way at this place."""
        self.instructions += 1
        self.positions += _WAYS


def pattern_size(pattern: str) -> PatternSize:
    """Return the size of *pattern*; what cannot be read counts as letters."""
    # A frame for each open group: what is complete in it, and its last piece, which a repetition may follow.
    frames = [(PatternSize(), PatternSize())]
    is_case_folded = False
    at = 0
    while at < len(pattern):
        whole, last = frames[-1]
        character = pattern[at]
        repeat = _REPEAT.match(pattern, at) if character == "{" else None
        at += 1
        if character in "*+?|":
            last.branch()
        elif repeat is not None:
            least, most = int(repeat[1]), int(repeat[2] or repeat[1])
            if repeat[0] != f"{{{least}}}":
                last.branch()
            last.repeat(max(1, least, most))
            at = repeat.end()
        elif character == "(":
            kind = _GROUP_KIND.match(pattern, at)
            if kind is not None:
                is_case_folded = is_case_folded or "i" in (kind[1] or "")
                at = kind.end()
            if kind is None or not kind[0].endswith(")"):
                frames.append((PatternSize(2), PatternSize()))
        elif character == ")" and len(frames) > 1:
            whole.add(last)
            frames.pop()
            _follow(frames, whole)
        else:
            at, pieces = _pieces(pattern, at - 1)
            for piece in pieces:
                _follow(frames, piece)
    total = PatternSize()
    for whole, last in frames:
        total.add(whole)
        total.add(last)
    if is_case_folded:
        total.instructions = min(_SIZE_MAX, total.instructions * _CASE_FOLDED_TIMES)
    return total


def _follow(frames: list[tuple[PatternSize, PatternSize]], piece: PatternSize) -> None:
    whole, last = frames[-1]
    whole.add(last)
    frames[-1] = (whole, piece)


def _pieces(pattern: str, at: int) -> tuple[int, list[PatternSize]]:
    """Return where what is at *at* ends, and its sizes: a character, a class, an escape, or what is quoted."""
    quoted = _QUOTED.match(pattern, at)
    if quoted is not None:
        # Letter by letter: what repeats behind it is the last one.
        return quoted.end(), [_letter(character) for character in quoted[1]]
    character = pattern[at]
    if character == "[":
        found = _CLASS.match(pattern, at)
        assert found is not None
        return found.end(), [PatternSize(_class_size(found[0]), 1)]
    if character == "\\" and at + 1 < len(pattern):
        name = _UNICODE_NAME.match(pattern, at + 1)
        if name is not None:
            return name.end(), [PatternSize(_UNICODE_CLASS, 1)]
        code_point = _CODE_POINT.match(pattern, at + 1)
        if code_point is not None:
            return code_point.end(), [PatternSize(_NOT_ASCII, 1)]
        return at + 2, [PatternSize(_CLASS_ESCAPES.get(pattern[at + 1], _LETTER), 1)]
    return at + 1, [PatternSize(_ANY, 1) if character == "." else _letter(character)]


def _letter(character: str) -> PatternSize:
    return PatternSize(_LETTER if character.isascii() else _NOT_ASCII, 1)


def _class_size(text: str) -> int:
    if re.search(r"\\[pP]", text):
        return _UNICODE_CLASS
    size = len(text) // 4 + sum(_CLASS_ESCAPES.get(name, 0) for name in re.findall(r"\\(.)", text, re.DOTALL))
    if text.startswith("[^") or not text.isascii() or "[:^" in text:
        size += _ANY
    return max(1, size)
