"""Bounds of what topics and groups are set to: one definition for the services and for the center in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidSettingError

NumberT = TypeVar("NumberT", int, float)


def check_between(name: str, value: NumberT, least: NumberT, most: NumberT) -> NumberT:
    """Return *value* if it is within its bounds, else raise InvalidSettingError."""
    # Put so that it is refused when it is not a number at all (NaN).
    if not least <= value <= most:
        raise InvalidSettingError(name, f"is {value:g}; {least:g} to {most:g} is allowed")
    return value


def check_queue_count(queue_count: int) -> int:
    """Return how many queues a topic is to have, if it may."""
    return check_between("queue_count", queue_count, 1, limits.QUEUES_MAX)


def check_body_bytes_max(body_bytes_max: int) -> int:
    """Return how large a topic's bodies may be, if it may be set."""
    return check_between("body_bytes_max", body_bytes_max, 1, limits.BODY_BYTES_CEILING)


def check_trace_rate(trace_rate: float) -> float:
    """Return of which share of a topic's messages all is to be traced, if it may be set."""
    return float(check_between("trace_rate", trace_rate, 0.0, 1.0))


def check_ack_timeout(seconds: float) -> float:
    """Return a group's ack timeout if it may be set."""
    least, most = limits.ACK_TIMEOUT_SECONDS_MIN, limits.ACK_TIMEOUT_SECONDS_MAX
    return float(check_between("ack_timeout_seconds", seconds, least, most))


def check_handle_seconds_max(seconds: float) -> float:
    """Return how long a group's instances may handle a message, if it may be set; 0: nothing is extended."""
    return float(check_between("handle_seconds_max", seconds, 0.0, limits.HANDLE_SECONDS_CEILING))


def check_attempts_max(attempts_max: int) -> int:
    """Return how many attempts a group makes, if it may."""
    return check_between("attempts_max", attempts_max, 1, limits.ATTEMPTS_MAX_CEILING)


def check_unsettled_max(unsettled_max: int) -> int:
    """Return how much an instance of a group may hold, if it may be set."""
    return check_between("unsettled_max", unsettled_max, 1, limits.CREDIT_MAX)


def check_retry_schedule(waits_seconds: Sequence[float]) -> list[float]:
    """Return a group's retry schedule if it may be set."""
    waits_max = limits.ATTEMPTS_MAX_CEILING - 1
    if len(waits_seconds) > waits_max:
        raise InvalidSettingError("retry_schedule_seconds", f"has {len(waits_seconds)} waits; {waits_max} at most")
    for wait_seconds in waits_seconds:
        check_between("retry_schedule_seconds", wait_seconds, 0.0, limits.RETRY_DELAY_SECONDS_MAX)
    return [float(wait_seconds) for wait_seconds in waits_seconds]
