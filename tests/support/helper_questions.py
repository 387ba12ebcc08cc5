"""Expressions that keep the helper process busy."""

from __future__ import annotations

FOR_EVER = 'headers.all(a, headers.all(b, headers.a.matches("[a-z]{1000}b") == false))'
"""Takes half a minute on such headers."""


LONG = {"a": "x" * 4_000} | {f"h{number}": "" for number in range(60)}
