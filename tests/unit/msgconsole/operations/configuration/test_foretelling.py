"""What is foretold of messages is what each subscription by itself says of them, put together."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from confdb.expressions.compiled import compile_expression
from confdb.routes import (
    ExpressionFailedError,
    Snapshot,
    StressOperator,
    StressRule,
    SubscriptionMode,
    SubscriptionRoute,
)
from msgconsole.operations.configuration.foretelling import Fate, Foretold, GroupFates, foretell, subscription_id_of
from msgdb.log.found import FoundMessage
from tests.support.broker_builders import PAID, TOPIC, group_route, route, snapshot, subscription

GROUP = "SG_POINTS"
REFUNDED = "EC_REFUNDED"
EXPRESSIONS = (
    'headers.region == "hz"',
    'headers.region != "hz"',
    "int(headers.amount) > 100",
    '"region" in headers',
    'headers.exists(k, k.startsWith("x-"))',
)
RULE = StressRule("x-stress", StressOperator.EXISTS, "")

codes = st.sampled_from([PAID, REFUNDED, "*"])
asked = st.tuples(codes, st.sampled_from([None, *EXPRESSIONS]), st.booleans())
"""Of a subscription: its event code, its expression, and whether it is paused."""
headers = st.fixed_dictionaries(
    {},
    optional={
        "region": st.sampled_from(["hz", "sh"]),
        "amount": st.sampled_from(["5", "500", "much"]),
        "x-stress": st.just("yes"),
    },
)
published = st.lists(st.tuples(st.sampled_from([PAID, REFUNDED]), headers), max_size=12)


def subscriptions_of(wanted: Sequence[tuple[str, str | None, bool]]) -> tuple[SubscriptionRoute, ...]:
    return tuple(
        subscription(
            number,
            event_code=code,
            mode=SubscriptionMode.DIRECT if text is None else SubscriptionMode.HEADER,
            expression=text,
            predicate=None if text is None else compile_expression(text),
            paused=paused,
            # All that is stored lies before them: it does not count.
            start_offsets={1: 1_000},
        )
        for number, (code, text, paused) in enumerate(wanted, 1)
    )


def configured(wanted: Sequence[tuple[str, str | None, bool]], *, allowed: bool = False) -> Snapshot:
    group = group_route(subscriptions=subscriptions_of(wanted))
    return snapshot(
        route(),
        groups={(group.namespace, group.name): group},
        stress_rules={"default": (RULE,)},
        stress_whitelist=frozenset({(1, 1, PAID)} if allowed else ()),
    )


def found(number: int, event_code: str, its_headers: dict[str, str], **changed: Any) -> FoundMessage:
    message = FoundMessage(
        queue_id=1,
        queue_offset=number,
        stored_at_us=1_000_000 * number,
        message_id=uuid.UUID(int=number).bytes,
        namespace="default",
        topic=TOPIC,
        event_code=event_code,
        key=None,
        ordering_key=None,
        headers=its_headers or None,
        body_bytes=10,
        born_at_us=0,
        born_host=None,
        publisher_group=None,
        stress=False,
        target_group=None,
        redrives=0,
    )
    return message._replace(**changed)


def told(messages: Sequence[FoundMessage], before: Snapshot, after: Snapshot, **options: Any) -> Foretold:
    fates = (GroupFates(each, "default", GROUP, TOPIC) for each in (before, after))
    return foretell(messages, *fates, **{"is_over": lambda: False, **options})


def says_yes(wanted: tuple[str, str | None, bool], message: FoundMessage) -> bool:
    code, text, _ = wanted
    if code not in {message.event_code, "*"}:
        return False
    try:
        return text is None or compile_expression(text)(message.headers or {}) is True
    except ExpressionFailedError:
        return False


def by_hand(wanted: Sequence[tuple[str, str | None, bool]], message: FoundMessage, *, allowed: bool) -> Fate:
    yes = [each for each in wanted if says_yes(each, message)]
    if not yes:
        return Fate.NOT_ASKED_FOR
    if "x-stress" in (message.headers or {}) and not (allowed and message.event_code == PAID):
        return Fate.WITHHELD
    return Fate.WAITS if all(paused for *_, paused in yes) else Fate.DELIVERED


@given(st.lists(asked, max_size=4), st.lists(asked, max_size=4), published, st.booleans(), st.booleans())
def test_what_is_foretold_is_what_the_subscriptions_say(
    before: list[tuple[str, str | None, bool]],
    after: list[tuple[str, str | None, bool]],
    stored: list[tuple[str, dict[str, str]]],
    was_allowed: bool,
    is_allowed: bool,
) -> None:
    messages = [found(number, code, its_headers) for number, (code, its_headers) in enumerate(stored)]

    foretold = told(messages, configured(before, allowed=was_allowed), configured(after, allowed=is_allowed))

    fates = [
        (by_hand(before, message, allowed=was_allowed), by_hand(after, message, allowed=is_allowed))
        for message in messages
    ]
    gets = {Fate.DELIVERED, Fate.WAITS}
    matches = [(was in gets, is_ in gets) for was, is_ in fates]
    assert foretold.looked_at == len(messages)
    assert (foretold.both, foretold.newly, foretold.no_longer) == (
        matches.count((True, True)),
        matches.count((False, True)),
        matches.count((True, False)),
    )
    assert (foretold.before, foretold.after) == (sum(was for was, _ in matches), sum(is_ for _, is_ in matches))
    assert foretold.waits == sum(is_ is Fate.WAITS for _, is_ in fates)
    assert foretold.withheld == sum(is_ is Fate.WITHHELD for _, is_ in fates)
    newly = [message.id for message, match in zip(messages, matches, strict=True) if match == (False, True)]
    assert list(foretold.newly_examples) == newly[:3]


def test_failures_are_counted_by_the_header_that_is_missing_for_the_subscription_that_changes() -> None:
    before = configured([("*", 'headers.region == "hz"', False)])
    after = configured([("*", 'headers.region == "hz" && int(headers.amount) > 1', False)])
    messages = [
        found(1, PAID, {}),
        found(2, PAID, {"region": "hz"}),
        found(3, PAID, {"region": "hz", "amount": "much"}),
        found(4, PAID, {"region": "sh"}),
    ]

    ids = [subscription_id_of(each, "default", GROUP, TOPIC, "*") for each in (before, after)]
    foretold = told(messages, before, after, failing=(ids[0], ids[1]))

    assert ids == [1, 1]
    assert (foretold.failed_before, foretold.failed) == (1, 3)
    assert foretold.failed_headers == {"region": 1, "amount": 1, "another failure": 1}


def test_copies_for_single_groups_are_left_out_and_the_time_is_kept() -> None:
    everything = configured([("*", None, False)])
    nothing = configured([])
    messages = [found(3, PAID, {}, target_group=1), found(2, PAID, {}), found(1, PAID, {})]
    ends = iter([False, True])

    foretold = told(messages, nothing, everything, is_over=lambda: next(ends))

    assert (foretold.copies, foretold.looked_at, foretold.newly, foretold.is_cut) == (1, 1, 1, True)
    assert foretold.oldest_at == foretold.newest_at == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)


def test_a_group_that_is_not_there_gets_nothing() -> None:
    everything = configured([("*", None, False)])
    gone = replace(everything, groups={})

    foretold = told([found(1, PAID, {})], everything, gone)

    assert (foretold.before, foretold.after, foretold.no_longer) == (1, 0, 1)
