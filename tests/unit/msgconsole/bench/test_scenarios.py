"""The scenarios that are shipped: each target is measured by the ones that claim so."""

from __future__ import annotations

from typing import get_args

import pytest

from msgconsole.bench import catalogue
from msgconsole.bench.scenario import LateGroup, Phase, Scenario, Step
from tests.bench import full, quick, standard

EVERY_SCENARIO = [quick.SCENARIO, standard.SCENARIO, full.SCENARIO, catalogue.baseline()]
NAMES_OF_TARGETS = {value for name, value in vars(catalogue).items() if name.isupper() and isinstance(value, str)}


def phases(scenario: Scenario) -> list[Phase]:
    return [step for step in scenario.steps if isinstance(step, Phase)]


@pytest.mark.parametrize("scenario", [standard.SCENARIO, full.SCENARIO], ids=lambda scenario: scenario.name)
def test_the_long_scenarios_measure_every_target(scenario: Scenario) -> None:
    assert {phase.name for phase in phases(scenario)} >= NAMES_OF_TARGETS
    assert {type(step) for step in scenario.steps} == {*get_args(Step)}


@pytest.mark.parametrize("scenario", EVERY_SCENARIO, ids=lambda scenario: scenario.name)
def test_every_phase_has_an_end(scenario: Scenario) -> None:
    for phase in phases(scenario):
        assert phase.messages or phase.seconds or phase.late is LateGroup.CATCHES_UP, phase.name


@pytest.mark.parametrize("scenario", EVERY_SCENARIO, ids=lambda scenario: scenario.name)
def test_header_groups_get_messages_with_headers(scenario: Scenario) -> None:
    for phase in phases(scenario):
        assert phase.with_headers or not phase.groups.header, phase.name


def test_the_full_scenario_holds_its_snapshot_for_ten_minutes_behind_five_million_messages() -> None:
    found = {phase.name: phase for phase in phases(full.SCENARIO)}
    assert found[catalogue.HELD_SNAPSHOT].seconds == 600
    assert found[catalogue.BACKLOG_BUILDING].messages == 5_000_000
