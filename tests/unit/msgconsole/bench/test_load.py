"""What a load is made of."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from confdb.expressions.compiled import compile_expression
from msgconsole.bench.scenario import EXPRESSION
from msgconsole.bench.workers.load import MATCHING, NOT_MATCHING, Load


def task(**given: Any) -> dict[str, Any]:
    return {"messages": 1_000, "keyed_share": 0.5, "matching_share": 1.0, "with_headers": False, **given}


def test_half_of_the_messages_have_a_key() -> None:
    assert sum(1 for planned in Load(task()) if planned.key) == 500


def test_the_share_that_matches_is_kept_and_counted() -> None:
    load = Load(task(with_headers=True, matching_share=0.01))
    assert sum(1 for planned in load if planned.headers == MATCHING) == load.matching == 10


def test_without_a_number_a_load_goes_on_until_it_is_stopped() -> None:
    load = Load(task(messages=0))
    planned = iter(load)
    assert len(list(islice(planned, 5_000))) == 5_000
    load.stopped = True
    assert list(planned) == []
    assert load.published == 5_000


def test_the_message_that_connects_counts() -> None:
    load = Load(task(messages=10, with_headers=True))
    assert load.first.headers == MATCHING
    assert [*load]
    assert (load.published, load.matching) == (11, 11)


@pytest.mark.parametrize("threshold", [0, 99])
def test_the_header_groups_want_what_matches_and_nothing_else(threshold: int) -> None:
    matches = compile_expression(EXPRESSION.format(threshold=threshold))
    assert (matches(MATCHING), matches(NOT_MATCHING)) == (True, False)


def test_what_does_not_match_fails_at_the_last_term() -> None:
    first_two = EXPRESSION.format(threshold=99).rpartition(" && ")[0]
    assert compile_expression(first_two)(NOT_MATCHING)
