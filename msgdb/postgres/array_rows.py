"""Many rows as parameters of one statement: an array for each column."""

from __future__ import annotations

from collections.abc import Iterable


def array_rows(alias: str, **column_types: str) -> str:
    """Return the FROM item *alias* whose columns come from array parameters of the same names.

    The sub-select hides the arrays' lengths from the planner, which then plans for ten rows, always: by the index. If
    it sees that there are hundreds, it reads a table of some thousand rows from end to end instead, which is right
    until the table is bloated, and joins days without leaving any out.
    """
    arrays = ", ".join(f"(SELECT %({column})s::{type_name}[])" for column, type_name in column_types.items())
    return f"unnest({arrays}) AS {alias} ({', '.join(column_types)})"


def integer_array(values: Iterable[int]) -> str:
    """Return *values* as PostgreSQL reads an array. Of thousands, psycopg's own arrays cost ten times as much."""
    return "{" + ",".join(map(str, values)) + "}"


def float_array(values: Iterable[float]) -> str:
    """Return *values* as PostgreSQL reads an array."""
    return "{" + ",".join(map(repr, values)) + "}"


def text_array(values: Iterable[str | None]) -> str:
    """Return *values* as PostgreSQL reads an array; None is NULL."""
    return "{" + ",".join(["NULL" if value is None else _quoted(value) if value else '""' for value in values]) + "}"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
