"""What is not understood, as it is said: an alarm for each thing, logged once, and a refusal that names it."""

from __future__ import annotations

from uuid import UUID

import pytest
from structlog.testing import capture_logs

from confdb.routes import NotUnderstood, Snapshot, Unserved
from msgbroker.contract.errors import NotUnderstoodError, from_wire
from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.alarms.not_understood import ALARMS_MAX, alarms_of, check_topic_served, process_version, refusal
from msgbroker.server.edge.refusals import refusal_of_stored
from msgdb.append.outcome import Refused
from msgdb.reports.alarms import AlarmKind
from tests.support.broker_builders import route

KEY = NotUnderstood(("group-order-key",))


def unserved(count: int, detail: str = "") -> Snapshot:
    why = NotUnderstood(("colour",), detail)
    return Snapshot(1, unserved=tuple(Unserved(f"topic TP_{number}", why, topic_id=number) for number in range(count)))


def test_each_thing_is_logged_once_however_often_the_configuration_changes() -> None:
    board = AlarmBoard(None, UUID(int=1), "here")  # type: ignore[arg-type]
    with capture_logs() as logs:
        for snapshot in (unserved(2), unserved(2), unserved(2, "and another detail"), unserved(1), unserved(0)):
            board.replace(AlarmKind.NOT_UNDERSTOOD, alarms_of(snapshot))

    assert [(entry["event"], entry["thing"]) for entry in logs] == [
        ("alarm.raised", "topic TP_0"),
        ("alarm.raised", "topic TP_1"),
        ("alarm.cleared", "topic TP_1"),
        ("alarm.cleared", "topic TP_0"),
    ]


def test_an_alarm_says_what_is_not_understood_by_whom_and_whom_it_concerns() -> None:
    (alarm,) = alarms_of(Snapshot(1, unserved=(Unserved("subscription SG TP/EC", KEY, 7, 1),)))

    assert (alarm.kind, alarm.thing, alarm.group_id, alarm.topic_id) == (
        "NOT_UNDERSTOOD",
        "subscription SG TP/EC",
        7,
        1,
    )
    assert "group-order-key" in alarm.detail
    assert process_version() in alarm.detail


def test_a_broken_configuration_does_not_take_all_the_room_there_is_for_alarms() -> None:
    alarms = alarms_of(unserved(ALARMS_MAX + 5))

    assert len(alarms) == ALARMS_MAX + 1
    assert alarms[-1].detail == "5 more things are not understood"


def test_a_refusal_names_the_thing_the_feature_and_the_version_and_may_be_retried_elsewhere() -> None:
    error = refusal("group SG", KEY)

    assert (error.reason, error.status, error.retryable) == ("NOT_UNDERSTOOD", "UNAVAILABLE", True)
    assert error.facts == {
        "thing": "group SG",
        "detail": "requires group-order-key",
        "feature": "group-order-key",
        "version": process_version(),
    }
    told = from_wire(error.reason, error.status, error.message, error.facts_text)
    assert isinstance(told, NotUnderstoodError)


def test_a_topic_that_is_understood_is_not_refused() -> None:
    check_topic_served(route())
    with pytest.raises(NotUnderstoodError, match="topic TP_TRADE of namespace tenant requires group-order-key"):
        check_topic_served(route(namespace="tenant", not_understood=KEY))


@pytest.mark.parametrize(
    "reason, status, retryable",
    [
        ("NOT_UNDERSTOOD", "UNAVAILABLE", True),
        ("BODY_TOO_LARGE", "INVALID_ARGUMENT", False),
        ("OF_A_LATER_VERSION", "UNAVAILABLE", True),
    ],
)
def test_the_refusal_of_a_message_says_whether_it_may_succeed_later(
    reason: str, status: str, *, retryable: bool
) -> None:
    told = refusal_of_stored(Refused(0, reason, status, "words", {"topic": "TP"}))

    assert (told.reason, told.status, told.message, told.retryable) == (reason, status, "words", retryable)
    assert dict(told.facts) == {"topic": "TP"}
