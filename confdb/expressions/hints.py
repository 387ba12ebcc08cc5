"""What to write instead of what the compiler has refused: for mistakes that its own words do not lead to. Pure."""

from __future__ import annotations

import re
from typing import Final

_UNDECLARED: Final = re.compile(r"undeclared reference to '([^']+)'")
_HALF_OPERATOR: Final = re.compile(r"token recognition error at: '([=&|])")
_WORD: Final = re.compile(r"Syntax error: (?:mismatched|extraneous) input '(and|or|AND|OR)'")
_NUMBER_COMPARED: Final = re.compile(
    r"'_(?:<|<=|>|>=|==|!=)_' applied to '\((?:string, (?:int|double)|(?:int|double), string)\)'"
)
_DASHED: Final = re.compile(r"headers\.(\w+(?:-\w+)+)")

_OPERATORS: Final = {"=": "==", "&": "&&", "|": "||", "and": "&&", "or": "||"}


def hint(problem: str, text: str) -> str | None:
    """Return what may have been meant in *text*, of which the compiler says *problem*; None where nothing is known."""
    if found := _HALF_OPERATOR.search(problem) or _WORD.search(problem):
        return f"did you mean `{_OPERATORS[found[1].lower()]}`?"
    if "extraneous input '>'" in problem and "<>" in text:
        return "did you mean `!=`?"
    if _NUMBER_COMPARED.search(problem):
        return "headers are text: a number is read as int(headers.NAME)"
    if found := _UNDECLARED.search(problem):
        return _hint_for_name(found[1], text)
    return None


def _hint_for_name(name: str, text: str) -> str | None:
    for dashed in _DASHED.findall(text):
        if name in dashed.split("-")[1:]:
            return f'did you mean headers["{dashed}"]?'
    first, _, rest = name.partition(".")
    if re.search(rf"\b{re.escape(name)}\s*\(", text):
        # A function that there is not.
        return None
    if first.lower() in {"header", "headers"}:
        return f"did you mean headers.{rest}?" if rest else "did you mean headers?"
    if rest:
        return "headers are read as headers.NAME"
    return f'headers are read as headers.{name}, and text is written "{name}"'
