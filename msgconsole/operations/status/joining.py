"""What both databases and the brokers say of one place of the log, joined for each group, and decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from confdb.past import PastGroup, TopicPast
from msgbroker.client.connect.inspection import MessagePlace, MessageStand
from msgconsole.operations.brokers.asking import Unanswered
from msgconsole.operations.status.answers import GroupStatus, PlaceStatus, Why
from msgconsole.operations.status.deciding import decide
from msgconsole.operations.status.deleted import DeletedGroup, Ended, deleted_groups, ended_first, told_of, topic_ended
from msgconsole.operations.status.facts import GroupFacts
from msgconsole.operations.status.letters import may_have_purged
from msgconsole.operations.status.moments import MOMENTS_MAX, GroupMoment, moments_of_groups
from msgconsole.operations.status.passages import moment_at
from msgconsole.operations.status.reading import Readable
from msgdb.jobs.purge_jobs import PurgeJob
from msgdb.lanes.records import LaneReset
from msgdb.lanes.reset_acts import LaneResetAct, ResetActs
from msgdb.lanes.skip_acts import SkipAct
from msgdb.lanes.standing import LaneRows
from msgdb.log.found import FoundMessage
from msgdb.log.queues import QueueRow
from msgdb.postgres.binary_rows import datetime_of, micros_of
from msgdb.trace.reading import Acked


@dataclass(frozen=True, slots=True)
class Stored:
    """What the message store has of one place."""

    place: FoundMessage
    queue: QueueRow
    """As it is by now: of a topic that was deleted and made again there is another one."""
    rows: Mapping[int, LaneRows]
    """What the lanes' rows say of the message there, by group."""
    resets: ResetActs
    skips: Sequence[SkipAct]
    purges: Sequence[PurgeJob]
    put_back: Sequence[LaneResetAct]


@dataclass(frozen=True, slots=True)
class Said:
    """What brokers say."""

    stands: Mapping[MessagePlace, MessageStand] = field(default_factory=dict)
    unanswered: tuple[Unanswered, ...] = ()


@dataclass(frozen=True)
class Joined:
    """All that is known of one place and of these groups."""

    stored: Stored
    groups: Sequence[PastGroup]
    past: TopicPast
    said: Said
    acked: Mapping[int, Acked] = field(default_factory=dict)

    def decided(self) -> PlaceStatus:
        """Return what became of the message there."""
        place = self.stored.place
        return PlaceStatus(
            queue_id=place.queue_id,
            queue_offset=place.queue_offset,
            stored_at=datetime_of(place.stored_at_us),
            target_group=place.target_group,
            redrives=place.redrives,
            groups=tuple(map(self._status_of, self.groups)),
        )

    def _status_of(self, group: PastGroup) -> GroupStatus:
        moments = self._moments[group.group_id]
        deleted = self._deleted.get(group.group_id)
        told = decide(self._facts_of(group, moments, ended_first(self._topic_ended, deleted)))
        if deleted is None:
            return told
        return replace(told, deleted=told_of(deleted, moments[moment_at(moments, self.stored.place.stored_at_us)]))

    def _facts_of(self, group: PastGroup, moments: tuple[GroupMoment, ...], ended: Ended | None) -> GroupFacts:
        stored, past, place = self.stored, self.past, self.stored.place
        group_id, message = group.group_id, self._message
        now = past.moments[-1].groups.get(group.name)
        return GroupFacts(
            message=message,
            group=group.name,
            group_id=group_id,
            moments=moments[-MOMENTS_MAX:],
            are_moments_whole=past.is_whole and len(moments) <= MOMENTS_MAX,
            has_lost_changes=past.has_lost_changes,
            rows=stored.rows[group_id],
            resets=[act for act in self._resets if act.group_id == group_id],
            put_back=[act for act in stored.put_back if act.group_id == group_id],
            reset_before=self._reset_before(group_id),
            are_resets_whole=stored.resets.is_complete,
            skips=[act for act in stored.skips if act.group_id == group_id],
            purges=[job for job in stored.purges if may_have_purged(job, message, group, place.namespace)],
            stand=self._stand_of(group_id),
            is_paused=now is not None and now.group_id == group_id and now.paused,
            ended=ended,
            acked=self.acked.get(group_id),
            now_us=micros_of(past.read_at),
        )

    def _stand_of(self, group_id: int) -> MessageStand | None:
        place, rows = self.stored.place, self.stored.rows[group_id]
        stand = self.said.stands.get(MessagePlace(group_id, place.queue_id, place.queue_offset))
        # Else it is of an owner that has lost the lane, or before a reset.
        return stand if stand is not None and stand.epoch >= rows.epoch else None

    @cached_property
    def _moments(self) -> Mapping[int, tuple[GroupMoment, ...]]:
        stored = self.stored
        return moments_of_groups(self.past.moments, self.groups, stored.queue.topic_id, stored.place.event_code)

    def _reset_before(self, group_id: int) -> LaneReset | None:
        act = self.stored.resets.before.get(group_id)
        return None if act is None or act.subscription_id is None else LaneReset(act.to_offset, act.subscription_id)

    @cached_property
    def _resets(self) -> Sequence[LaneResetAct]:
        stored_at = datetime_of(self.stored.place.stored_at_us)
        since = [act for act in self.stored.put_back if act.at >= stored_at]
        return sorted([*self.stored.resets.acts, *since], key=lambda act: act.act_id)

    @cached_property
    def _deleted(self) -> Mapping[int, DeletedGroup]:
        return deleted_groups(self.past.moments)

    @cached_property
    def _topic_ended(self) -> Ended | None:
        return topic_ended(self.past.moments, self.stored.queue.topic_id)

    @cached_property
    def _message(self) -> Readable:
        place = self.stored.place
        return Readable(
            queue_id=place.queue_id,
            queue_offset=place.queue_offset,
            stored_at_us=place.stored_at_us,
            topic=place.topic,
            event_code=place.event_code,
            key=place.key,
            headers=place.headers or {},
            stress=place.stress,
            target_group=place.target_group,
            is_leaving=place.queue_offset < self.stored.queue.start_offset,
        )


def may_know_more(groups: Iterable[GroupStatus]) -> bool:
    """Return whether the trace may tell what nothing else does of one of them."""
    return any(not each.is_certain or each.why in {Why.GROUP_DELETED, Why.TOPIC_DELETED} for each in groups)
