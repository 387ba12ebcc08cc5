"""What operators see of days that are not archived yet."""

from __future__ import annotations

import psycopg
import pytest

from tests.integration.msgconsole.cli.conftest import Msgcenter

_REQUIRE = """
INSERT INTO archive_policy (table_name, required_from)
VALUES ('message', (clock_timestamp() AT TIME ZONE 'UTC')::date - 1)
"""
_PENDING = """
INSERT INTO archive_day (table_name, day, state, reason)
VALUES ('message', (clock_timestamp() AT TIME ZONE 'UTC')::date - 1, 'PENDING', 'the disk was full')
"""


@pytest.mark.parametrize("options", [(), ("--json",), ("--by-queue",)])
def test_lag_tells_the_oldest_day_that_is_not_archived_and_why(
    msgcenter: Msgcenter, database_url: str, options: tuple[str, ...]
) -> None:
    before = msgcenter("lag", *options)
    with psycopg.connect(database_url) as connection:
        connection.execute(_REQUIRE)
        connection.execute(_PENDING)

    after = msgcenter("lag", *options)

    assert before.err == ""
    assert (after.status, after.out) == (0, before.out)
    assert "of message, which was over 0." in after.err
    assert after.err.endswith("the disk was full.\n")
