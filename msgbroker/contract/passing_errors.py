"""Errors that pass: too much is asked for at the moment, or something is away. The same may be tried again.

Here belongs every leaf of ResourceExhaustedError, and of UnavailableError those that can go over the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgbroker.contract.error_families import MessageCenterError, ResourceExhaustedError, UnavailableError
from msgbroker.contract.facts import Fact


class UnavailableCause(StrEnum):
    """Why a broker cannot be reached. Stable on the wire; never renamed."""

    REFUSED = "REFUSED"
    """Nothing listens there."""
    NAME_NOT_RESOLVED = "NAME_NOT_RESOLVED"
    """No name server knows the host's name."""
    UNREACHABLE = "UNREACHABLE"
    """No way leads there, or the proxy on it does not lead on."""
    TIMEOUT = "TIMEOUT"
    """The broker does not answer in time."""
    TLS_EXPECTED = "TLS_EXPECTED"
    """It wants TLS, and was spoken to in plain text."""
    TLS_NOT_SPOKEN = "TLS_NOT_SPOKEN"
    """It speaks plain text, and was spoken to in TLS."""
    CERTIFICATE_NOT_TRUSTED = "CERTIFICATE_NOT_TRUSTED"
    """Its certificate is of another name, out of its time, or not signed by whom the client trusts."""
    TLS_FAILED = "TLS_FAILED"
    """The handshake fails for another reason than its certificate: it may want one of the client."""
    NOT_A_BROKER = "NOT_A_BROKER"
    """Something else listens there."""
    LOST = "LOST"
    """The connection stood, and has ended."""


class BrokerBusyError(ResourceExhaustedError):
    """Too many bytes wait to be stored: nothing was stored; retry after the hint."""

    reason = "BROKER_BUSY"
    waiting_bytes = Fact(int, 0)
    waiting_bytes_max = Fact(int, 0)

    def __init__(self, waiting_bytes: int, waiting_bytes_max: int, retry_after_seconds: float) -> None:
        super().__init__(
            f"{waiting_bytes} bytes wait to be stored; {waiting_bytes_max} at most: retry in {retry_after_seconds:g} s",
            waiting_bytes=waiting_bytes,
            waiting_bytes_max=waiting_bytes_max,
            retry_after_seconds=retry_after_seconds,
        )


class OutgoingFullError(ResourceExhaustedError):
    """As much waits at this broker for clients that do not read as may: retry after the hint, or go to another one."""

    reason = "OUTGOING_FULL"
    waiting_bytes = Fact(int, 0)
    waiting_bytes_max = Fact(int, 0)

    def __init__(self, waiting_bytes: int, waiting_bytes_max: int, retry_after_seconds: float) -> None:
        super().__init__(
            f"{waiting_bytes} bytes wait for clients that do not read; {waiting_bytes_max} at most: go to another "
            f"broker, or retry in {retry_after_seconds:g} s",
            waiting_bytes=waiting_bytes,
            waiting_bytes_max=waiting_bytes_max,
            retry_after_seconds=retry_after_seconds,
        )


class TooManyStreamsError(ResourceExhaustedError):
    """The broker has as many streams of that kind as it may: go to another one."""

    reason = "TOO_MANY_STREAMS"
    kind = Fact(str, "")
    max = Fact(int, 0)

    def __init__(self, kind: str, count_max: int, retry_after_seconds: float) -> None:
        super().__init__(
            f"this broker has {count_max} {kind}, and takes no more at a time: go to another one, or try again later",
            kind=kind,
            max=count_max,
            retry_after_seconds=retry_after_seconds,
        )


class TooManyCallsError(ResourceExhaustedError):
    """The broker answers as many calls as it may: retry after the hint, or go to another one."""

    reason = "TOO_MANY_CALLS"
    kind = Fact(str, "")
    max = Fact(int, 0)

    def __init__(self, kind: str, count_max: int, retry_after_seconds: float) -> None:
        super().__init__(
            f"this broker answers {count_max} {kind}, and takes no more at a time: retry in {retry_after_seconds:g} s",
            kind=kind,
            max=count_max,
            retry_after_seconds=retry_after_seconds,
        )


