"""Each table that is kept by days has a retention of its own, within its bounds."""

from __future__ import annotations

import pytest

from msgbroker.contract.errors import InvalidSettingError
from msgdb.day_tables import retentions


def test_where_nobody_says_anything_messages_are_kept_for_a_week_and_dead_letters_for_three_months() -> None:
    assert retentions({}) == {
        "message": 7,
        "publisher_frame": 7,
        "dead_letter": 90,
        "trace_event": 7,
        "usage_minute": 30,
        "backlog_minute": 30,
    }

    chosen = {"message": 2, "publisher_frame": 3, "dead_letter": 1, "trace_event": 2, "usage_minute": 9}
    chosen["backlog_minute"] = 4

    assert retentions(chosen) == chosen


@pytest.mark.parametrize(
    "chosen, said",
    [
        ({"message": 0}, "retention of message"),
        ({"message": 8}, "must be 1 to 7 days"),
        ({"publisher_frame": 8}, "retention of publisher_frame"),
        ({"trace_event": 8}, "retention of trace_event"),
        ({"dead_letter": 0}, "retention of dead_letter"),
        ({"dead_letter": 3_651}, "must be 1 to 3650 days"),
        ({"usage_minute": 31}, "must be 1 to 30 days"),
        ({"cursor": 3}, "cursor: no tables that are kept by days"),
    ],
)
def test_what_is_out_of_bounds_is_refused(chosen: dict[str, int], said: str) -> None:
    with pytest.raises(InvalidSettingError, match=said):
        retentions(chosen)


def test_what_became_of_a_frame_is_not_forgotten_before_its_messages_are() -> None:
    with pytest.raises(InvalidSettingError, match="not less than that of message, which is 3"):
        retentions({"message": 3, "publisher_frame": 2})
