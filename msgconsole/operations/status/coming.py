"""What is to come of a message that is not settled: by its broker's word, or by the configuration of now. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from msgbroker.client.connect.inspection import MessageStand
from msgbroker.contract.whereabouts import Stand
from msgconsole.operations.status.answers import Basis, GroupStatus, Other, State, Why
from msgconsole.operations.status.facts import NOT_ASKED, GroupFacts, answer
from msgconsole.operations.status.moments import UNCERTAIN_US
from msgconsole.operations.status.passages import Way, moment_at, readings_of
from msgconsole.operations.status.reading import Reading, read_by
from msgconsole.operations.status.settled import BEGINS_BEHIND, denied, later_than
from msgdb.postgres.binary_rows import datetime_of

_IN_MEMORY: Final = frozenset({Stand.READY, Stand.IN_FLIGHT, Stand.WAITING, Stand.SHELVED})


def with_an_instance(facts: GroupFacts, held: MessageStand, last_error: str | None) -> GroupStatus:
    """Tell who has it, and until when."""
    until = None if held.deadline_at_us is None else datetime_of(held.deadline_at_us)
    detail = f"instance {held.instance_id} has it, as attempt {held.attempt}"
    if until is not None:
        detail += f", until {until:%H:%M:%S}"
    return answer(
        facts,
        State.IN_FLIGHT,
        Basis.BROKER,
        detail,
        attempt=held.attempt,
        instance_id=held.instance_id,
        until=until,
        last_error=last_error,
    )


def tell_unsettled(facts: GroupFacts, way: Way) -> GroupStatus:
    """Tell what is to come: what its broker says, where one does, and else by the configuration of now."""
    stand = facts.stand
    if stand is None:
        return _to_come(facts, way, _read_before(facts, way) if facts.rows.owner is not None else ())
    if stand.stand in _IN_MEMORY:
        return _in_memory(facts, way, stand)
    return _to_come(facts, way, _read_before(facts, way, is_unread=True))


def _in_memory(facts: GroupFacts, way: Way, stand: MessageStand) -> GroupStatus:
    """Tell of what was read, and is in the memory of its broker."""
    if stand.stand is Stand.IN_FLIGHT:
        return with_an_instance(facts, stand, None)
    if stand.stand is Stand.WAITING:
        due_at = None if stand.due_at_us is None else datetime_of(stand.due_at_us)
        detail = f"it comes again as attempt {stand.attempt}"
        return answer(facts, State.RETRYING, Basis.BROKER, detail, attempt=stand.attempt, due_at=due_at)
    if stand.stand is Stand.SHELVED:
        return answer(facts, State.SHELVED, Basis.BROKER, "only paused subscriptions want it: it waits for them")
    if facts.message.stress and not facts.moments[-1].may_see_stress and not _is_to_wait(facts, way):
        return _denied_next(facts)
    ready = f"it is ready for the next instance that has room{facts.if_paused}"
    return answer(facts, State.PENDING, Basis.BROKER, ready)


def _to_come(facts: GroupFacts, way: Way, others: tuple[Other, ...]) -> GroupStatus:
    """Tell what is to come of a message that its lane reads by the configuration of now."""
    message, moments = facts.message, facts.moments
    reading = read_by(moments[-1], message, way.passages[-1].reset)
    if reading.begins_behind and not facts.rows.has_cursor:
        why = later_than(moments, moment_at(moments, message.stored_at_us), Why.SUBSCRIBED_LATER)
        told = answer(facts, State.NOT_MATCHED, Basis.NOW, BEGINS_BEHIND, why=why)
    elif not reading.is_wanted and not reading.shelved_by:
        deleted = _deleted_since(facts, way, reading)
        if deleted is not None:
            return answer(facts, State.NOT_MATCHED, Basis.NOW, deleted, why=Why.SUBSCRIPTION_DELETED, others=others)
        why = later_than(moments, moment_at(moments, message.stored_at_us), reading.why)
        detail = f"{reading.detail}; its lane has not come to it yet" if moments[-1].has_lane else reading.detail
        told = answer(facts, State.NOT_MATCHED, Basis.NOW, detail, why=why)
    elif reading.is_wanted and message.stress and not moments[-1].may_see_stress:
        told = _denied_next(facts)
    else:
        told = answer(facts, State.PENDING, Basis.NOW, f"{_pending(facts, reading)}{facts.if_paused}")
    return replace(told, others=tuple(each for each in others if (each.state, each.why) != (told.state, told.why)))


def _deleted_since(facts: GroupFacts, way: Way, reading: Reading) -> str | None:
    """Say that a subscription asked for it that is no more, where no other one decides; None: that is not so."""
    if reading.why not in {Why.NO_SUBSCRIPTION, Why.SUBSCRIBED_LATER}:
        return None
    moments, message = facts.moments, facts.message
    then = moment_at(moments, message.stored_at_us)
    for index, passage in reversed(readings_of(way, moments)):
        if index < then:
            return None
        was = read_by(moments[index], message, passage.reset)
        change = None if index == len(moments) - 1 else moments[index + 1].made_by
        if change is not None and (was.is_wanted or was.shelved_by):
            until = f"until {'; '.join(change.actions)} of {change.at:%Y-%m-%d %H:%M:%S} by {change.by}"
            return f"it was wanted {was.detail}, {until}; by now {reading.detail}"
    return None


def _is_to_wait(facts: GroupFacts, way: Way) -> bool:
    """Return whether only paused subscriptions want it by now: then it is put on the shelf before it is handed out."""
    return bool(read_by(facts.moments[-1], facts.message, way.passages[-1].reset).shelved_by)


def _state_of(reading: Reading) -> State:
    return State.PENDING if reading.why is None else State.NOT_MATCHED


def said_of_denial(facts: GroupFacts) -> str:
    """Say what becomes of a stress message that the group may not see when its turn comes."""
    return f"{denied(facts.message)}: it will be settled without being delivered"


def _denied_next(facts: GroupFacts) -> GroupStatus:
    return answer(facts, State.NOT_MATCHED, Basis.NOW, said_of_denial(facts), why=Why.STRESS_NOT_ALLOWED)


def _pending(facts: GroupFacts, reading: Reading) -> str:
    if reading.shelved_by:
        return f"{reading.detail}: it is to wait for it"
    if facts.rows.owner is None:
        return "no broker serves its lane: no instance of the group is connected that could take it"
    if facts.stand is not None:
        return "its lane has not come to it yet"
    return f"it is to be handed out, or an instance has it: {NOT_ASKED}"


def _read_before(facts: GroupFacts, way: Way, *, is_unread: bool = False) -> tuple[Other, ...]:
    """Return what is so where the lane reads, or has read, the message by what was registered before.

    What was wanted then is ready in its broker's memory, however long ago that was; what was not, the next checkpoint
    writes down. Where it *is_unread*, only a broker that has not heard of the last changes yet reads it so.
    """
    moments, message = facts.moments, facts.message
    found: dict[tuple[State, Why | None], Other] = {}
    for index, passage in readings_of(way, moments):
        if index == len(moments) - 1:
            continue
        change = moments[index + 1].made_by
        assert change is not None, "only the first moment was made by nobody"
        is_fresh = moments[index + 1].begins_us + UNCERTAIN_US >= facts.now_us
        reading = read_by(moments[index], message, passage.reset)
        if not is_fresh and (is_unread or reading.why is not None):
            continue
        when = f"if its lane reads it by what was before {'; '.join(change.actions)} of {change.at:%Y-%m-%d %H:%M:%S}"
        state, why, detail = _state_of(reading), reading.why, reading.detail
        if state is State.PENDING and message.stress and not moments[-1].may_see_stress:
            state, why, detail = State.NOT_MATCHED, Why.STRESS_NOT_ALLOWED, denied(message)
        found.setdefault((state, why), Other(state, why, detail, when))
    return tuple(found.values())
