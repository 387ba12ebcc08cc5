"""The demo's expectations, counted by hand."""

from __future__ import annotations

from msgconsole.demo.scenario import GROUPS, Counts, expected_counts, make_messages


def test_the_expected_counts_are_those_counted_by_hand() -> None:
    messages = make_messages()
    assert {group.name: expected_counts(group, messages) for group in GROUPS} == {
        "POINTS": Counts(handled=24, stress=0, retried=5, dead_letters=1),
        "HANGZHOU": Counts(handled=9, stress=0, retried=0, dead_letters=0),
        "SHADOW": Counts(handled=40, stress=10, retried=0, dead_letters=0),
        "LEDGER": Counts(handled=29, stress=0, retried=0, dead_letters=1),
    }
