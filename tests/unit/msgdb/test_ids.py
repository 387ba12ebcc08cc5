"""Message ids: UUIDv7 by their bits, in runs that count up in place."""

from __future__ import annotations

import itertools
from uuid import RFC_4122, UUID

from hypothesis import given
from hypothesis import strategies as st

from msgdb import ids

_TIMES_US = st.integers(0, 2**48 * 1_000 - 1)


@given(_TIMES_US, st.integers(0, ids.RUN_MAX - 1))
def test_every_id_of_a_run_is_a_uuid_of_version_7_that_knows_its_time(now_us: int, step: int) -> None:
    number = ids.mint_run(now_us) + step
    as_uuid = UUID(bytes=ids.to_bytes(number))

    assert as_uuid.int == number
    assert (as_uuid.version, as_uuid.variant) == (7, RFC_4122)
    assert ids.time_us_of(as_uuid.bytes) == now_us // 1_000 * 1_000


@given(_TIMES_US)
def test_runs_of_the_same_moment_do_not_meet(now_us: int) -> None:
    runs = sorted(ids.mint_run(now_us) for _ in range(20))

    # 54 random bits: a collision here would be a constant, not bad luck.
    assert all(later - earlier >= ids.RUN_MAX for earlier, later in itertools.pairwise(runs))


def test_later_runs_sort_behind_earlier_ones() -> None:
    assert ids.mint_run(1_000_000) < ids.mint_run(1_001_000) < ids.mint_run()
