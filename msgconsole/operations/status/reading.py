"""What comes of it when a lane reads a message by one configuration: the matcher's answer, with its reasons. Pure.

`tests/unit/msgconsole/operations/status` holds it against the matcher itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from confdb.expressions.compiled import compile_expression, missing_header
from confdb.past import PastSubscription
from confdb.routes import ExpressionFailedError, SubscriptionMode
from msgbroker.contract.errors import InvalidExpressionError
from msgbroker.contract.names import ANY_EVENT_CODE
from msgconsole.operations.status.answers import Why
from msgconsole.operations.status.moments import GroupMoment
from msgdb.lanes.records import LaneReset


class Readable(NamedTuple):
    """A message, as far as subscriptions look at it."""

    queue_id: int
    queue_offset: int
    stored_at_us: int
    topic: str
    event_code: str
    key: str | None
    headers: Mapping[str, str]
    stress: bool
    target_group: int | None
    is_leaving: bool
    """Whether its day is about to be dropped: its queue begins behind it."""


class _Said(Enum):
    """What a subscription says of a message of its type."""

    WANTS = auto()
    STARTS_LATER = auto()
    FALSE = auto()
    FAILED = auto()


class _Considered(NamedTuple):
    subscription: PastSubscription
    said: _Said
    text: str


class Reading(NamedTuple):
    """What comes of reading a message."""

    detail: str
    is_wanted: bool = False
    shelved_by: frozenset[int] = frozenset()
    """The paused subscriptions that want it, where only these do."""
    why: Why | None = None
    """Why nobody wants it."""
    begins_behind: bool = False
    """Whether a lane that was never served before begins behind the message, and never comes to it."""


_WHY = {
    _Said.FAILED: Why.EXPRESSION_FAILED,
    _Said.FALSE: Why.EXPRESSION_FALSE,
    _Said.STARTS_LATER: Why.SUBSCRIBED_LATER,
}


def read_by(moment: GroupMoment, message: Readable, reset: LaneReset | None) -> Reading:
    """Return what comes of it when a lane of the group reads *message* in this *moment*.

    *reset*: where the lane had been put by hand. One that is for this group alone it gets, whatever it subscribes to.
    """
    if message.target_group is not None:
        if not moment.has_lane:
            return Reading(_no_subscription(moment, message), why=Why.NO_SUBSCRIPTION)
        first = min(_start_of(each, message, reset) for each in moment.subscriptions)
        alone = "it was stored again for this group alone"
        return Reading(alone, is_wanted=True, begins_behind=first > message.queue_offset)
    asked = [each for each in moment.subscriptions if each.event_code in {message.event_code, ANY_EVENT_CODE}]
    considered = [_consider(each, message, reset) for each in asked]
    wanting = [each.subscription for each in considered if each.said is _Said.WANTS]
    going_on = [each for each in wanting if not each.paused]
    if going_on:
        return Reading(f"by {_name(going_on[0], message)}", is_wanted=True)
    if wanting:
        ids = frozenset(each.subscription_id for each in wanting)
        return Reading(f"only {_name(wanting[0], message)} wants it, which is paused", shelved_by=ids)
    for said, why in _WHY.items():
        texts = [each.text for each in considered if each.said is said]
        if texts:
            return Reading("; ".join(texts), why=why)
    return Reading(_no_subscription(moment, message), why=Why.NO_SUBSCRIPTION)


def _consider(subscription: PastSubscription, message: Readable, reset: LaneReset | None) -> _Considered:
    start = _start_of(subscription, message, reset)
    name = _name(subscription, message)
    if start > message.queue_offset:
        return _Considered(subscription, _Said.STARTS_LATER, f"{name} began behind it, at offset {start}")
    if subscription.mode == SubscriptionMode.DIRECT:
        return _Considered(subscription, _Said.WANTS, "")
    expression = subscription.expression or ""
    try:
        is_satisfied = compile_expression(expression)(dict(message.headers))
    except ExpressionFailedError as error:
        header = missing_header(error.problem)
        because = f"header {header!r} is missing" if header is not None else error.problem
        return _Considered(subscription, _Said.FAILED, f"the expression of {name} failed: {because}")
    except InvalidExpressionError as error:
        # It was registered with another version of the compiler.
        return _Considered(subscription, _Said.FAILED, f"the expression of {name} {error.message}")
    if is_satisfied:
        return _Considered(subscription, _Said.WANTS, "")
    return _Considered(subscription, _Said.FALSE, f"the expression of {name} is false: {expression}")


def _start_of(subscription: PastSubscription, message: Readable, reset: LaneReset | None) -> int:
    start = subscription.start_offsets.get(message.queue_id, 0)
    if reset is not None and subscription.subscription_id <= reset.subscription_id:
        return min(start, reset.offset)
    return start


def _name(subscription: PastSubscription, message: Readable) -> str:
    return f"the subscription to {message.topic}/{subscription.event_code}"


def _no_subscription(moment: GroupMoment, message: Readable) -> str:
    if not moment.subscriptions:
        return f"it does not subscribe to {message.topic}"
    codes = ", ".join(sorted({each.event_code for each in moment.subscriptions}))
    return f"it subscribes to {codes} of {message.topic}, and not to {message.event_code}"
