"""The terms of leases: an owner has stopped before anybody else can have its lanes."""

from __future__ import annotations

import pytest

from msgbroker.contract.limits import LEASE_SECONDS_MAX
from msgbroker.server.cluster.lease_terms import LeaseTerms

ASKED_AT = 1_000.0


@pytest.mark.parametrize("seconds", [3.0, 8.0, LEASE_SECONDS_MAX])
@pytest.mark.parametrize("answered_after_seconds", [0.0, 2.0, 600.0])
def test_an_owner_stops_before_the_database_lets_others_claim_however_long_it_took_to_answer(
    seconds: float, answered_after_seconds: float
) -> None:
    granted_at = ASKED_AT + answered_after_seconds
    passes_at = granted_at + seconds

    assert LeaseTerms(seconds).relied_on_until(ASKED_AT) < passes_at


@pytest.mark.parametrize("seconds", [3.0, 8.0, LEASE_SECONDS_MAX])
def test_a_renewal_that_fails_can_be_tried_again_before_the_lane_is_stopped(seconds: float) -> None:
    terms = LeaseTerms(seconds)

    assert ASKED_AT + 2 * terms.renewed_after_seconds < terms.relied_on_until(ASKED_AT)