class ClientBufferFullError(ResourceExhaustedError):
    """The client holds as many unanswered messages as it may."""

    reason = "CLIENT_BUFFER_FULL"
    unanswered = Fact(int, 0)
    unanswered_max = Fact(int, 0)

    def __init__(self, unanswered: int, unanswered_max: int) -> None:
        super().__init__(
            f"{unanswered} messages wait for an answer; {unanswered_max} at most",
            unanswered=unanswered,
            unanswered_max=unanswered_max,
        )


class LookTooLongError(ResourceExhaustedError):
    """Looking for something took longer than it may: ask for less, or again when the store has less to do."""

    reason = "LOOK_TOO_LONG"
    seconds_max = Fact(float, 0.0)

    def __init__(self, seconds_max: float) -> None:
        super().__init__(
            f"looking for it took longer than {seconds_max:g} s, and was given up: ask for less, or later",
            seconds_max=seconds_max,
        )


class StoreUnavailableError(UnavailableError):
    """PostgreSQL is out of reach. Whatever was acknowledged is stored; the rest may be sent again."""

    reason = "STORE_UNAVAILABLE"

    def __init__(self, detail: str) -> None:
        super().__init__(f"the message store is out of reach: {detail}")


class ConfigUnavailableError(UnavailableError):
    """The configuration database is out of reach."""

    reason = "CONFIG_UNAVAILABLE"

    def __init__(self, detail: str) -> None:
        super().__init__(f"the configuration database is out of reach: {detail}")


class ConfigOutdatedError(UnavailableError):
    """This broker is cut off from the configuration, which has changed meanwhile. Another one knows it: try there."""

    reason = "CONFIG_OUTDATED"
    version = Fact(int, 0)

    def __init__(self, version: int) -> None:
        super().__init__(
            f"this broker is cut off from the configuration and knows an old version, {version}: try another broker",
            version=version,
        )


class DisconnectedError(UnavailableError):
    """An operator has ended this connection, of an instance or of a publisher: connect again, and go on."""

    reason = "DISCONNECTED"
    instance_id = Fact(str, "")

    def __init__(self, instance_id: str = "") -> None:
        whose = f" of instance {instance_id!r}" if instance_id else ""
        super().__init__(f"an operator has ended this connection{whose}: connect again", instance_id=instance_id)


class BrokerUnavailableError(UnavailableError):
    """No broker can be reached (client side), or this one is stopping (server side)."""

    reason = "BROKER_UNAVAILABLE"
    address = Fact(str, "")
    cause: Fact[UnavailableCause | None] = Fact(UnavailableCause, None)
    """Why, as far as it is known, and the same for all brokers that were tried."""

    def __init__(self, message: str, *, address: str | None = None, cause: UnavailableCause | None = None) -> None:
        super().__init__(message, address=address, cause=cause)


class PublishTimeoutError(UnavailableError):
    """A message got no answer in time (client side). It is not stored, or may be: the text says which."""

    reason = "PUBLISH_TIMEOUT"
    timeout_seconds = Fact(float, 0.0)
    address = Fact(str, "")
    cause: Fact[UnavailableCause | None] = Fact(UnavailableCause, None)
    """Why no broker could be reached, where that was so."""

    def __init__(
        self,
        timeout_seconds: float,
        *,
        may_be_stored: bool,
        address: str = "",
        trouble: MessageCenterError | None = None,
    ) -> None:
        fate = "it was sent and may be stored" if may_be_stored else "it was not sent"
        whose = f" from {address}" if address else ""
        super().__init__(
            f"no answer{whose} within {timeout_seconds:g} s: {fate}" + (f" ({trouble.message})" if trouble else ""),
            timeout_seconds=timeout_seconds,
            may_be_stored=may_be_stored,
            address=address,
            cause=trouble.cause if isinstance(trouble, BrokerUnavailableError) else None,
        )


