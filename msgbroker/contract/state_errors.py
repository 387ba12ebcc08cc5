"""Errors that somebody has to put right first: a thing is not in the state for it, or it is not allowed here.

Here belongs every leaf of PermissionDeniedError and UnauthenticatedError, and of FailedPreconditionError those that can
go over the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from msgbroker.contract.error_families import FailedPreconditionError, PermissionDeniedError
from msgbroker.contract.facts import Fact


class TopicClosedError(FailedPreconditionError):
    """The topic takes no new messages."""

    reason = "TOPIC_CLOSED"
    topic = Fact(str, "")

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} is closed: it takes no new messages", topic=topic)


class ThingInUseError(FailedPreconditionError):
    """Something else still refers to it."""

    reason = "IN_USE"
    kind = Fact(str, "")
    name = Fact(str, "")
    used_by = Fact(str, "")

    def __init__(self, kind: str, name: str, used_by: str) -> None:
        super().__init__(f"{kind} {name!r} is in use by {used_by}", kind=kind, name=name, used_by=used_by)


class LimitReachedError(FailedPreconditionError):
    """As many things of that kind are registered as may be, or there is not room for all that were asked for."""

    reason = "LIMIT_REACHED"
    kind = Fact(str, "")
    owner = Fact(str, "")
    max = Fact(int, 0)

    def __init__(self, kind: str, owner: str, count_max: int, count: int | None = None) -> None:
        is_full = count is None or count >= count_max
        why = "that is the most" if is_full else f"there is no room for all of these, {count_max} is the most"
        has = count_max if is_full else count
        super().__init__(f"{owner} has {has} {kind}: {why}", kind=kind, owner=owner, max=count_max)


class NotMigratedError(FailedPreconditionError):
    """A database does not have the tables of this version."""

    reason = "NOT_MIGRATED"

    def __init__(self, database: str) -> None:
        super().__init__(f"{database} does not have the tables of this version: run `msgcenter migrate`")


_SHOWN_BROKERS_MAX = 10


class FeatureNotEverywhereError(FailedPreconditionError):
    """A broker that is running does not understand the feature yet: upgrade it first."""

    reason = "FEATURE_NOT_EVERYWHERE"
    feature = Fact(str, "")
    brokers = Fact(str, "")

    def __init__(self, feature: str, brokers: Sequence[str]) -> None:
        shown = ", ".join(brokers[:_SHOWN_BROKERS_MAX])
        if len(brokers) > _SHOWN_BROKERS_MAX:
            shown += f" and {len(brokers) - _SHOWN_BROKERS_MAX} more"
        super().__init__(
            f"{feature} is not understood by every broker yet; upgrade first: {shown}", feature=feature, brokers=shown
        )


class CenterClosedError(FailedPreconditionError):
    """The client was closed, or never opened."""

    reason = "CENTER_CLOSED"

    def __init__(self, detail: str = "this MessageCenter is closed") -> None:
        super().__init__(detail)


class StressRefusedError(FailedPreconditionError):
    """The topic's kill switch refuses stress messages."""

    reason = "STRESS_REFUSED"
    topic = Fact(str, "")

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} takes no stress messages: its kill switch is on", topic=topic)


class SubscriptionNotActiveError(FailedPreconditionError):
    """A subscription is registered, but a broker does not route by it yet."""

    reason = "SUBSCRIPTION_NOT_ACTIVE"
    retryable = True
    group = Fact(str, "")
    waiting_for = Fact(str, "")

    def __init__(self, group: str, waiting_for: str) -> None:
        super().__init__(
            f"subscription of {group!r} is registered, but not active yet: waiting for {waiting_for}",
            group=group,
            waiting_for=waiting_for,
        )


class BeginningPassedError(FailedPreconditionError):
    """A subscription from the beginning, of a group that is past it on that topic: it would get nothing of it."""

    reason = "BEGINNING_PASSED"
    group = Fact(str, "")
    topic = Fact(str, "")

    def __init__(self, group: str, topic: str) -> None:
        super().__init__(
            f"group {group!r} has read topic {topic!r} already: subscribe from now on, and have what is stored "
            "delivered by `msgcenter message replay`, or use another group",
            group=group,
            topic=topic,
        )


