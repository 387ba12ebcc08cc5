"""What the README says of the archive works as typed."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from msgdb.store import MessageStore
from tests.integration.msgconsole.cli.conftest import Msgcenter
from tests.support.rows import make_queue, put_messages

_README = Path(__file__).parents[4] / "README.md"


async def _put(database_url: str) -> None:
    async with MessageStore.open(database_url, pool_size=1) as store, store.connection() as connection:
        await put_messages(connection, await make_queue(connection), range(25))


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_open_day_is_queried_as_the_readme_says(
    msgcenter: Msgcenter, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (typed,) = re.findall(r"## Keep it.*?```console\n(.*?)```", _README.read_text(), re.DOTALL)
    (query,) = re.findall(r'^\$ python -c "(.*?)"$', typed, re.DOTALL | re.MULTILINE)
    (command,) = re.findall(r"^\$ msgcenter (.*?) +#", typed, re.MULTILINE)
    asyncio.run(_put(database_url))
    monkeypatch.chdir(tmp_path)
    # Where `make up` runs it is known by that.
    monkeypatch.setenv("MSGCENTER_ARCHIVE", str(tmp_path / ".msgcenter" / "archive"))

    assert msgcenter(*command.split()).status == 0
    done = subprocess.run([sys.executable, "-c", query], capture_output=True, text=True, timeout=60, check=False)

    assert done.stderr == ""
    assert re.search(r"│ TP_TRADE │ EC_PAID +│ +25 │", done.stdout), done.stdout
