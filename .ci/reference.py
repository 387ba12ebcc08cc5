"""What the site's reference makes of docstrings.

There, examples stand bare, as it reads best: the site shows them as code. A member that says it is for the client
itself is none of an application's, and left out.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^( *)Example:\n((?:(?:\1 .*)?\n)*(?:\1 .*))", re.MULTILINE)
_NOT_FOR_APPLICATIONS = ("for the client itself", "not for applications")


class Reference(griffe.Extension):
    """Reads docstrings for the reference."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Take one of what was read from the sources."""
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)
        for name, member in list(obj.members.items()):
            if not member.is_alias and member.docstring and _is_internal(member.docstring.value):
                obj.del_member(name)


def _is_internal(docstring: str) -> bool:
    return any(words in docstring for words in _NOT_FOR_APPLICATIONS)


def _fenced(example: re.Match[str]) -> str:
    indent = f"{example[1]}    "
    return f"{example[1]}Example:\n{indent}```python\n{example[2]}\n{indent}```"
