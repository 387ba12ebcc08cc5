"""The end of what a program has said before it failed, for the person who typed the command that started it."""

from __future__ import annotations

from pathlib import Path

_LOG_TAIL_LINES = 12
_LOG_TAIL_BYTES = 8_192


def log_tail(log_file: Path, first_byte: int = 0) -> str:
    """Return the last lines of *log_file* from *first_byte* on, introduced by its name; empty where there are none."""
    try:
        with log_file.open("rb") as log:
            log.seek(max(first_byte, log_file.stat().st_size - _LOG_TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return tail(text, str(log_file))


def tail(text: str, origin: str) -> str:
    """Return the last lines of *text*, introduced by where they come from; empty where there are none."""
    lines = [line for line in text.splitlines() if line.strip()][-_LOG_TAIL_LINES:]
    if not lines:
        return ""
    return "\nThe end of " + origin + ":\n  " + "\n  ".join(lines)