class NotUnderstoodError(UnavailableError):
    """The configuration asks for what this broker's version does not carry out. Another broker may: try there."""

    reason = "NOT_UNDERSTOOD"
    thing = Fact(str, "")
    detail = Fact(str, "")
    feature = Fact(str, "")
    version = Fact(str, "")

    def __init__(self, thing: str, detail: str, features: Sequence[str], version: str) -> None:
        super().__init__(
            f"{thing} {detail}: this broker, of version {version}, does not understand that",
            thing=thing,
            detail=detail,
            feature=", ".join(features),
            version=version,
        )


class UnfinishedError(UnavailableError):
    """A client has not sent in time what it began. Nothing of it was stored; it may be sent again."""

    reason = "UNFINISHED"
    what = Fact(str, "")
    waited_seconds = Fact(float, 0.0)

    def __init__(self, what: str, waited_seconds: float) -> None:
        super().__init__(
            f"{what} was not complete after {waited_seconds:.1f} s", what=what, waited_seconds=round(waited_seconds, 1)
        )


class NotReadingError(UnavailableError):
    """A stream or call was not read for too long: what waited for it is given to others. Connect again."""

    reason = "NOT_READING"
    waited_seconds = Fact(float, 0.0)

    def __init__(self, waited_seconds: float) -> None:
        super().__init__(
            f"ended, because nothing was read for {waited_seconds:.1f} s: connect again, here or elsewhere",
            waited_seconds=round(waited_seconds, 1),
        )


class QueueHeldError(UnavailableError):
    """Another broker holds the queue (it may be frozen): retry."""

    reason = "QUEUE_HELD"
    queue_id = Fact(int, 0)

    def __init__(self, queue_id: int) -> None:
        super().__init__(f"queue {queue_id} is held by another broker: retry", queue_id=queue_id)


class TopicSetAsideError(UnavailableError):
    """The topic's messages could not be stored, for a reason nobody foresaw: it is tried again in a while."""

    reason = "TOPIC_SET_ASIDE"
    topic = Fact(str, "")

    def __init__(self, topic: str, detail: str) -> None:
        super().__init__(f"topic {topic!r} cannot be stored at the moment: {detail}", topic=topic)


class PortInUseError(UnavailableError):
    """A broker cannot have the address that it is told to listen on: whoever starts it gives it another one."""

    reason = "PORT_IN_USE"
    retryable = False
    address = Fact(str, "")

    def __init__(self, address: str) -> None:
        super().__init__(
            f"cannot listen on {address}: another program has it, or the address is not of this machine",
            address=address,
        )


class DayClaimedError(UnavailableError):
    """Another run archives that day, and its lease has not passed."""

    reason = "DAY_CLAIMED"
    table = Fact(str, "")
    day = Fact(str, "")
    holder = Fact(str, "")
    lease_until = Fact(str, "")

    def __init__(self, table: str, day: str, holder: str, lease_until: str) -> None:
        super().__init__(
            f"{day} of {table} is being archived by {holder}, whose lease runs until {lease_until}",
            table=table,
            day=day,
            holder=holder,
            lease_until=lease_until,
        )


class DayStillOpenError(UnavailableError):
    """Something may still come for that day: it is not over, or somebody is in the middle of writing it."""

    reason = "DAY_STILL_OPEN"
    table = Fact(str, "")
    day = Fact(str, "")
    detail = Fact(str, "")

    def __init__(self, table: str, day: str, detail: str) -> None:
        super().__init__(f"{day} of {table} is still open: {detail}", table=table, day=day, detail=detail)


class ReplicaBehindError(UnavailableError):
    """A replica has not replayed in time what is to be read from it."""

    reason = "REPLICA_BEHIND"
    waited_seconds = Fact(float, 0.0)

    def __init__(self, waited_seconds: float, detail: str) -> None:
        super().__init__(
            f"the replica was still behind after {waited_seconds:g} s: {detail}", waited_seconds=waited_seconds
        )
