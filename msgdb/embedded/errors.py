"""What can go wrong with the embedded PostgreSQL, in sentences for the person who typed the command."""

from __future__ import annotations

from pathlib import Path

from msgbroker.contract.errors import UnavailableError

_LOG_TAIL_LINES = 12
_LOG_TAIL_BYTES = 8_192


class EmbeddedPostgresError(UnavailableError):
    """The embedded PostgreSQL cannot be started or stopped."""

    reason = "EMBEDDED_POSTGRES"
    retryable = False


def log_tail(log_file: Path) -> str:
    """Return the last lines of *log_file*, introduced by its name; empty where there are none."""
    try:
        with log_file.open("rb") as log:
            log.seek(max(0, log_file.stat().st_size - _LOG_TAIL_BYTES))
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
