"""The example client passes the conformance suite of deliveries: the same tests, with Node on the wire."""

from __future__ import annotations

from typing import Final

from tests.contract import test_delivery, test_slow_handlers

NOT_HERE: Final = {
    # They register things, and use no client.
    "test_a_bad_expression_is_refused_with_its_position",
    "test_an_expression_that_costs_too_much_is_refused",
    "test_settings_out_of_bounds_are_refused",
    # Of the client for blocking code.
    "test_a_blocking_handler_may_take_longer_than_the_ack_timeout",
    # Of what the Python client refuses by itself.
    "test_a_handler_can_ask_for_time_itself_within_bounds",
}
_SUITE: Final = {
    name: test
    for suite in (test_delivery, test_slow_handlers)
    for name, test in vars(suite).items()
    if name.startswith("test_")
}

globals().update({name: test for name, test in _SUITE.items() if name not in NOT_HERE})


def test_what_is_not_run_here_is_part_of_the_suite() -> None:
    assert _SUITE.keys() >= NOT_HERE
