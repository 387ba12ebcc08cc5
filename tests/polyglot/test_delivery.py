"""The example client passes the conformance suite of deliveries: the same tests, with Node on the wire."""

from __future__ import annotations

from typing import Final

from tests.contract import test_delivery as suite

NOT_HERE: Final = {
    # They register things, and use no client.
    "test_a_bad_expression_is_refused_with_its_position",
    "test_an_expression_that_costs_too_much_is_refused",
    "test_settings_out_of_bounds_are_refused",
}

for _name, _test in vars(suite).items():
    if _name.startswith("test_") and _name not in NOT_HERE:
        globals()[_name] = _test


def test_what_is_not_run_here_is_part_of_the_suite() -> None:
    assert vars(suite).keys() >= NOT_HERE
