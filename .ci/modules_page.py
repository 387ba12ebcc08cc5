"""Write docs/modules.md: every module with the sentence that it opens with, room by room.

Used by `make modules`, and with `--check` by `make check`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_PAGE = _ROOT / "docs" / "modules.md"
_PACKAGES = (
    "msgbroker/contract",
    "msgbroker/client",
    "msgbroker/server",
    "msgbroker/engine",
    "msgdb",
    "confdb",
    "msgconsole",
)
_HEAD = """\
# Modules

Every module, and the sentence that it opens with: to look through for a word, where the
[architecture](architecture.md) names only the room. Written by `make modules` from the modules themselves.
"""


def page() -> str:
    """Return the page as it should be."""
    rooms = sorted({path.parent for package in _PACKAGES for path in (_ROOT / package).rglob("*.py")})
    return "\n".join([_HEAD, *(line for room in sorted(rooms, key=_order) for line in _section(room))])


def _order(room: Path) -> tuple[int, str]:
    name = room.relative_to(_ROOT).as_posix()
    package = next(number for number, package in enumerate(_PACKAGES) if f"{name}/".startswith(f"{package}/"))
    return package, name


def _section(room: Path) -> Iterator[str]:
    modules = sorted(path for path in room.glob("*.py") if path.name not in {"__init__.py", "__main__.py"})
    if modules:
        yield f"## {room.relative_to(_ROOT).as_posix()}\n"
        yield f"{_first_sentence(room / '__init__.py')}\n"
        yield from (f"- `{path.stem}`: {_first_sentence(path)}" for path in modules)
        yield ""


def _first_sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


if __name__ == "__main__":
    if "--check" not in sys.argv[1:]:
        _PAGE.write_text(page())
    elif _PAGE.read_text() != page():
        message = "docs/modules.md is not what the modules say: run `make modules`"
        raise SystemExit(message)
