"""What became of a message that was not settled when its group, or its topic, was deleted. Pure."""

from __future__ import annotations

from msgconsole.operations.status.answers import Basis, GroupStatus, Other, State, Why
from msgconsole.operations.status.deleted import Ended
from msgconsole.operations.status.facts import GroupFacts, answer
from msgconsole.operations.status.moments import UNCERTAIN_US
from msgconsole.operations.status.passages import Way, moment_at, readings_of
from msgconsole.operations.status.reading import Reading, read_by
from msgconsole.operations.status.settled import BEGINS_BEHIND, Candidate, denied, later_than, when_other
from msgdb.lanes.standing import WaitingRow

_CHECKPOINT = "as of the last checkpoint of its lane"


def tell_waiting(facts: GroupFacts, ended: Ended, row: WaitingRow) -> GroupStatus:
    """Tell of what waited for another attempt, which nobody makes any more."""
    waited = f"for {row.shelved_by}, which was paused" if row.shelved_by is not None else f"for attempt {row.attempt}"
    detail = f"{ended.text}: it waited {waited}"
    others = (*_not_written(facts), *_while_served(facts, ended))
    said = {"attempt": row.attempt, "last_error": row.last_error, "others": others}
    return answer(facts, State.NOT_MATCHED, Basis.ROWS, detail, why=ended.why, **said)


def tell_unserved(facts: GroupFacts, ended: Ended, way: Way) -> GroupStatus:
    """Tell of what nobody had settled, by what the group was last; and by what it was before, where that differs."""
    message, moments = facts.message, facts.moments
    then = moment_at(moments, message.stored_at_us)
    by_reading = [
        _told(facts, ended, read_by(moments[index], message, passage.reset), index)
        for index, passage in readings_of(way, moments)
    ]
    if not by_reading:
        why = later_than(moments, then, Why.NO_SUBSCRIPTION)
        detail = f"it did not subscribe to {message.topic}"
        return answer(facts, State.NOT_MATCHED, Basis.THEN, detail, why=why)
    told = by_reading[-1]
    others: dict[Why | None, Other] = {}
    for each in by_reading[:-1]:
        if each.why is not told.why:
            others.setdefault(each.why, Other(each.state, each.why, each.detail, when_other(each, told, moments)))
    basis = Basis.THEN if told.moment <= then else Basis.LATER
    # Only a group that asked for it can have got it unseen, or get it still.
    unseen = told.why is ended.why or ended.why in others
    perhaps = (*_not_written(facts), *_while_served(facts, ended)) if unseen else ()
    return answer(facts, told.state, basis, told.detail, why=told.why, others=(*others.values(), *perhaps))


def _told(facts: GroupFacts, ended: Ended, reading: Reading, index: int) -> Candidate:
    moment, then = facts.moments[index], moment_at(facts.moments, facts.message.stored_at_us)
    not_settled = f"it was not settled, {_CHECKPOINT}"
    if reading.begins_behind and not facts.rows.has_cursor:
        why = later_than(facts.moments, then, Why.SUBSCRIBED_LATER)
        return Candidate(State.NOT_MATCHED, why, BEGINS_BEHIND, index)
    if not reading.is_wanted and not reading.shelved_by:
        why = later_than(facts.moments, then, reading.why)
        return Candidate(State.NOT_MATCHED, why, f"{reading.detail}; {ended.text}, and {not_settled}", index)
    if facts.message.stress and not moment.may_see_stress:
        denial = f"{denied(facts.message)}; {ended.text}, and {not_settled}"
        return Candidate(State.NOT_MATCHED, Why.STRESS_NOT_ALLOWED, denial, index)
    return Candidate(State.NOT_MATCHED, ended.why, f"{ended.text}: {not_settled}; {reading.detail}", index)


def _not_written(facts: GroupFacts) -> tuple[Other, ...]:
    """Return that it may have been delivered, where the broker that served the lane was killed."""
    if not facts.rows.is_abandoned:
        return ()
    detail = "the broker that served its lane last was killed, or cut off: what it had not written is not known"
    return (Other(State.DELIVERED, None, detail, "if an instance acknowledged it after the last checkpoint"),)


def _while_served(facts: GroupFacts, ended: Ended) -> tuple[Other, ...]:
    """Return that it may come still, where some broker may not have heard of it."""
    change = ended.change
    is_fresh = change is not None and change.at.timestamp() * 1_000_000 + UNCERTAIN_US >= facts.now_us
    if facts.rows.owner is None and not is_fresh:
        return ()
    return (Other(State.PENDING, None, "a broker may serve its lane still", "until all brokers have heard of that"),)
