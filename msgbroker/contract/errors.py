"""Every refusal and failure of the message center, shared by client, broker, console and command line.

A family fixes the gRPC status, the HTTP status and whether to retry. A leaf adds a `reason` that is stable on the
wire, and typed facts. Raise leaves, catch families. `from_wire` makes them again from what the other side said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from msgbroker.contract.error_families import FAMILIES
from msgbroker.contract.error_families import AlreadyExistsError as AlreadyExistsError
from msgbroker.contract.error_families import FailedPreconditionError as FailedPreconditionError
from msgbroker.contract.error_families import InvalidRequestError as InvalidRequestError
from msgbroker.contract.error_families import MessageCenterError as MessageCenterError
from msgbroker.contract.error_families import NotFoundError as NotFoundError
from msgbroker.contract.error_families import PermissionDeniedError as PermissionDeniedError
from msgbroker.contract.error_families import ResourceExhaustedError as ResourceExhaustedError
from msgbroker.contract.error_families import UnauthenticatedError as UnauthenticatedError
from msgbroker.contract.error_families import UnavailableError as UnavailableError
from msgbroker.contract.passing_errors import BrokerBusyError as BrokerBusyError
from msgbroker.contract.passing_errors import BrokerUnavailableError as BrokerUnavailableError
from msgbroker.contract.passing_errors import ClientBufferFullError as ClientBufferFullError
from msgbroker.contract.passing_errors import ConfigOutdatedError as ConfigOutdatedError
from msgbroker.contract.passing_errors import ConfigUnavailableError as ConfigUnavailableError
from msgbroker.contract.passing_errors import NotReadingError as NotReadingError
from msgbroker.contract.passing_errors import NotUnderstoodError as NotUnderstoodError
from msgbroker.contract.passing_errors import OutgoingFullError as OutgoingFullError
from msgbroker.contract.passing_errors import PublishTimeoutError as PublishTimeoutError
from msgbroker.contract.passing_errors import QueueHeldError as QueueHeldError
from msgbroker.contract.passing_errors import StoreUnavailableError as StoreUnavailableError
from msgbroker.contract.passing_errors import TooManyCallsError as TooManyCallsError
from msgbroker.contract.passing_errors import TooManyStreamsError as TooManyStreamsError
from msgbroker.contract.passing_errors import TopicSetAsideError as TopicSetAsideError
from msgbroker.contract.passing_errors import UnfinishedError as UnfinishedError

# --- names and content ------------------------------------------------------------------------------------------


class InvalidNameError(InvalidRequestError):
    """A name is too long or not of the alphabet."""

    reason = "INVALID_NAME"

    def __init__(self, kind: str, name: str, problem: str) -> None:
        shown = name if len(name) <= 40 else f"{name[:40]}..."
        super().__init__(f"{kind} {shown!r} {problem}", kind=kind, name=shown)


class InvalidKeyError(InvalidRequestError):
    """A key or ordering key is too long or contains NUL."""

    reason = "INVALID_KEY"

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(f"{kind} {problem}", kind=kind)


class InvalidHeadersError(InvalidRequestError):
    """Too many headers, too long ones, or a NUL in one."""

    reason = "INVALID_HEADERS"

    def __init__(self, problem: str) -> None:
        super().__init__(f"headers: {problem}")


class BodyTooLargeError(InvalidRequestError):
    """The body is over the topic's limit. Never retryable: the same bytes will be refused again."""

    reason = "BODY_TOO_LARGE"

    def __init__(self, topic: str, body_bytes: int, body_bytes_max: int, *, is_ceiling: bool = False) -> None:
        # The client knows only what no topic may take, not what this one takes.
        limit = (
            f"no topic may take more than {body_bytes_max} (topic {topic!r} may take less)"
            if is_ceiling
            else f"topic {topic!r} takes {body_bytes_max} at most"
        )
        super().__init__(
            f"body is {body_bytes} bytes; {limit}",
            topic=topic,
            body_bytes=body_bytes,
            body_bytes_max=body_bytes_max,
        )


class FrameTooLargeError(InvalidRequestError):
    """A frame or call has too many messages or bytes."""

    reason = "FRAME_TOO_LARGE"

    def __init__(self, unit: str, count: int, count_max: int) -> None:
        super().__init__(f"{count} {unit} in one frame; {count_max} at most", unit=unit, count=count, max=count_max)


class InvalidExpressionError(InvalidRequestError):
    """A HEADER expression does not compile to a boolean; says where."""

    reason = "INVALID_EXPRESSION"

    def __init__(self, problem: str, line: int | None = None, column: int | None = None) -> None:
        where = f"line {line}, column {column}: " if line is not None else ""
        super().__init__(f"expression: {where}{problem}", line=line or "", column=column or "")


class ExpressionTooCostlyError(InvalidRequestError):
    """Evaluating a HEADER expression can take too long: it would be done for every message of the topic."""

    reason = "EXPRESSION_TOO_COSTLY"

    def __init__(self, cost: str, cost_max: str, advice: str) -> None:
        super().__init__(
            f"expression: costs up to {cost} on a message; {cost_max} at most: {advice}", cost=cost, cost_max=cost_max
        )


class InvalidSettingError(InvalidRequestError):
    """A value given for a setting is out of its bounds."""

    reason = "INVALID_SETTING"

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}", name=name)


class InvalidRequestFieldError(InvalidRequestError):
    """A field of a request is missing or malformed."""

    reason = "INVALID_FIELD"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}", field=field)


class DelayNotSupportedError(InvalidRequestError):
    """A delay or delivery time was given for a message, which this version does not carry out."""

    reason = "DELAY_NOT_SUPPORTED"

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r}: delayed and scheduled messages are not supported yet", topic=topic)


