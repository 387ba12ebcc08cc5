"""The lane's records can be had without a database driver."""

from __future__ import annotations

import subprocess
import sys


def test_they_need_the_standard_library_only() -> None:
    program = (
        "import sys; import msgdb.lanes.records; "
        "print([name for name in ('psycopg', 'sqlalchemy', 'orjson') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"