_SHOWN_EXPRESSION_CHARS_MAX = 100
_SHOWN_BEFORE_CHARS_MAX = 30


class SubscriptionDiffersError(FailedPreconditionError):
    """The group has the subscription already, with another expression; registering does not change it.

    Of long expressions it shows where they begin to differ.
    """

    reason = "SUBSCRIPTION_DIFFERS"
    group = Fact(str, "")
    topic = Fact(str, "")
    event_code = Fact(str, "")
    registered = Fact(str, "")
    wanted = Fact(str, "")

    def __init__(self, group: str, topic: str, event_code: str, registered: str | None, wanted: str | None) -> None:
        pairs = zip(registered or "", wanted or "", strict=False)
        same_chars = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        parts = [_part_of(expression or "", same_chars) for expression in (registered, wanted)]
        shown, asked = (repr(part) if part else "no expression" for part in parts)
        super().__init__(
            f"group {group!r} is subscribed to {topic}/{event_code} with {shown}, not with {asked}: "
            "delete that subscription first, or use another group",
            group=group,
            topic=topic,
            event_code=event_code,
            registered=parts[0],
            wanted=parts[1],
        )


def _part_of(expression: str, same_chars: int) -> str:
    """Return what is shown of *expression* beside another one that begins with as many of the same characters."""
    if len(expression) <= _SHOWN_EXPRESSION_CHARS_MAX:
        return expression
    first = max(0, min(same_chars - _SHOWN_BEFORE_CHARS_MAX, len(expression) - _SHOWN_EXPRESSION_CHARS_MAX))
    end = first + _SHOWN_EXPRESSION_CHARS_MAX
    return f"{'...' if first else ''}{expression[first:end]}{'...' if end < len(expression) else ''}"


class InstanceReplacedError(FailedPreconditionError):
    """Another process has attached under this instance id. Never retryable: they would end each other for ever."""

    reason = "INSTANCE_REPLACED"
    instance_id = Fact(str, "")
    host = Fact(str, "")

    def __init__(self, instance_id: str, host: str) -> None:
        super().__init__(
            f"another process has attached as instance {instance_id!r}, from host {host!r}: give each process an "
            "instance id of its own",
            instance_id=instance_id,
            host=host,
        )


class SequenceGapError(FailedPreconditionError):
    """An earlier frame of this publisher is not stored: resend from there, with the same numbers."""

    reason = "SEQUENCE_GAP"
    retryable = True
    sequence = Fact(int, 0)
    expected = Fact(int, 0)

    def __init__(self, sequence: int, expected: int) -> None:
        super().__init__(
            f"frame {sequence} cannot be stored: the next of this publisher is {expected}",
            sequence=sequence,
            expected=expected,
        )


class ForkedError(FailedPreconditionError):
    """Of a process that was forked: gRPC cannot be used in it, or what is asked for belongs to its parent."""

    reason = "FORKED"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)


class FrameForgottenError(FailedPreconditionError):
    """The frame was stored once, but what became of it is no longer kept."""

    reason = "FRAME_FORGOTTEN"
    may_be_stored = Fact(bool, unknown=True)
    sequence = Fact(int, 0)
    expected = Fact(int, 0)

    def __init__(self, sequence: int, expected: int) -> None:
        super().__init__(
            f"frame {sequence} was stored before; its receipt is no longer kept (the next is {expected})",
            sequence=sequence,
            expected=expected,
        )


class DayStateError(FailedPreconditionError):
    """A day of a table is not in a state for what is asked: being dropped, archived already, or not pending."""

    reason = "DAY_STATE"
    table = Fact(str, "")
    day = Fact(str, "")
    state = Fact(str, "")

    def __init__(self, table: str, day: str, state: str, problem: str) -> None:
        super().__init__(f"{day} of {table} is {state}: {problem}", table=table, day=day, state=state)


