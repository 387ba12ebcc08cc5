"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import date
from enum import Enum
from typing import Any, Final
from uuid import UUID

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from msgconsole.cli.printing.streams import print_text, takes_all_characters
from msgconsole.cli.printing.table_layout import GAP, NOTHING, cut, is_of_numbers, layout, left_out, wrap

_TIME: Final = re.compile(r"(?P<day>\d{4}-\d\d-\d\d)T(?P<time>\d\d:\d\d:\d\d)(?P<fraction>\.\d+)?(\+00:00|Z)\Z")
_PIPED_WIDTH: Final = 240
LONG_CELLS_MAX: Final = 80
"""How much of an error a table shows: its beginning mostly says it, and a list is read for what happened to what."""
_FREE_TEXT: Final = frozenset(
    {
        "changed",
        "description",
        "detail",
        "error",
        "example",
        "expression",
        "failure",
        "last error",
        "last failed header",
        "meaning",
        "problem",
        "reason",
        "requires",
        "thing",
        "value",
        "wants",
        "what",
        "who and why",
    }
)
"""The columns, in all tables, whose text may be broken. Whatever else they have is copied, or compared."""
_OBEYED: Final = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""What terminals obey beyond ASCII: a second set of controls, ends of lines, and what turns the direction of text."""
_CONTROL: Final = re.compile(rf"[\x00-\x08\x0b-\x1f{_OBEYED}]")
_CONTROL_IN_JSON: Final = re.compile(f"[{_OBEYED}]")


def console() -> Console:
    """Return the console of standard output; wide where neither a terminal nor COLUMNS limits it."""
    is_limited = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    return Console(width=None if is_limited else _PIPED_WIDTH, highlight=False)


def print_json(value: object) -> None:
    """Print *value* (dataclasses, times, enums allowed) as one JSON document."""
    print_text(as_json_text(value, indent=2))


def as_json_text(value: object, *, indent: int | None = None) -> str:
    """Return *value* as a line of JSON, or several; escaped where standard output does not have all characters."""
    text = json.dumps(plain(value), indent=indent, ensure_ascii=not takes_all_characters())
    # Of what a terminal obeys JSON itself escapes the ASCII controls alone. It reads as before.
    return _CONTROL_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def print_rows(
    rows: Iterable[object],
    columns: Sequence[str],
    *,
    as_json: bool,
    empty: str,
    long: Collection[str] = (),
    least: Sequence[str] = (),
) -> None:
    """Print *rows* (dataclasses or mappings): all of them as JSON, or *columns* of them as a table.

    *long*: columns whose text is cut in a table; there is a way to see all of it. *least*: those that a narrow terminal
    does without, the first one first.
    """
    records: list[dict[str, Any]] = [plain(row) for row in rows]
    if as_json:
        print_json(records)
    elif not records:
        print_line(empty)
    else:
        print_table(
            [_title(column) for column in columns],
            [[_in_table(record[column], is_long=column in long) for column in columns] for record in records],
            least=[_title(column) for column in least],
        )


def _title(column: str) -> str:
    return column.replace("_", " ")


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, least: Sequence[str] = ()) -> None:
    """Print *rows* below *head*, in the width there is if they can be; what is left out of *least* is told."""
    text = [place for place, title in enumerate(head) if title in _FREE_TEXT]
    # What is no free text has one line: a second one, of a key, say, would look like another row.
    cells = [[_cell(each) if at in text else on_one_line(each) for at, each in enumerate(row)] for row in rows]
    out = left_out([head, *cells], console().width, text, [head.index(title) for title in least if title in head])
    kept = [place for place in range(len(head)) if place not in out]
    # A space of padding and one of the box are the gap that the layout counts with.
    _print_columns(
        Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0)),
        [head[place] for place in kept],
        [[row[place] for place in kept] for row in cells],
        [index for index, place in enumerate(kept) if place in text],
    )
    told = [head[place] for place in sorted(out) if not NOTHING.issuperset(row[place] for row in cells)]
    if told:
        typer.echo(f"Too narrow for: {', '.join(told)}. --json shows all.", err=True)


def print_thing(thing: object, *, as_json: bool) -> None:
    """Print one thing: as JSON, or field by field."""
    record: dict[str, Any] = plain(thing)
    if as_json:
        print_json(record)
        return
    _print_columns(
        Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0)),
        ("", ""),
        [[name, _cell(_of_a_thing(value))] for name, value in _fields(record)],
        text=[1],
        aligned=False,
    )


def _fields(record: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Give the fields of a thing with their titles; of one that has fields itself (headers, say), each by its name."""
    for name, value in record.items():
        if isinstance(value, dict) and value:
            yield from ((on_one_line(f"{_title(name)}: {inner}"), each) for inner, each in value.items())
        else:
            yield on_one_line(_title(name)), value


