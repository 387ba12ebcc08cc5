"""docs/archive.md is the contract: its columns are those that are written, its manifest one that is read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from msgdb.archive.records import DayState, RunState
from spark_etl.files.manifest import from_json, to_json
from spark_etl.source.contract import SOURCES

PAGE = (Path(__file__).parents[3] / "docs" / "archive.md").read_text()


@pytest.mark.parametrize("table", ["message", "dead_letter"])
def test_the_columns_of_a_table_are_those_that_are_written(table: str) -> None:
    listed = PAGE.partition(f"**`{table}`**")[2].partition("\n\n**")[0].partition("\n## ")[0]

    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", listed, re.MULTILINE)

    assert rows == [(each.name, str(each.type)) for each in SOURCES[table].schema]


def test_the_manifest_that_is_shown_has_the_fields_of_one() -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    fields = json.loads(shown) | {"totals": {"rows": 200_000, "files": 1}}

    written = json.loads(to_json(from_json(json.dumps(fields), "the page")))

    assert list(written) == list(json.loads(shown))
    assert written["files"] == fields["files"]


def test_all_states_are_explained() -> None:
    assert re.findall(r"^\| `([A-Z]+)` \|", PAGE, re.MULTILINE) == [state.value for state in DayState]
    assert [state for state in RunState if f"`{state}`" not in PAGE] == []
