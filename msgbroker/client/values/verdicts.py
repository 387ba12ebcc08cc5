"""What a handler may say about its message other than "done" (it returns) and "failed, again later" (it raises)."""

from __future__ import annotations

import copyreg
from dataclasses import dataclass, replace
from enum import IntEnum

from msgbroker.client.values.texts import safe_text, text_of
from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidSettingError


class VerdictKind(IntEnum):
    """The verdicts of the wire, by their numbers there."""

    ACK = 1
    RETRY = 2
    RELEASE = 3
    REJECT = 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a message is settled with, and what people are told of it."""

    kind: VerdictKind
    delay_seconds: float | None = None
    """How long nobody gets the message; None: for a retry, by the group's schedule, for a release, not at all."""
    error: str = ""
    is_unreadable: bool = False
    """Whether, with REJECT, the handler was not called because the body cannot be read."""


class HandlerVerdict(Exception):  # noqa: N818 - it is an answer, not an error
    """Raised (or returned) by a handler to settle its message in a way of its own."""

    verdict: Verdict

    def __reduce__(self) -> tuple[object, ...]:
        # Handlers run in processes, too. Not by the constructor: it takes something else than the text.
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class Reject(HandlerVerdict):
    """The message can never be handled: it becomes a dead letter now.

    Args:
        reason: what is wrong, for the people who look at the dead letter.

    Example:
        raise Reject("no such order")
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.verdict = Verdict(VerdictKind.REJECT, None, _error_text(reason))


class UnreadableBody(Reject):
    """The body is not what the handler asks for: a second attempt would read the same bytes.

    For the client itself. Args: what is wrong with it, without the values that are in it: it is logged.
    """

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.verdict = replace(self.verdict, is_unreadable=True)


class RetryAfter(HandlerVerdict):
    """This attempt failed; make the next one after *seconds*, whatever the group's retry schedule says.

    Args:
        seconds: from 0 to 7 days.
        reason: what went wrong.

    Raises:
        InvalidSettingError: *seconds* is out of bounds.

    Example:
        raise RetryAfter(30, "the bank is closed")
    """

    def __init__(self, seconds: float, reason: str = "") -> None:
        super().__init__(reason or f"again after {seconds:g} s")
        _check_delay(seconds)
        self.verdict = Verdict(VerdictKind.RETRY, seconds, _error_text(reason))


class Release(HandlerVerdict):
    """Give the message back: no fault of its own, the attempt does not count (shutting down, a downstream's 429).

    Args:
        seconds: how long nobody gets it, from 0 to 7 days.
        reason: why, for people.

    Raises:
        InvalidSettingError: *seconds* is out of bounds.

    Example:
        raise Release(5, "rate limited")
    """

    def __init__(self, seconds: float = 0.0, reason: str = "") -> None:
        super().__init__(reason or f"released for {seconds:g} s")
        _check_delay(seconds)
        self.verdict = Verdict(VerdictKind.RELEASE, seconds, _error_text(reason))


RELEASED_AT_ONCE = Verdict(VerdictKind.RELEASE, 0.0, "")


def verdict_of(outcome: object) -> Verdict:
    """Return what an exception that a handler raised, or a value it returned, means for its message."""
    if isinstance(outcome, HandlerVerdict):
        said: object = getattr(outcome, "verdict", None)
        if isinstance(said, Verdict):
            return said
        # A class of the user's own, on top of ours, that did not call our constructor.
    if isinstance(outcome, BaseException):
        return Verdict(VerdictKind.RETRY, None, _error_text(f"{type(outcome).__name__}: {text_of(outcome)}"))
    return Verdict(VerdictKind.ACK)


def _error_text(reason: object) -> str:
    return safe_text(text_of(reason), limits.ERROR_TEXT_CHARS_MAX)


def _check_delay(seconds: float) -> None:
    if not 0 <= seconds <= limits.SETTLE_DELAY_SECONDS_MAX:
        raise InvalidSettingError("seconds", f"is {seconds:g}; 0 to {limits.SETTLE_DELAY_SECONDS_MAX:g}")
