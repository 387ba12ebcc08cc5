"""What became of a message with one group: the facts of both databases in, the answer out. Pure.

First what rows say for certain (it waits for another attempt, it is a dead letter, a reset skipped it), then what the
broker says that serves the lane, and only then what the configuration tells of then and of now.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from msgbroker.contract.whereabouts import Stand
from msgconsole.operations.status.answers import Basis, GroupStatus, Other, State, Why
from msgconsole.operations.status.coming import said_of_denial, tell_unsettled, with_an_instance
from msgconsole.operations.status.facts import NOT_ASKED, GroupFacts, answer
from msgconsole.operations.status.letters import dead_letter_of, said_of_letter, state_of_letter
from msgconsole.operations.status.moments import UNCERTAIN_US
from msgconsole.operations.status.passages import Way, way_over
from msgconsole.operations.status.settled import tell_settled
from msgconsole.operations.status.unserved import tell_unserved, tell_waiting
from msgdb.lanes.reset_acts import LaneResetAct
from msgdb.lanes.standing import Buried, WaitingRow
from msgdb.postgres.binary_rows import datetime_of

_UNKNOWN_PAST: Final = "if something was changed then: there were more changes since than are looked at"
_LOST_PAST: Final = "if something was changed then: the configuration's database has lost its end since"
_UNKNOWN_RESETS: Final = "if it was reset then: there were more resets since than are looked at"
_ANYTHING: Final = "what the group was when the message came is not known"


def decide(facts: GroupFacts) -> GroupStatus:
    """Return what became of a message with a group."""
    told = _decided(facts)
    is_settled = facts.rows.is_settled or (facts.stand is not None and facts.stand.stand is Stand.SETTLED)
    # Of a place, and not of the message that lies there now.
    is_by_offset = told.basis is Basis.BROKER or (is_settled and told.basis is not Basis.ROWS)
    return _doubted(facts, told) if is_by_offset else told


def _decided(facts: GroupFacts) -> GroupStatus:
    message = facts.message
    if message.target_group not in {None, facts.group_id}:
        detail = "it was redriven or replayed to another group alone"
        return answer(facts, State.NOT_MATCHED, Basis.ROWS, detail, why=Why.FOR_ANOTHER_GROUP)
    rows = facts.rows
    if rows.waiting is not None:
        return _waiting(facts, rows.waiting)
    way = way_over(message.queue_offset, message.stored_at_us, facts.resets, facts.reset_before)
    if not rows.is_settled:
        return _unsettled(facts, way)
    buried = rows.dead_letter
    if buried is not None and not _is_from_before(buried, way):
        return _dead(facts, buried)
    return _skipped(facts, way) or _settled(facts, way)


def _unsettled(facts: GroupFacts, way: Way) -> GroupStatus:
    stand = None if facts.stand is None else facts.stand.stand
    if stand is Stand.SETTLED:
        return _settled_in_memory(facts, way)
    if facts.ended is None or stand is Stand.IN_FLIGHT:
        return tell_unsettled(facts, way)
    return _acked(facts, way) or tell_unserved(facts, facts.ended, way)


def _is_from_before(buried: Buried, way: Way) -> bool:
    """Return whether the lane was put back behind the message after it had died."""
    return way.put_back_by is not None and datetime_of(buried.died_at_us) < way.put_back_by.at


def _doubted(facts: GroupFacts, told: GroupStatus) -> GroupStatus:
    """Tell that it may have been another message that the lane settled, where the log has lost its end."""
    said = "what its lane has done at this offset may be of another message, which the log has lost"
    if not facts.replaces_lost:
        doubt = Other(State.UNKNOWN, None, said, "if it was stored after the log had lost its end")
        return replace(told, others=(*told.others, doubt)) if facts.rows.is_beyond else told
    others = [Other(told.state, told.why, told.detail, "if its lane has read it since"), *told.others]
    if facts.rows.is_beyond:
        again = "whoever claims its lane next puts that back, to what was stored half a minute before"
        others.append(Other(State.PENDING, None, again, "if it is stored later than that"))
    return answer(facts, State.UNKNOWN, Basis.ROWS, f"the log has lost its end: {said}", others=tuple(others))


# --- what rows say --------------------------------------------------------------------------------------------------


def _waiting(facts: GroupFacts, row: WaitingRow) -> GroupStatus:
    if facts.ended is not None and (facts.stand is None or facts.stand.stand is not Stand.IN_FLIGHT):
        return tell_waiting(facts, facts.ended, row)
    if row.shelved_by is not None:
        detail = f"only paused subscriptions want it ({row.shelved_by}): it waits for them"
        return answer(facts, State.SHELVED, Basis.ROWS, detail, attempt=row.attempt)
    stand = facts.stand
    if stand is not None and stand.stand is Stand.IN_FLIGHT:
        return with_an_instance(facts, stand, row.last_error)
    detail = f"attempt {row.attempt} is due at {datetime_of(row.due_at_us):%H:%M:%S}"
    if stand is not None and stand.stand is Stand.SETTLED:
        detail = "its broker has settled it since: the next checkpoint tells how"
    elif not facts.moments[-1].has_lane:
        detail += "; nobody makes it: the group does not subscribe to the topic any more"
    elif facts.message.stress and not facts.moments[-1].may_see_stress:
        detail += f"; {said_of_denial(facts)}"
    elif stand is None and facts.rows.owner is not None:
        detail += f", or an instance has it: {NOT_ASKED}{facts.if_paused}"
    else:
        detail += facts.if_paused
    return answer(
        facts,
        State.RETRYING,
        Basis.ROWS,
        detail,
        attempt=row.attempt,
        due_at=datetime_of(row.due_at_us),
        last_error=row.last_error,
    )


def _dead(facts: GroupFacts, buried: Buried) -> GroupStatus:
    letter = dead_letter_of(buried)
    state, detail = state_of_letter(letter), said_of_letter(letter)
    return answer(facts, state, Basis.ROWS, detail, dead_letter=letter, last_error=buried.last_error)


def _skipped(facts: GroupFacts, way: Way) -> GroupStatus | None:
    """Tell that it was skipped, by itself or by a reset, where no dead letter says so; None: it was not."""
    back = way.put_back_by
    by_hand = next((act for act in facts.skips if back is None or act.at > back.at), None)
    if by_hand is not None:
        buried = facts.rows.dead_letter
        rest = "was purged" if buried is None or back is None else _of_before(buried, back)
        said = f"it was skipped at {by_hand.at:%Y-%m-%d %H:%M:%S} by {by_hand.actor}: {by_hand.reason}"
        return answer(facts, State.DEAD_LETTER, Basis.ROWS, f"{said}; its dead letter {rest}")
    act = way.skipped_by
    if act is None:
        return None
    detail = f"the group was reset to offset {act.to_offset} at {act.at:%Y-%m-%d %H:%M:%S} by {act.actor}: {act.reason}"
    return answer(facts, State.SKIPPED, Basis.ROWS, detail, reset_act_id=act.act_id)


def _settled_in_memory(facts: GroupFacts, way: Way) -> GroupStatus:
    """Tell what became of it where its broker has settled it and not written that down yet."""
    told = _settled(facts, way)
    others = told.others
    if State.DELIVERED in {told.state, *(each.state for each in others)}:
        dead = Other(State.DEAD_LETTER, None, "the next checkpoint writes it", "if its last attempt has failed")
        others = (*others, dead)
    detail = f"{told.detail}; its broker has settled it, and writes that down with the next checkpoint"
    return replace(told, others=others, detail=detail)


# --- what is settled, and left no row -------------------------------------------------------------------------------


def _acked(facts: GroupFacts, way: Way) -> GroupStatus | None:
    """Tell that an instance acknowledged it, where that was traced; None: it was not, or before a reset."""
    acked, back = facts.acked, way.put_back_by
    if acked is None or (back is not None and acked.at_us <= back.at.timestamp() * 1_000_000 + UNCERTAIN_US):
        return None
    detail = f"instance {acked.instance} acknowledged it at {datetime_of(acked.at_us):%Y-%m-%d %H:%M:%S}, by the trace"
    return answer(facts, State.DELIVERED, Basis.ROWS, detail, attempt=acked.attempt, instance_id=acked.instance)


def _settled(facts: GroupFacts, way: Way) -> GroupStatus:
    acked = _acked(facts, way)
    if acked is not None:
        return acked
    told = tell_settled(facts.message, facts.moments, way)
    others = list(told.others)
    if State.DELIVERED in {told.candidate.state, *(each.state for each in others)}:
        others += _died_without_a_trace(facts, way.put_back_by)
    act = way.perhaps_skipped_by
    if act is not None:
        others.append(Other(State.SKIPPED, None, f"the group was reset at {act.at:%Y-%m-%d %H:%M:%S}", "if by then"))
    if facts.message.is_leaving:
        others.append(Other(State.EXPIRED, None, "its day is about to be dropped", "if it was not settled before"))
    if not facts.are_moments_whole:
        others.append(Other(told.candidate.state, told.candidate.why, _ANYTHING, _UNKNOWN_PAST))
    if facts.has_lost_changes:
        others.append(Other(told.candidate.state, told.candidate.why, _ANYTHING, _LOST_PAST))
    if not facts.are_resets_whole:
        others.append(Other(State.SKIPPED, None, _ANYTHING, _UNKNOWN_RESETS))
    state, why, detail, _ = told.candidate
    return answer(facts, state, told.basis, detail, why=why, others=tuple(others))


def _of_before(buried: Buried, back: LaneResetAct) -> str:
    return f"{buried.dead_letter_id} is of before the group was {back.said}"


def _died_without_a_trace(facts: GroupFacts, back: LaneResetAct | None) -> list[Other]:
    """Return that it may be a dead letter of which no row is left, where that can be."""
    buried = facts.rows.dead_letter
    if buried is not None:
        before = "" if back is None else _of_before(buried, back)
        detail = f"dead letter {before}; a second one leaves no row"
        return [Other(State.DEAD_LETTER, None, detail, "if it died again")]
    return [
        Other(
            State.DEAD_LETTER,
            None,
            f"job {job.job_id} purged dead letters like it",
            f"if it had died before {job.created_at:%Y-%m-%d %H:%M:%S}, and was purged",
        )
        for job in facts.purges[:1]
    ]
