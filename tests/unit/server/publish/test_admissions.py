"""Admissions of all publishers: who has one of its own, who shares one, and how many are remembered."""

from __future__ import annotations

import pytest

from confdb.routes import Snapshot
from msgbroker.contract.errors import NamespaceNotFoundError
from msgbroker.server.edge.decoding import parse_message
from msgbroker.server.publish.admissions import OF_CALLS_MAX, Admissions
from msgbroker.server.publish.admitted_types import Origin
from tests.support.broker_builders import route, snapshot

ORIGIN = Origin("default", "", "host")


def admissions(current: Snapshot | None = None) -> Admissions:
    known = current or snapshot(route())
    return Admissions(snapshot=lambda: known, learn_event_code=lambda _, __: None, parse=parse_message)


def test_calls_of_one_origin_share_an_admission_and_each_stream_has_its_own() -> None:
    made = admissions()

    assert made.for_call(ORIGIN) is made.for_call(ORIGIN)
    assert made.for_call(ORIGIN) is not made.for_call(Origin("default", "", "other"))
    assert made.for_stream(ORIGIN) is not made.for_stream(ORIGIN)


def test_an_origin_that_is_not_known_has_none() -> None:
    made = admissions()

    for find in (made.for_stream, made.for_call):
        with pytest.raises(NamespaceNotFoundError):
            find(Origin("elsewhere", "", "host"))


def test_calls_begin_anew_once_the_configuration_has_changed() -> None:
    made = admissions()
    before = made.for_call(ORIGIN)
    made.forget_calls()

    assert made.for_call(ORIGIN) is not before


def test_a_bounded_number_of_origins_of_calls_is_remembered() -> None:
    made = admissions()
    first = made.for_call(ORIGIN)
    for n in range(OF_CALLS_MAX):
        made.for_call(Origin("default", "", f"host-{n}"))

    assert made.for_call(ORIGIN) is not first
