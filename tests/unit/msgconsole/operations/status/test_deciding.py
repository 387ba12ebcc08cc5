"""What random histories meet seldom, one by one: what is told, and what it may be instead."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from confdb.past import ConfigChange, PastSubscription
from msgbroker.client.connect.inspection import MessageStand
from msgbroker.contract.whereabouts import Stand
from msgconsole.operations.status.answers import Basis, GroupStatus, State, Why
from msgconsole.operations.status.deciding import decide
from msgconsole.operations.status.deleted import Ended
from msgconsole.operations.status.facts import GroupFacts
from msgconsole.operations.status.moments import GroupMoment
from msgconsole.operations.status.reading import Readable
from msgdb.lanes.records import LaneReset
from msgdb.lanes.reset_acts import LaneResetAct
from msgdb.lanes.standing import Buried, LaneRows, WaitingRow
from msgdb.trace.reading import Acked
from tests.support.status_scene import KEY_OWNER

STORED_AT = datetime(2026, 11, 20, 10, tzinfo=UTC)
WANTS = PastSubscription(70, "SG", "EC", "DIRECT", None, {}, paused=False)
NEVER = WANTS._replace(mode="HEADER", expression='"vip" in headers')


def us(time: datetime) -> int:
    return round(time.timestamp() * 1_000_000)


MESSAGE = Readable(1, 5, us(STORED_AT), "TP", "EC", None, {}, stress=False, target_group=None, is_leaving=False)
ALWAYS = GroupMoment(None, is_registered=True, subscriptions=(WANTS,), may_see_stress=True)
NOTHING = LaneRows(7, has_cursor=True, epoch=1, is_settled=True, owner=None, waiting=None, dead_letter=None)
UNSETTLED = NOTHING._replace(is_settled=False, owner=KEY_OWNER)


def later(hours: float, moment: GroupMoment = ALWAYS, **changed: Any) -> GroupMoment:
    """Return what was registered so many hours after the message was stored."""
    change = ConfigChange(round(hours), STORED_AT + timedelta(hours=hours), "ada", ("a change",))
    return replace(moment, made_by=change, **changed)


def status(rows: LaneRows = NOTHING, *moments: GroupMoment, **more: Any) -> GroupStatus:
    facts = GroupFacts(
        message=MESSAGE,
        group="SG",
        group_id=7,
        moments=moments or (ALWAYS,),
        rows=rows,
        now_us=us(STORED_AT + timedelta(days=1)),
    )
    return decide(replace(facts, **more))


def instead(told: GroupStatus) -> list[tuple[State, Why | None]]:
    return [(each.state, each.why) for each in told.others]


def reset(hours: float, from_offset: int, to_offset: int, *, skips: bool | None = False) -> LaneResetAct:
    at = STORED_AT + timedelta(hours=hours)
    return LaneResetAct(3, at, "ada", "why", 7, from_offset, to_offset, 70, skips)


def test_a_stress_message_may_have_been_denied_though_nobody_read_it_by_then() -> None:
    gone = later(1, subscriptions=(NEVER,), may_see_stress=False)

    told = status(NOTHING, ALWAYS, gone, message=MESSAGE._replace(stress=True))

    assert (told.state, told.basis) == (State.DELIVERED, Basis.THEN)
    assert instead(told) == [(State.NOT_MATCHED, Why.STRESS_NOT_ALLOWED), (State.NOT_MATCHED, Why.EXPRESSION_FALSE)]


def test_what_waited_as_the_lane_was_put_back_to_behind_it_may_have_been_shelved_later() -> None:
    paused = later(2, subscriptions=(WANTS._replace(paused=True),))
    deleted = later(3, subscriptions=(NEVER._replace(subscription_id=71),))

    told = status(NOTHING, ALWAYS, paused, deleted, resets=[reset(1, 20, 10)])

    assert told.state is State.DELIVERED
    assert instead(told) == [(State.NOT_MATCHED, Why.SUBSCRIPTION_DELETED)]


def test_a_change_after_the_lane_had_passed_it_matters_no_more() -> None:
    told = status(NOTHING, ALWAYS, later(2, subscriptions=(NEVER,)), resets=[reset(1, 20, 10)])

    assert (told.state, told.is_certain) == (State.DELIVERED, True)


def test_a_reset_that_skipped_more_than_was_written_down_is_named() -> None:
    told = status(resets=[reset(1, 2, 10, skips=None)])

    assert (told.state, instead(told)) == (State.DELIVERED, [(State.SKIPPED, None)])


def test_a_dead_letter_of_before_a_reset_is_not_taken_for_one_of_after_it() -> None:
    buried = Buried(17, us(STORED_AT + timedelta(minutes=5)), 3, "REJECTED", "no", ())

    again = status(NOTHING._replace(dead_letter=buried), resets=[reset(1, 20, 0)])
    for_good = status(NOTHING._replace(dead_letter=buried), resets=[reset(0.01, 20, 0)])

    assert (again.state, instead(again)) == (State.DELIVERED, [(State.DEAD_LETTER, None)])
    assert (for_good.state, for_good.is_certain) == (State.DEAD_LETTER, True)


def test_what_lies_too_far_back_is_said_to_be_unknown() -> None:
    past = status(are_moments_whole=False)
    resets = status(are_resets_whole=False)
    lost = status(has_lost_changes=True)
    leaving = status(message=MESSAGE._replace(is_leaving=True))

    assert [len(each.others) for each in (past, resets, leaving, lost)] == [1, 1, 1, 1]
    assert [each.others[0].state for each in (past, resets, leaving)] == [
        State.DELIVERED,
        State.SKIPPED,
        State.EXPIRED,
    ]


def test_an_expired_dead_letter_is_expired() -> None:
    buried = Buried(17, us(STORED_AT), 0, "EXPIRED", None, ())

    assert status(NOTHING._replace(dead_letter=buried)).state is State.EXPIRED


def test_what_its_broker_says_outweighs_what_its_row_says() -> None:
    row = WaitingRow(2, us(STORED_AT), "timeout", None)
    held = MessageStand(Stand.IN_FLIGHT, 1, 2, instance_id="shop-1", deadline_at_us=us(STORED_AT))
    waiting = UNSETTLED._replace(waiting=row)

    in_flight = status(waiting, stand=held)
    settled = status(waiting, stand=MessageStand(Stand.SETTLED, 1, 0))
    unknown = status(waiting)
    alone = status(waiting, replace(ALWAYS, subscriptions=()))

    assert (in_flight.state, in_flight.attempt, in_flight.last_error) == (State.IN_FLIGHT, 2, "timeout")
    assert (settled.state, "the next checkpoint" in settled.detail) == (State.RETRYING, True)
    assert "or an instance has it" in unknown.detail
    assert "nobody makes it" in alone.detail


def test_what_its_broker_has_in_memory_is_so() -> None:
    due_at_us = us(STORED_AT + timedelta(minutes=1))
    again = status(UNSETTLED, stand=MessageStand(Stand.WAITING, 1, 2, due_at_us=due_at_us))
    ready = status(UNSETTLED, stand=MessageStand(Stand.READY, 1, 1), is_paused=True)
    unread = status(UNSETTLED, stand=MessageStand(Stand.UNREAD, 1, 0))
    settled = status(UNSETTLED, stand=MessageStand(Stand.SETTLED, 1, 0))

    assert (again.state, again.attempt, again.due_at) == (State.RETRYING, 2, STORED_AT + timedelta(minutes=1))
    assert (ready.state, ready.basis) == (State.PENDING, Basis.BROKER)
    assert ready.detail.endswith("; the group is paused")
    assert (unread.state, unread.basis, unread.is_certain) == (State.PENDING, Basis.NOW, True)
    assert (settled.state, instead(settled)) == (State.DELIVERED, [(State.DEAD_LETTER, None)])


def test_what_was_wanted_before_may_be_ready_still_where_no_broker_is_asked() -> None:
    moments = (ALWAYS, later(1, subscriptions=(NEVER,)))

    unasked = status(UNSETTLED, *moments)
    unread = status(UNSETTLED, *moments, stand=MessageStand(Stand.UNREAD, 1, 0))
    unserved = status(UNSETTLED._replace(owner=None), *moments)

    assert (unasked.why, instead(unasked)) == (Why.EXPRESSION_FALSE, [(State.PENDING, None)])
    assert unread.is_certain
    assert unserved.is_certain


def test_that_the_group_is_paused_is_said_of_what_waits_whether_its_broker_has_answered_or_not() -> None:
    row = WaitingRow(2, us(STORED_AT), "timeout", None)

    told = [status(NOTHING._replace(owner=owner, waiting=row), is_paused=True) for owner in (None, KEY_OWNER)]

    assert [each.detail.endswith("; the group is paused") for each in told] == [True, True]


def test_a_stress_message_that_waits_is_not_to_come_where_the_group_may_not_see_it_any_more() -> None:
    waits = NOTHING._replace(waiting=WaitingRow(2, us(STORED_AT), "timeout", None))
    forbidden = later(1, may_see_stress=False)

    told = status(waits, ALWAYS, forbidden, message=MESSAGE._replace(stress=True))
    seen = status(waits, ALWAYS, message=MESSAGE._replace(stress=True))

    assert (told.state, seen.state) == (State.RETRYING, State.RETRYING)
    assert "it will be settled without being delivered" in told.detail
    assert "without being delivered" not in seen.detail


def test_where_a_lane_was_put_before_counts_for_what_lies_where_its_log_has_lost_its_end() -> None:
    late = replace(ALWAYS, subscriptions=(WANTS._replace(start_offsets={1: 100}),))

    told = [status(NOTHING, late, reset_before=reset) for reset in (None, LaneReset(0, 70), LaneReset(0, 69))]

    assert [(each.state, each.why) for each in told] == [
        (State.NOT_MATCHED, Why.SUBSCRIBED_LATER),
        (State.DELIVERED, None),
        (State.NOT_MATCHED, Why.SUBSCRIBED_LATER),
    ]


def test_a_lane_beyond_its_log_is_not_taken_at_its_word() -> None:
    beyond = NOTHING._replace(is_beyond=True)
    row = WaitingRow(2, us(STORED_AT), "timeout", None)
    buried = Buried(17, us(STORED_AT), 3, "REJECTED", "no", ())

    assert instead(status(beyond)) == [(State.UNKNOWN, None)]
    assert instead(status(UNSETTLED._replace(is_beyond=True), stand=MessageStand(Stand.SETTLED, 1, 0)))[-1] == (
        State.UNKNOWN,
        None,
    )
    # What names the message itself is so.
    assert [status(beyond._replace(**row_of)).is_certain for row_of in ({"waiting": row}, {"dead_letter": buried})]


def test_what_took_the_place_of_a_message_that_died_is_unknown_until_its_lane_is_put_back() -> None:
    died_at = STORED_AT - timedelta(hours=2)
    replaced = NOTHING._replace(lost_died_at_us=us(died_at))

    def put_back(hours: float, to_offset: int) -> LaneResetAct:
        at = STORED_AT + timedelta(hours=hours)
        return LaneResetAct(4, at, "broker", "lost", 7, 2**63 - 1, to_offset, None, skips=False)

    never = status(replaced)
    still_beyond = status(replaced._replace(is_beyond=True))
    told = [
        status(replaced, put_back=[act]) for act in (put_back(-3, 0), put_back(-1, 9), put_back(1, 9), put_back(1, 0))
    ]

    assert (never.state, instead(never)) == (State.UNKNOWN, [(State.DELIVERED, None)])
    assert instead(still_beyond) == [(State.DELIVERED, None), (State.PENDING, None)]
    # Too early; before it was stored; not so far back; behind it.
    assert [each.state for each in told] == [State.UNKNOWN, State.DELIVERED, State.UNKNOWN, State.DELIVERED]


def test_an_acknowledgement_that_was_traced_is_certain_unless_the_lane_was_put_back_since() -> None:
    acked = Acked(7, us(STORED_AT + timedelta(minutes=1)), "shop-1", 1)
    changed = later(1, subscriptions=(NEVER,))

    told = status(NOTHING, ALWAYS, changed, acked=acked)
    again = status(NOTHING, ALWAYS, changed, acked=acked, resets=[reset(2, 20, 0)])

    assert (told.state, told.basis, told.is_certain) == (State.DELIVERED, Basis.ROWS, True)
    assert (again.basis, again.is_certain) == (Basis.THEN, True)
    assert again.state is State.NOT_MATCHED


def test_what_a_broker_holds_of_a_group_that_was_deleted_may_come_still() -> None:
    gone = later(1, is_registered=False, subscriptions=())
    assert gone.made_by is not None
    ended = Ended(Why.GROUP_DELETED, gone.made_by)
    held = MessageStand(Stand.IN_FLIGHT, 1, 1, instance_id="shop-1")
    row = WaitingRow(2, us(STORED_AT), "timeout", None)

    in_flight = status(UNSETTLED, ALWAYS, gone, ended=ended, stand=held)
    served = status(UNSETTLED, ALWAYS, gone, ended=ended, stand=MessageStand(Stand.READY, 1, 1))
    left = status(UNSETTLED._replace(owner=None), ALWAYS, gone, ended=ended)
    waited = status(UNSETTLED._replace(owner=None, waiting=row), ALWAYS, gone, ended=ended)
    # It is served still: that brings nothing that the group did not ask for.
    false = status(UNSETTLED, replace(ALWAYS, subscriptions=(NEVER,)), gone, ended=ended)

    assert in_flight.state is State.IN_FLIGHT
    assert (served.why, instead(served)) == (Why.GROUP_DELETED, [(State.PENDING, None)])
    assert (left.why, left.is_certain) == (Why.GROUP_DELETED, True)
    assert (waited.why, waited.attempt, waited.is_certain) == (Why.GROUP_DELETED, 2, True)
    assert (false.why, false.basis, false.is_certain) == (Why.EXPRESSION_FALSE, Basis.THEN, True)
