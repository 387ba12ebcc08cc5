"""`msgcenter` as it is installed: beside the client alone, it says what else to install."""

from __future__ import annotations

import sys
from typing import Final

from msgconsole.cli.exit_status import EXIT_REFUSED

_NEEDS_MORE: Final = "The msgcenter command line needs more: pip install 'msgcenter[console]'"
_OURS: Final = {"confdb", "msgbroker", "msgconsole", "msgdb", "spark_etl"}


def main() -> None:
    """Run the command line of this process, if what it needs is installed."""
    try:
        # Here: it begins with typer, which the client does not bring.
        from msgconsole.cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing in _OURS or missing in sys.stdlib_module_names:
            raise
        sys.stderr.write(f"{_NEEDS_MORE}\n")
        sys.exit(EXIT_REFUSED)
