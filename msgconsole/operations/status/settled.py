"""What may have become of a message that its lane has settled without leaving a row. Pure.

Settled is what was acknowledged, what nobody wanted, what the group may not see, and what waited for a subscription
that is gone. No row tells these apart, nor by which configuration the lane read the message: so each that there was
since then is asked, and what differs is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgconsole.operations.status.answers import Basis, Other, State, Why
from msgconsole.operations.status.moments import GroupMoment
from msgconsole.operations.status.passages import Way, moment_at, readings_of
from msgconsole.operations.status.reading import Readable, read_by

BEGINS_BEHIND: Final = "its lane was served for the first time when all subscriptions began behind it"


class Candidate(NamedTuple):
    """Something that may have become of it."""

    state: State
    why: Why | None
    detail: str
    moment: int
    """By which configuration: which of the group's moments."""


class Told(NamedTuple):
    """The most likely of what may have become of it, and the rest."""

    candidate: Candidate
    basis: Basis
    others: tuple[Other, ...]


def tell_settled(message: Readable, moments: tuple[GroupMoment, ...], way: Way) -> Told:
    """Return what became of a settled message: what it was by the configuration of then, and what it may be instead."""
    then = moment_at(moments, way.begins_us)
    by_reading = list(_by_reading(message, moments, way))
    if not by_reading:
        return Told(_nobody_read(message, moments, then), Basis.THEN, ())
    # By the configuration of then, or the first one by which anybody can have read it.
    told = next((found for index, found in by_reading if index >= then), by_reading[-1][1])[0]
    others: dict[tuple[State, Why | None], Other] = {}
    for each in (candidate for _, found in by_reading for candidate in found):
        if (each.state, each.why) != (told.state, told.why):
            when = when_other(each, told, moments)
            others.setdefault((each.state, each.why), Other(each.state, each.why, each.detail, when))
    basis = Basis.THEN if told.moment <= then else Basis.LATER
    return Told(told, basis, tuple(others.values()))


def _by_reading(message: Readable, moments: tuple[GroupMoment, ...], way: Way) -> Iterator[tuple[int, list[Candidate]]]:
    """Give each configuration by which it can have been read, with what may have come of that: something always."""
    then = moment_at(moments, way.begins_us)
    for index, passage in readings_of(way, moments):
        reading = read_by(moments[index], message, passage.reset)
        if reading.is_wanted:
            found = list(_handed_out(message, moments, index, reading.detail))
            if reading.begins_behind:
                why = later_than(moments, then, Why.SUBSCRIBED_LATER)
                found.append(Candidate(State.NOT_MATCHED, why, BEGINS_BEHIND, index))
            yield index, found + list(_paused_meanwhile(message, moments, way, index))
        elif reading.shelved_by:
            yield index, list(_off_the_shelf(message, moments, index, reading.shelved_by, reading.detail))
        else:
            why = later_than(moments, then, reading.why)
            yield index, [Candidate(State.NOT_MATCHED, why, reading.detail, index)]


def _handed_out(message: Readable, moments: tuple[GroupMoment, ...], index: int, detail: str) -> Iterator[Candidate]:
    """Give what came of handing it out: whether it may be is asked again at each hand-out."""
    if not message.stress:
        yield Candidate(State.DELIVERED, None, detail, index)
        return
    for at in range(index, len(moments)):
        if moments[at].may_see_stress:
            yield Candidate(State.DELIVERED, None, f"{detail}; a stress message, which it may see", at)
        else:
            yield Candidate(State.NOT_MATCHED, Why.STRESS_NOT_ALLOWED, denied(message), at)


def _paused_meanwhile(message: Readable, moments: tuple[GroupMoment, ...], way: Way, index: int) -> Iterator[Candidate]:
    """Give what came of it where it was read, and those who want it were paused before it was handed out."""
    for at in range(index + 1, len(moments)):
        reading = read_by(moments[at], message, way.passages[-1].reset)
        if reading.shelved_by:
            yield from _off_the_shelf(message, moments, at, reading.shelved_by, reading.detail)


def _off_the_shelf(
    message: Readable, moments: tuple[GroupMoment, ...], index: int, shelved_by: frozenset[int], detail: str
) -> Iterator[Candidate]:
    """Give how it left the shelf: one of those that it waited for goes on, or none of them is there any more."""
    has_left = False
    for at in range(index, len(moments)):
        left = [each for each in moments[at].subscriptions if each.subscription_id in shelved_by]
        has_gone_on = any(not each.paused for each in left)
        has_left |= has_gone_on or (not left and moments[at].has_lane)
        if has_gone_on:
            yield from _handed_out(message, moments, at, f"{detail}, until it went on")
        elif not left and moments[at].has_lane:
            deleted = f"{detail}, and was deleted"
            yield Candidate(State.NOT_MATCHED, Why.SUBSCRIPTION_DELETED, deleted, at)
    if not has_left:
        # By a change that is not in the audit trail.
        yield Candidate(State.DELIVERED, None, f"{detail}, until somebody changed that", index)
        yield Candidate(State.NOT_MATCHED, Why.SUBSCRIPTION_DELETED, f"{detail}, until somebody deleted it", index)


def denied(message: Readable) -> str:
    """Say that the group may not see it."""
    return f"a stress message, and the group may not see those of {message.topic}/{message.event_code}"


def later_than(moments: tuple[GroupMoment, ...], then: int, why: Why | None) -> Why | None:
    """Return why nobody wanted it, of a group that was perhaps not there when the message came."""
    is_by_time = why in {Why.SUBSCRIBED_LATER, Why.NO_SUBSCRIPTION}
    return Why.GROUP_CREATED_LATER if is_by_time and not moments[then].is_registered else why


def _nobody_read(message: Readable, moments: tuple[GroupMoment, ...], then: int) -> Candidate:
    detail = f"it did not subscribe to {message.topic}"
    return Candidate(State.NOT_MATCHED, later_than(moments, then, Why.NO_SUBSCRIPTION), detail, then)


def when_other(other: Candidate, told: Candidate, moments: tuple[GroupMoment, ...]) -> str:
    """Say what would have to be so."""
    if other.moment == told.moment:
        return "that may be as well"
    is_later = other.moment > told.moment
    change = moments[other.moment if is_later else other.moment + 1].made_by
    assert change is not None, "only the first moment was made by nobody"
    side = "after" if is_later else "before"
    return f"if that was {side} {'; '.join(change.actions)} of {change.at:%Y-%m-%d %H:%M:%S} by {change.by}"
