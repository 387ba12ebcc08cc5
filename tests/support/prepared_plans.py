"""Plans of statements as psycopg has them once it has prepared them: with their values, or for whatever values come."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import psycopg
from psycopg.rows import TupleRow

PlanMode = Literal["auto", "force_custom_plan", "force_generic_plan"]


def explain_prepared(
    connection: psycopg.Connection[TupleRow],
    statement: str,
    values: Mapping[str, Any],
    mode: PlanMode,
    *,
    options: str = "COSTS",
) -> list[Any]:
    """Return the rows of EXPLAIN for *statement* as a prepared statement under that plan_cache_mode.

    What it changes, where *options* have it carried out, is taken back.
    """
    numbered: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${numbered.setdefault(match[1], len(numbered) + 1)}"

    # Statements with unnamed placeholders have one each, in order; named ones may repeat.
    text = re.sub(r"%\((\w+)\)s", number, statement)
    for at in range(statement.count("%s")):
        text = text.replace("%s", f"${at + 1}", 1)
    arguments = [values[name] for name in numbered] or list(values.values())[: statement.count("%s")]
    with connection.transaction(force_rollback=True), psycopg.ClientCursor(connection) as cursor:
        cursor.execute(f"SET LOCAL plan_cache_mode = {mode}")
        cursor.execute(f"PREPARE hot AS {text}")
        try:
            placeholders = ", ".join(["%s"] * len(arguments))
            given = f"({placeholders})" if arguments else ""
            cursor.execute(f"EXPLAIN ({options}) EXECUTE hot{given}", arguments)
            return [row[0] for row in cursor.fetchall()]
        finally:
            cursor.execute("DEALLOCATE hot")
