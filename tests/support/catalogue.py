"""What a database's catalogue says about its tables, to compare one schema with another."""

from __future__ import annotations

import psycopg

_COLUMNS = """
SELECT c.relname, c.relkind::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
       pg_get_expr(d.adbin, d.adrelid)
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
ORDER BY c.relname, a.attname
"""
_TABLES = """
SELECT relname, relkind::text, reloptions, pg_get_partkeydef(oid)
FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
ORDER BY relname
"""
_INDEXES = """
SELECT c.relname, pg_get_indexdef(i.indexrelid)
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition
ORDER BY 1, 2
"""
_CONSTRAINTS = """
SELECT c.relname, k.conname, pg_get_constraintdef(k.oid)
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition
ORDER BY 1, 2
"""


def describe(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Return tables, columns, indexes and constraints, without partitions and Alembic's own table."""
    queries = {"tables": _TABLES, "columns": _COLUMNS, "indexes": _INDEXES, "constraints": _CONSTRAINTS}
    with psycopg.connect(url) as connection:
        return {
            name: [row for row in connection.execute(query.encode()).fetchall() if not row[0].endswith("_version")]
            for name, query in queries.items()
        }