class MessageStateError(FailedPreconditionError):
    """A message is not in a state for what is asked, with that group: settled, say, or not asked for."""

    reason = "MESSAGE_STATE"
    message_id = Fact(str, "")
    group = Fact(str, "")
    state = Fact(str, "")

    def __init__(self, message_id: str, group: str, state: str, way_on: str) -> None:
        super().__init__(
            f"message {message_id} is {state} for group {group}: {way_on}",
            message_id=message_id,
            group=group,
            state=state,
        )


class JobStateError(FailedPreconditionError):
    """A job is not in a state for it: it has ended, say."""

    reason = "JOB_STATE"
    job_id = Fact(int, 0)
    state = Fact(str, "")

    def __init__(self, job_id: int, state: str) -> None:
        super().__init__(f"job {job_id} is {state}: that cannot be done to it any more", job_id=job_id, state=state)


class JobStoppedError(FailedPreconditionError):
    """A job cannot go on, for a reason that does not pass."""

    reason = "JOB_STOPPED"
    job_id = Fact(int, 0)

    def __init__(self, job_id: int, problem: str) -> None:
        super().__init__(f"job {job_id} cannot go on: {problem}", job_id=job_id)


class JobLostError(FailedPreconditionError):
    """A broker has lost a job to its lease: another one goes on with it, and nothing more may be written of it here."""

    reason = "JOB_LOST"
    job_id = Fact(int, 0)

    def __init__(self, job_id: int) -> None:
        super().__init__(f"job {job_id} is another broker's by now", job_id=job_id)


class RunLostError(FailedPreconditionError):
    """A run that archives a day has lost it: its lease has passed, and another may have the day. Nothing was changed.

    Never retryable: what it has written is listed nowhere. Archive the day again.
    """

    reason = "RUN_LOST"
    run_id = Fact(str, "")

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} has lost its day: its lease has passed", run_id=run_id)


class ReplicaDiffersError(FailedPreconditionError):
    """What was given as a replica is one of another database, or of another history of this one."""

    reason = "REPLICA_DIFFERS"
    timeline = Fact(str, "")
    expected = Fact(str, "")

    def __init__(self, timeline: str, expected: str) -> None:
        super().__init__(
            f"the replica is of {timeline}, and not of {expected} (the cluster's identifier and its timeline)",
            timeline=timeline,
            expected=expected,
        )


class OffsetGoneError(FailedPreconditionError):
    """A reader goes on where the log has nothing, and never will: a day was dropped, or the store was set back."""

    reason = "OFFSET_GONE"
    queue_id = Fact(int, 0)
    queue_offset = Fact(int, 0)
    start_offset = Fact(int, 0)
    next_offset = Fact(int, 0)

    def __init__(self, queue_id: int, queue_offset: int, start_offset: int, next_offset: int) -> None:
        why = (
            "what is before was dropped with its day. Read it from the archive, and begin anew with the log"
            if queue_offset < start_offset
            else "the store was set back to an earlier moment. Begin anew, from a time before"
        )
        super().__init__(
            f"queue {queue_id} is to be read from {queue_offset}, and has {start_offset} to {next_offset}: {why}",
            queue_id=queue_id,
            queue_offset=queue_offset,
            start_offset=start_offset,
            next_offset=next_offset,
        )


class OtherHistoryError(FailedPreconditionError):
    """The message store goes on with another history than the reader's: its offsets may be those of other messages."""

    reason = "OTHER_HISTORY"
    history_id = Fact(str, "")
    expected = Fact(str, "")

    def __init__(self, history_id: str, expected: str) -> None:
        super().__init__(
            f"the message store is in history {history_id}, and offsets are of {expected}: a standby was promoted, "
            "which may have lost the log's end and given its offsets out again. Begin anew, from a time before",
            history_id=history_id,
            expected=expected,
        )


class RegistrationDisabledError(PermissionDeniedError):
    """The broker does not let clients register things."""

    reason = "REGISTRATION_DISABLED"

    def __init__(self) -> None:
        super().__init__(
            "this broker does not let clients register topics and groups: ask an operator, or start it with "
            "MSGCENTER_CLIENT_REGISTRATION=true"
        )