def _of_a_thing(value: object) -> str:
    """Return *value* where there is room for it: times (UTC) as exact as they are."""
    if isinstance(value, str) and (time := _TIME.match(value)):
        return f"{time['day']} {time['time']}{time['fraction'] or ''} UTC"
    return shown(value) or "-"


def _print_columns(
    table: Table,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    text: Collection[int],
    *,
    aligned: bool = True,
) -> None:
    target = console()
    widths = layout([head, *rows], target.width, text)
    # Where columns have reached what is the least for one, the terminal breaks the lines: a table would cut them.
    target.width = max(target.width, sum(widths) + GAP * (len(widths) - 1))
    for place, (title, width) in enumerate(zip(head, widths, strict=True)):
        is_right = aligned and is_of_numbers([row[place] for row in rows])
        table.add_column(Text(wrap(title, width)), width=width, no_wrap=True, justify="right" if is_right else "left")
    for row in rows:
        table.add_row(*(Text(wrap(cell, width)) for cell, width in zip(row, widths, strict=True)))
    with target.capture() as captured:
        target.print(table)
    print_text("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def print_line(text: str) -> None:
    """Print a sentence on a line of its own, whoever wrote what it quotes."""
    print_text(visible(text) + "\n")


def visible(text: str) -> str:
    """Return *text* with what a terminal would obey, instead of showing it, written out; lines and tabs stay."""
    return _CONTROL.sub(_written_out, text.replace("\r\n", "\n"))


def on_one_line(text: str) -> str:
    """Return *text* as `visible` does, its ends of lines written out, too: nothing in it looks like a line of ours."""
    return visible(text).replace("\n", "\\n").replace("\t", " ")


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code > 0xFF else f"\\x{code:02x}"


def shown(value: object) -> str:
    """Return *value* as a person reads it."""
    if value is None or value in ([], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return " ".join(shown(item) for item in value)
    if isinstance(value, dict):
        return " ".join(f"{key}={shown(item)}" for key, item in value.items())
    return str(value)


def _cell(text: str) -> str:
    # In a column there is nothing that a tab could be aligned with.
    return visible(text).replace("\t", " ")


def _in_table(value: object, *, is_long: bool) -> str:
    """Return *value* for a table: times (UTC) to the second, of long texts the beginning."""
    if isinstance(value, str) and (time := _TIME.match(value)):
        return f"{time['day']} {time['time']}"
    return cut(visible(shown(value)), LONG_CELLS_MAX) if is_long else shown(value)


def body_record(body: bytes) -> dict[str, str]:
    """Return a message's body as a record shows it: as text, or in base64 where it is none."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def plain(value: object) -> Any:
    """Return *value* in the types of JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return _plain_scalar(value)


def _plain_scalar(value: object) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (str, int, float)) or value is None:
        return value
    if isinstance(value, date):
        # A time is one, too.
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, UUID):
        return str(value)
    message = f"{type(value).__name__} has no JSON form"
    raise TypeError(message)
