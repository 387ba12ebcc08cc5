"""Errors of requests that can never succeed as they are: names, contents, expressions, settings.

Here belongs every leaf of InvalidRequestError.
"""

from __future__ import annotations

from msgbroker.contract.error_families import InvalidRequestError, MessageCenterError
from msgbroker.contract.facts import Fact


class InvalidNameError(InvalidRequestError):
    """A name is too long or not of the alphabet."""

    reason = "INVALID_NAME"
    kind = Fact(str, "")
    name = Fact(str, "")

    def __init__(self, kind: str, name: str, problem: str) -> None:
        shown = name if len(name) <= 40 else f"{name[:40]}..."
        super().__init__(f"{kind} {shown!r} {problem}", kind=kind, name=shown)


class InvalidKeyError(InvalidRequestError):
    """A key or ordering key is too long or contains NUL."""

    reason = "INVALID_KEY"
    kind = Fact(str, "")

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(f"{kind} {problem}", kind=kind)


class InvalidHeadersError(InvalidRequestError):
    """The headers are too many or too long, or there is a NUL in one."""

    reason = "INVALID_HEADERS"

    def __init__(self, problem: str) -> None:
        super().__init__(f"headers: {problem}")


class BodyTooLargeError(InvalidRequestError):
    """The body is over the topic's limit. Never retryable: the same bytes will be refused again."""

    reason = "BODY_TOO_LARGE"
    topic = Fact(str, "")
    body_bytes = Fact(int, 0)
    body_bytes_max = Fact(int, 0)

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
    unit = Fact(str, "")
    count = Fact(int, 0)
    max = Fact(int, 0)

    def __init__(self, unit: str, count: int, count_max: int) -> None:
        super().__init__(f"{count} {unit} in one frame; {count_max} at most", unit=unit, count=count, max=count_max)


class InvalidExpressionError(InvalidRequestError):
    """A HEADER expression does not compile to a boolean; says where."""

    reason = "INVALID_EXPRESSION"
    line: Fact[int | None] = Fact(int, None)
    column: Fact[int | None] = Fact(int, None)

    def __init__(self, problem: str, line: int | None = None, column: int | None = None) -> None:
        where = f"line {line}, column {column}: " if line is not None else ""
        super().__init__(f"expression: {where}{problem}", line=line, column=column)


class ExpressionTooCostlyError(InvalidRequestError):
    """Evaluating a HEADER expression can take too long: it would be done for every message of the topic."""

    reason = "EXPRESSION_TOO_COSTLY"
    cost = Fact(str, "")
    cost_max = Fact(str, "")

    def __init__(self, cost: str, cost_max: str, advice: str) -> None:
        super().__init__(
            f"expression: costs up to {cost} on a message; {cost_max} at most: {advice}", cost=cost, cost_max=cost_max
        )


class InvalidSettingError(InvalidRequestError):
    """A value given for a setting is out of its bounds."""

    reason = "INVALID_SETTING"
    name = Fact(str, "")

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}", name=name)


class InvalidRequestFieldError(InvalidRequestError):
    """A field of a request is missing or malformed."""

    reason = "INVALID_FIELD"
    field = Fact(str, "")

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}", field=field)


class BodyTypeError(InvalidRequestFieldError, TypeError):
    """A body, or something in one that is to be JSON, is of a type that cannot be sent. Also a TypeError."""

    def __init__(self, problem: str) -> None:
        MessageCenterError.__init__(self, problem, field="body")


class DelayNotSupportedError(InvalidRequestError):
    """A delay or delivery time was given for a message, which this version does not carry out."""

    reason = "DELAY_NOT_SUPPORTED"
    topic = Fact(str, "")

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r}: delayed and scheduled messages are not supported yet", topic=topic)


class KindNotSupportedError(InvalidRequestError):
    """The topic or group is of a kind that this version does not carry out."""

    reason = "KIND_NOT_SUPPORTED"
    thing = Fact(str, "")
    kind = Fact(str, "")

    def __init__(self, thing: str, kind: str, supported: str) -> None:
        super().__init__(f"{thing} {kind} is not supported yet; use {supported}", thing=thing, kind=kind)
