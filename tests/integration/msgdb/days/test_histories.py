"""Random histories of a day against a small model of it: it goes when the model says so, and never before."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import date, timedelta

import psycopg
import pytest

from msgbroker.contract.errors import MessageCenterError
from msgdb.archive.claims import waive
from msgdb.archive.permits import hold_days, release_days
from msgdb.archive.policy import require, stop_requiring
from msgdb.archive.records import ArchiveRun, DayState
from msgdb.day_tables import DAY_TABLES
from msgdb.days import dropping
from msgdb.days.maintenance import Maintenance, MaintenanceConfig
from msgdb.log.partitions import list_partitions, today
from msgdb.names import MESSAGE
from msgdb.postgres.connections import Connection
from msgdb.store import MessageStore
from tests.support.archive_rows import state_of
from tests.support.archive_runs import ACTOR, archive_day, claim_day, let_lapse
from tests.support.earlier_maintenance import drop_as_before
from tests.support.rows import GROUP_NAMES, make_queue, put_messages

STEPS = ("expire_day", "detach_partition", "raise_starts", "lock_detached", "drop_detached")
EVENTS = 60
PENDING, ARCHIVED, WAIVED, DROPPING, DROPPED = DayState


class KilledError(BaseException):
    """The broker ends here."""


@dataclass
class Model:
    """What is to become of the day."""

    is_required: bool = False
    is_there: bool = False
    state: DayState | None = None
    is_waived: bool = False
    row_count: int = 0
    archived_count: int | None = None
    """How many of the rows that are there a run has; None: no run has any."""
    is_claimed: bool = False

    def store(self) -> None:
        if not self.is_there:
            self.is_there, self.row_count, self.archived_count = True, 0, None
        self.row_count += 1

    def can_be_claimed(self) -> bool:
        return self.is_there and not self.is_claimed and self.state is not DROPPING

    def archive(self) -> None:
        self.state, self.archived_count, self.is_waived = ARCHIVED, self.row_count, False

    def permit(self) -> bool:
        """Tell whether the day may be dropped, and note it."""
        if not self.is_required:
            return True
        self.state = self.state or PENDING
        if self.is_claimed or self.state in {PENDING, DROPPED}:
            return False
        is_fine = self.is_waived or self.archived_count == self.row_count
        self.state = DROPPING if is_fine else PENDING
        return is_fine

    def maintain(self, *, until: str | None) -> None:
        """Do a round, which ends before the step *until*."""
        if self.is_there and self.permit() and until is None:
            self.is_there = False
            self.state = self.state and DROPPED


class History:
    """Lets events happen to a day in the store, and to the model of it."""

    def __init__(self, store: MessageStore, conn: Connection, day: date, queue_id: int) -> None:
        self.model = Model()
        self._store, self._conn, self._day, self._queue_id = store, conn, day, queue_id
        self._next_offset = 0
        self._run: ArchiveRun | None = None

    def events(self) -> list[Callable[[], Awaitable[None]]]:
        """Return all that may happen."""
        killed = [lambda step=step: self.maintain(until=step) for step in STEPS]
        return [
            *(
                self.put,
                self.put,
                self.put,
                self.archive,
                self.archive,
                self.claim,
                self.lapse,
                self.waive,
                self.require,
            ),
            *(
                self.require,
                self.require,
                self.stop_requiring,
                self.maintain,
                self.maintain,
                self.maintain_as_before,
                *killed,
            ),
        ]

    async def check(self) -> None:
        """See that the store is what the model says."""
        row = await (await self._conn.execute("SELECT to_regclass(%s) IS NOT NULL", (self._partition,))).fetchone()
        state, _ = await state_of(self._conn, MESSAGE, self._day)
        assert (row, state) == ((self.model.is_there,), self.model.state)

    async def put(self) -> None:
        if self.model.is_there:
            # By its own name: it may be detached, and then only this way leads to it.
            await self._conn.execute(
                f"INSERT INTO {self._partition} SELECT (jsonb_populate_record(m, jsonb_build_object('queue_offset',"
                f" {self._next_offset}, 'message_id', gen_random_uuid()))).* FROM {self._partition} m LIMIT 1".encode()
            )
        else:
            days_ago = (await today(self._conn) - self._day).days
            offsets = range(self._next_offset, self._next_offset + 1)
            await put_messages(self._conn, self._queue_id, offsets, days_ago=days_ago)
        self._next_offset += 1
        self.model.store()

    async def archive(self) -> None:
        if not self.model.can_be_claimed():
            with pytest.raises(MessageCenterError):
                await archive_day(self._conn, self._day, again=True)
            return
        await archive_day(self._conn, self._day, again=True)
        self.model.archive()

    async def claim(self) -> None:
        if self.model.can_be_claimed():
            self._run = await claim_day(self._conn, self._day, again=True)
            self.model.is_claimed = True
            self.model.state = self.model.state or PENDING

    async def lapse(self) -> None:
        if self._run is not None:
            await let_lapse(self._conn, self._run)
        self.model.is_claimed = False

    async def waive(self) -> None:
        if self.model.is_there and self.model.state in {None, PENDING}:
            async with self._conn.transaction():
                await waive(self._conn, MESSAGE, self._day, actor=ACTOR, reason="a test's")
            self.model.state, self.model.is_waived = WAIVED, True

    async def require(self) -> None:
        async with self._conn.transaction():
            await require(self._conn, MESSAGE, actor=ACTOR, reason="a test's", from_day=self._day)
            await hold_days(self._conn, DAY_TABLES[MESSAGE])
        self.model.is_required = True

    async def stop_requiring(self) -> None:
        async with self._conn.transaction():
            await stop_requiring(self._conn, MESSAGE, actor=ACTOR, reason="a test's")
            await release_days(self._conn, DAY_TABLES[MESSAGE])
        self.model.is_required = False

    async def maintain(self, until: str | None = None) -> None:
        keeper = Maintenance(self._store, MaintenanceConfig(), group_names=lambda: GROUP_NAMES)

        async def die(*_: object) -> None:
            raise KilledError

        with pytest.MonkeyPatch.context() as patched:
            if until is not None:
                patched.setattr(dropping, until, die)
            try:
                await keeper.maintain_once()
            except KilledError:
                assert until is not None
        self.model.maintain(until=until)

    async def maintain_as_before(self) -> None:
        if not (self.model.is_there and self.model.is_required):
            return
        partition = next(each for each in await list_partitions(self._conn, MESSAGE) if each.name == self._partition)
        with pytest.raises((psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.DependentObjectsStillExist)):
            await drop_as_before(self._conn, partition)

    @property
    def _partition(self) -> str:
        return f"message_p{self._day:%Y%m%d}"


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_happens_to_a_day_it_goes_when_it_may_and_not_before(
    store: MessageStore, conn: Connection, seed: int
) -> None:
    chance = random.Random(seed)
    history = History(store, conn, await today(conn) - timedelta(days=8), await make_queue(conn))
    events = history.events()

    for _ in range(EVENTS):
        await chance.choice(events)()
        await history.check()

    # And never for ever.
    await history.lapse()
    await history.maintain()
    if history.model.is_there:
        await history.archive()
        await history.maintain()
    await history.check()
    assert not history.model.is_there