class KindNotSupportedError(InvalidRequestError):
    """A kind of topic or group that this version does not carry out."""

    reason = "KIND_NOT_SUPPORTED"

    def __init__(self, thing: str, kind: str, supported: str) -> None:
        super().__init__(f"{thing} {kind} is not supported yet; use {supported}", thing=thing, kind=kind)


# --- not found --------------------------------------------------------------------------------------------------


class NamespaceNotFoundError(NotFoundError):
    """No such namespace."""

    reason = "NAMESPACE_NOT_FOUND"

    def __init__(self, namespace: str) -> None:
        super().__init__(f"namespace {namespace!r} is not registered", namespace=namespace)


class TopicNotFoundError(NotFoundError):
    """No such topic."""

    reason = "TOPIC_NOT_FOUND"

    def __init__(self, namespace: str, topic: str) -> None:
        super().__init__(
            f"topic {topic!r} is not registered in namespace {namespace!r}", namespace=namespace, topic=topic
        )


class EventCodeNotFoundError(NotFoundError):
    """The topic has no such event code, and is not open."""

    reason = "EVENT_CODE_NOT_FOUND"

    def __init__(self, topic: str, event_code: str) -> None:
        super().__init__(
            f"event code {event_code!r} is not registered for topic {topic!r}", topic=topic, event_code=event_code
        )


class GroupNotFoundError(NotFoundError):
    """No such group."""

    reason = "GROUP_NOT_FOUND"

    def __init__(self, namespace: str, group: str, kind: str = "subscriber") -> None:
        super().__init__(
            f"{kind} group {group!r} is not registered in namespace {namespace!r}",
            namespace=namespace,
            group=group,
            kind=kind,
        )


class SubscriptionNotFoundError(NotFoundError):
    """The group has no such subscription."""

    reason = "SUBSCRIPTION_NOT_FOUND"

    def __init__(self, group: str, topic: str, event_code: str) -> None:
        super().__init__(
            f"group {group!r} has no subscription to {topic}/{event_code}",
            group=group,
            topic=topic,
            event_code=event_code,
        )


class ThingNotFoundError(NotFoundError):
    """Nothing of that kind and name."""

    reason = "THING_NOT_FOUND"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is no {kind} {name!r}", kind=kind, name=name)


class ThingAlreadyExistsError(AlreadyExistsError):
    """Something of that kind and name is registered."""

    reason = "ALREADY_REGISTERED"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} is registered already", kind=kind, name=name)


# --- state ------------------------------------------------------------------------------------------------------


class TopicClosedError(FailedPreconditionError):
    """The topic takes no new messages."""

    reason = "TOPIC_CLOSED"

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} is closed: it takes no new messages", topic=topic)


class ThingInUseError(FailedPreconditionError):
    """Something else still refers to it."""

    reason = "IN_USE"

    def __init__(self, kind: str, name: str, used_by: str) -> None:
        super().__init__(f"{kind} {name!r} is in use by {used_by}", kind=kind, name=name, used_by=used_by)


class LimitReachedError(FailedPreconditionError):
    """As many things of that kind are registered as may be, or there is not room for all that were asked for."""

    reason = "LIMIT_REACHED"

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

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} takes no stress messages: its kill switch is on", topic=topic)


class SubscriptionNotActiveError(FailedPreconditionError):
    """A subscription is registered, but a broker does not route by it yet."""

    reason = "SUBSCRIPTION_NOT_ACTIVE"
    retryable = True

    def __init__(self, group: str, waiting_for: str) -> None:
        super().__init__(
            f"subscription of {group!r} is registered, but not active yet: waiting for {waiting_for}",
            group=group,
            waiting_for=waiting_for,
        )


class BeginningPassedError(FailedPreconditionError):
    """A subscription from the beginning, of a group that is past it on that topic: it would get nothing of it."""

    reason = "BEGINNING_PASSED"

    def __init__(self, group: str, topic: str) -> None:
        super().__init__(
            f"group {group!r} has read topic {topic!r} already and does not go back: subscribe from now on, or use "
            "another group for what is stored",
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

    def __init__(self, sequence: int, expected: int) -> None:
        super().__init__(
            f"frame {sequence} cannot be stored: the next of this publisher is {expected}",
            sequence=sequence,
            expected=expected,
        )


class FrameForgottenError(FailedPreconditionError):
    """The frame was stored once, but what became of it is no longer kept."""

    reason = "FRAME_FORGOTTEN"

    def __init__(self, sequence: int, expected: int) -> None:
        super().__init__(
            f"frame {sequence} was stored before; its receipt is no longer kept (the next is {expected})",
            sequence=sequence,
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


# --- translation ------------------------------------------------------------------------------------------------


def _leaves() -> dict[str, type[MessageCenterError]]:
    return {leaf.reason: leaf for family in FAMILIES for leaf in family.__subclasses__()}


_FAMILY_BY_STATUS = {family.status: family for family in FAMILIES}
_LEAF_BY_REASON = _leaves()


def from_wire(
    reason: str, status: str, message: str, facts: Mapping[str, str], *, retryable: bool | None = None
) -> MessageCenterError:
    """Return the error that the other side raised: its leaf if this version knows it, else its family.

    *retryable*: what the other side says, if it does; it counts for what this version does not know.
    """
    leaf = _LEAF_BY_REASON.get(reason)
    kind = leaf or _FAMILY_BY_STATUS.get(status, MessageCenterError)
    error = kind.__new__(kind)
    MessageCenterError.__init__(error, message, **facts)
    if error.reason != reason:
        error.reason = reason
    if leaf is None and retryable is not None:
        error.retryable = retryable
    return error
