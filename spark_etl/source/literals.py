"""Values and names written into statements: COPY takes no parameters. Pure.

Whatever a text holds, it gets there as hexadecimal digits: no quote and no backslash of it is ever part of a statement.
"""

from __future__ import annotations

from datetime import UTC, date, datetime

Value = int | str | bool | datetime | date


def literal(value: Value, cast_to: str | None = None) -> str:
    """Return *value* as SQL has it; a text as the type *cast_to*, if one is given.

    Raises ValueError for what PostgreSQL has no such value of: a text with NUL in it, a time without its zone.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case str():
            written = _text(value)
            return f"{written}::{cast_to}" if cast_to else written
        case datetime():
            return _time(value)
        case date():
            return f"'{value.isoformat()}'::date"


def identifier(name: str) -> str:
    """Return the name of a table or a column as SQL has it."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError("PostgreSQL has no text with NUL in it")
    return f"convert_from('\\x{value.encode().hex()}'::bytea, 'UTF8')"


def _time(value: datetime) -> str:
    if value.tzinfo is None:
        raise ValueError("a time without its zone is no moment")
    # In ISO's form, which is read alike whatever the session's settings are.
    return f"'{value.astimezone(UTC).isoformat(sep=' ')}'::timestamptz"
