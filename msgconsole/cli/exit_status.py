"""By which status a command tells how it ended, where it did not end well."""

from __future__ import annotations

from typing import Final

EXIT_REFUSED: Final = 1
EXIT_INTERRUPTED: Final = 130
"""After Ctrl-C, as shells have it."""
