"""The families of errors: each fixes the gRPC status, the HTTP status and whether to retry.

An error is raised once. One that several hear of, or that is heard again and again, is raised as `again()` each time:
what is raised gathers a traceback, and with it whatever the callers had at hand. Errors cross processes: they can be
copied and pickled, whatever their constructors take.
"""

from __future__ import annotations

import copy
import copyreg
from typing import ClassVar, Self

from msgbroker.contract.facts import Fact, FactValue, text_of, typed_facts


class MessageCenterError(Exception):
    """Whatever the message center refuses or cannot do."""

    status: ClassVar[str] = "INTERNAL"
    http_status: ClassVar[int] = 500
    retryable: bool = False
    reason: str = "INTERNAL"

    may_be_stored = Fact(bool, unknown=False)
    """Whether the message that was given up with this error was sent, and may be stored all the same."""

    def __init__(self, message: str, /, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.facts: dict[str, FactValue] = typed_facts(type(self), facts)

    def __reduce__(self) -> tuple[object, ...]:
        # Not by the constructor: a leaf's takes the facts, and makes the text of them.
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]

    @property
    def facts_text(self) -> dict[str, str]:
        """The facts as they go over the wire."""
        return {name: text_of(value) for name, value in self.facts.items()}

    def again(self) -> Self:
        """Return the same error as one that was never raised."""
        return copy.copy(self)


class InvalidRequestError(MessageCenterError):
    """The request can never succeed as it is."""

    status = "INVALID_ARGUMENT"
    http_status = 400


class NotFoundError(MessageCenterError):
    """The named thing is not registered."""

    status = "NOT_FOUND"
    http_status = 404


class AlreadyExistsError(MessageCenterError):
    """The named thing is registered already."""

    status = "ALREADY_EXISTS"
    http_status = 409


class FailedPreconditionError(MessageCenterError):
    """The thing is not in a state that allows it; someone must change that first."""

    status = "FAILED_PRECONDITION"
    http_status = 409


class PermissionDeniedError(MessageCenterError):
    """Who asks is known, and is not allowed to do it."""

    status = "PERMISSION_DENIED"
    http_status = 403


class UnauthenticatedError(MessageCenterError):
    """Who asks is not known."""

    status = "UNAUTHENTICATED"
    http_status = 401


class ResourceExhaustedError(MessageCenterError):
    """There is too much of something at the moment: retry after a while."""

    status = "RESOURCE_EXHAUSTED"
    http_status = 429
    retryable = True
    retry_after_seconds: Fact[float | None] = Fact(float, None)
    """How long to wait before it is tried again; None: whoever refused it does not say."""


class UnavailableError(MessageCenterError):
    """What is needed is out of reach at the moment: retry."""

    status = "UNAVAILABLE"
    http_status = 503
    retryable = True
    retry_after_seconds: Fact[float | None] = Fact(float, None)
    """How long to wait before it is tried again; None: whoever refused it does not say."""


FAMILIES: tuple[type[MessageCenterError], ...] = (
    InvalidRequestError,
    NotFoundError,
    AlreadyExistsError,
    FailedPreconditionError,
    PermissionDeniedError,
    UnauthenticatedError,
    ResourceExhaustedError,
    UnavailableError,
)
