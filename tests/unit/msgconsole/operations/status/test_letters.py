"""Which purges may have had a message's dead letter among theirs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from confdb.past import PastGroup
from msgconsole.operations.status.letters import may_have_purged
from msgconsole.operations.status.reading import Readable
from msgdb.dead_letters.wanted import WantedDeadLetters
from msgdb.jobs.purge_jobs import PurgeJob
from msgdb.postgres.binary_rows import datetime_of

STORED_AT_US = 1_700_000_000_000_000
STORED_AT = datetime_of(STORED_AT_US)
MESSAGE = Readable(
    queue_id=1,
    queue_offset=5,
    stored_at_us=STORED_AT_US,
    topic="TP",
    event_code="EC",
    key="order-1",
    headers={},
    stress=False,
    target_group=None,
    is_leaving=False,
)
GROUP = PastGroup(7, "SG", paused=False)
ANY = WantedDeadLetters()


@pytest.mark.parametrize(
    "wanted, expected",
    [
        (ANY, True),
        (replace(ANY, namespace="default", group_id=7, topic="TP", event_code="EC", key="order-1"), True),
        (replace(ANY, why="REJECTED", error="timeout", ids=(1, 2), is_open=True), True),
        (replace(ANY, died_from=STORED_AT + timedelta(days=1)), True),
        (replace(ANY, died_before=STORED_AT + timedelta(seconds=1)), True),
        (replace(ANY, died_before=STORED_AT), False),
        (replace(ANY, namespace="other"), False),
        (replace(ANY, group_id=8), False),
        (replace(ANY, group_name="SG_OTHER"), False),
        (replace(ANY, group_name="SG", not_group_id=8), True),
        (replace(ANY, group_name="SG", not_group_id=7), False),
        (replace(ANY, topic="TP_OTHER"), False),
        (replace(ANY, event_code="EC_OTHER"), False),
        (replace(ANY, key="order-2"), False),
    ],
)
def test_what_a_purge_was_for_says_whether_it_can_have_been_this_one(wanted: WantedDeadLetters, expected: bool) -> None:
    job = PurgeJob(3, STORED_AT + timedelta(days=2), "ada", wanted)

    assert may_have_purged(job, MESSAGE, GROUP, "default") is expected
