"""Every refusal and failure of the message center, shared by client, broker, console and command line.

A family fixes the gRPC status, the HTTP status and whether to retry. A leaf adds a `reason` that is stable on the
wire, and typed facts. Raise leaves, catch families. `from_wire` makes them again from what the other side said.

Leaves live by what whoever meets one has to do: change the request (`invalid_errors`), register something or take
another name (`registry_errors`), have something put right first (`state_errors`), try again (`passing_errors`), or look
after this machine (`machine_errors`). All are imported from here.
"""

from __future__ import annotations

from collections.abc import Mapping

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
from msgbroker.contract.invalid_errors import BodyTooLargeError as BodyTooLargeError
from msgbroker.contract.invalid_errors import BodyTypeError as BodyTypeError
from msgbroker.contract.invalid_errors import DelayNotSupportedError as DelayNotSupportedError
from msgbroker.contract.invalid_errors import ExpressionTooCostlyError as ExpressionTooCostlyError
from msgbroker.contract.invalid_errors import FrameTooLargeError as FrameTooLargeError
from msgbroker.contract.invalid_errors import InvalidExpressionError as InvalidExpressionError
from msgbroker.contract.invalid_errors import InvalidHeadersError as InvalidHeadersError
from msgbroker.contract.invalid_errors import InvalidKeyError as InvalidKeyError
from msgbroker.contract.invalid_errors import InvalidNameError as InvalidNameError
from msgbroker.contract.invalid_errors import InvalidRequestFieldError as InvalidRequestFieldError
from msgbroker.contract.invalid_errors import InvalidSettingError as InvalidSettingError
from msgbroker.contract.invalid_errors import KindNotSupportedError as KindNotSupportedError
from msgbroker.contract.machine_errors import AlreadyUpError as AlreadyUpError
from msgbroker.contract.machine_errors import ArchiveDiffersError as ArchiveDiffersError
from msgbroker.contract.machine_errors import ArchivePlaceError as ArchivePlaceError
from msgbroker.contract.machine_errors import BenchFailedError as BenchFailedError
from msgbroker.contract.machine_errors import BrokerFailedError as BrokerFailedError
from msgbroker.contract.machine_errors import CannotListenError as CannotListenError
from msgbroker.contract.machine_errors import ChartNotPossibleError as ChartNotPossibleError
from msgbroker.contract.machine_errors import DatabaseRefusedError as DatabaseRefusedError
from msgbroker.contract.machine_errors import DayNotFoundError as DayNotFoundError
from msgbroker.contract.machine_errors import EmbeddedPostgresError as EmbeddedPostgresError
from msgbroker.contract.machine_errors import JavaMissingError as JavaMissingError
from msgbroker.contract.machine_errors import JobFailedError as JobFailedError
from msgbroker.contract.machine_errors import ManifestUnreadableError as ManifestUnreadableError
from msgbroker.contract.machine_errors import NoDatabaseError as NoDatabaseError
from msgbroker.contract.machine_errors import OutputFailedError as OutputFailedError
from msgbroker.contract.machine_errors import PortBusyError as PortBusyError
from msgbroker.contract.machine_errors import SchemaNotKnownError as SchemaNotKnownError
from msgbroker.contract.machine_errors import SparkMissingError as SparkMissingError
from msgbroker.contract.passing_errors import BrokerBusyError as BrokerBusyError
from msgbroker.contract.passing_errors import BrokerUnavailableError as BrokerUnavailableError
from msgbroker.contract.passing_errors import ClientBufferFullError as ClientBufferFullError
from msgbroker.contract.passing_errors import ConfigOutdatedError as ConfigOutdatedError
from msgbroker.contract.passing_errors import ConfigUnavailableError as ConfigUnavailableError
from msgbroker.contract.passing_errors import DayClaimedError as DayClaimedError
from msgbroker.contract.passing_errors import DayStillOpenError as DayStillOpenError
from msgbroker.contract.passing_errors import DisconnectedError as DisconnectedError
from msgbroker.contract.passing_errors import LookTooLongError as LookTooLongError
from msgbroker.contract.passing_errors import NotReadingError as NotReadingError
from msgbroker.contract.passing_errors import NotUnderstoodError as NotUnderstoodError
from msgbroker.contract.passing_errors import OutgoingFullError as OutgoingFullError
from msgbroker.contract.passing_errors import PortInUseError as PortInUseError
from msgbroker.contract.passing_errors import PublishTimeoutError as PublishTimeoutError
from msgbroker.contract.passing_errors import QueueHeldError as QueueHeldError
from msgbroker.contract.passing_errors import ReplicaBehindError as ReplicaBehindError
from msgbroker.contract.passing_errors import StoreUnavailableError as StoreUnavailableError
from msgbroker.contract.passing_errors import TooManyCallsError as TooManyCallsError
from msgbroker.contract.passing_errors import TooManyStreamsError as TooManyStreamsError
from msgbroker.contract.passing_errors import TopicSetAsideError as TopicSetAsideError
from msgbroker.contract.passing_errors import UnavailableCause as UnavailableCause
from msgbroker.contract.passing_errors import UnfinishedError as UnfinishedError
from msgbroker.contract.registry_errors import EventCodeNotFoundError as EventCodeNotFoundError
from msgbroker.contract.registry_errors import GroupNotFoundError as GroupNotFoundError
from msgbroker.contract.registry_errors import NamespaceNotFoundError as NamespaceNotFoundError
from msgbroker.contract.registry_errors import NothingSelectedError as NothingSelectedError
from msgbroker.contract.registry_errors import SubscriptionNotFoundError as SubscriptionNotFoundError
from msgbroker.contract.registry_errors import ThingAlreadyExistsError as ThingAlreadyExistsError
from msgbroker.contract.registry_errors import ThingNotFoundError as ThingNotFoundError
from msgbroker.contract.registry_errors import TopicNotFoundError as TopicNotFoundError
from msgbroker.contract.state_errors import BeginningPassedError as BeginningPassedError
from msgbroker.contract.state_errors import CenterClosedError as CenterClosedError
from msgbroker.contract.state_errors import DayStateError as DayStateError
from msgbroker.contract.state_errors import FeatureNotEverywhereError as FeatureNotEverywhereError
from msgbroker.contract.state_errors import ForkedError as ForkedError
from msgbroker.contract.state_errors import FrameForgottenError as FrameForgottenError
from msgbroker.contract.state_errors import InstanceReplacedError as InstanceReplacedError
from msgbroker.contract.state_errors import JobLostError as JobLostError
from msgbroker.contract.state_errors import JobStateError as JobStateError
from msgbroker.contract.state_errors import JobStoppedError as JobStoppedError
from msgbroker.contract.state_errors import LimitReachedError as LimitReachedError
from msgbroker.contract.state_errors import MessageStateError as MessageStateError
from msgbroker.contract.state_errors import NotMigratedError as NotMigratedError
from msgbroker.contract.state_errors import OffsetGoneError as OffsetGoneError
from msgbroker.contract.state_errors import OtherHistoryError as OtherHistoryError
from msgbroker.contract.state_errors import RegistrationDisabledError as RegistrationDisabledError
from msgbroker.contract.state_errors import ReplicaDiffersError as ReplicaDiffersError
from msgbroker.contract.state_errors import RunLostError as RunLostError
from msgbroker.contract.state_errors import SequenceGapError as SequenceGapError
from msgbroker.contract.state_errors import StressRefusedError as StressRefusedError
from msgbroker.contract.state_errors import SubscriptionDiffersError as SubscriptionDiffersError
from msgbroker.contract.state_errors import SubscriptionNotActiveError as SubscriptionNotActiveError
from msgbroker.contract.state_errors import ThingInUseError as ThingInUseError
from msgbroker.contract.state_errors import TopicClosedError as TopicClosedError


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
