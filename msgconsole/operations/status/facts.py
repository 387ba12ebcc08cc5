"""All that is known of a message and a group, as the decision takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgbroker.client.connect.inspection import MessageStand
from msgconsole.operations.status.answers import Basis, GroupStatus, State
from msgconsole.operations.status.deleted import Ended
from msgconsole.operations.status.moments import GroupMoment
from msgconsole.operations.status.reading import Readable
from msgdb.jobs.purge_jobs import PurgeJob
from msgdb.lanes.records import LaneReset
from msgdb.lanes.reset_acts import LaneResetAct
from msgdb.lanes.skip_acts import SkipAct
from msgdb.lanes.standing import LaneRows
from msgdb.postgres.binary_rows import datetime_of
from msgdb.trace.reading import Acked

NOT_ASKED: Final = "its broker was not asked, or did not answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """All that is known of a message and a group."""

    message: Readable
    group: str
    group_id: int
    moments: tuple[GroupMoment, ...]
    """What the group was, from before the message was stored until now."""
    are_moments_whole: bool = True
    """Whether they reach back so far."""
    has_lost_changes: bool = False
    """Whether changes since then may be in no audit trail, because the configuration's database has lost its end."""
    rows: LaneRows
    resets: Sequence[LaneResetAct] = ()
    """Of this lane, since the message was stored; the oldest first."""
    reset_before: LaneReset | None = None
    """Where the lane had been put by hand when the message was stored."""
    are_resets_whole: bool = True
    put_back: Sequence[LaneResetAct] = ()
    """How the lane was put back where its log had lost its end, also before the message was stored."""
    purges: Sequence[PurgeJob] = ()
    """Those that may have deleted a dead letter of this message and group."""
    skips: Sequence[SkipAct] = ()
    """How it was skipped by hand, the newest first."""
    stand: MessageStand | None = None
    """Where the message is by the word of the broker that serves the lane; None: nobody serves it, or has answered."""
    is_paused: bool = False
    """Whether the group is paused now."""
    ended: Ended | None = None
    """What ended the lane for ever; None: it goes on, or can."""
    acked: Acked | None = None
    """That an instance acknowledged it, by the trace, which is a sample."""
    now_us: int

    @property
    def replaces_lost(self) -> bool:
        """Whether it was stored where a message was lost that the lane had settled, and the lane not put back since."""
        died_at_us = self.rows.lost_died_at_us
        if died_at_us is None:
            return self.rows.has_foreign_row
        since = [act for act in self.put_back if act.at > datetime_of(died_at_us)]
        stored_at = datetime_of(self.message.stored_at_us)
        return not any(act.to_offset <= self.message.queue_offset or act.at < stored_at for act in since)

    @property
    def if_paused(self) -> str:
        """What is to be added where the group is paused."""
        return "; the group is paused" if self.is_paused else ""


def answer(facts: GroupFacts, state: State, basis: Basis, detail: str, **said: Any) -> GroupStatus:
    """Return what became of the message with this group."""
    return GroupStatus(group=facts.group, group_id=facts.group_id, state=state, basis=basis, detail=detail, **said)
