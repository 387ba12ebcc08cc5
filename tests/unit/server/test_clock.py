"""The clock of the leases: it goes on while the machine is suspended, as the database's does."""

from __future__ import annotations

import time

from msgbroker.server import clock


def test_leases_are_counted_by_the_clock_that_goes_on_in_suspension() -> None:
    boot = time.clock_gettime(time.CLOCK_BOOTTIME)

    assert 0 <= clock.now() - boot < 60
    assert clock._CLOCK == time.CLOCK_BOOTTIME
