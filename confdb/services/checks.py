"""Bounds of what is set, each refused with an error that names the setting and the limit."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeVar

from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidRequestFieldError, InvalidSettingError

_NOT_STORABLE: Final = "contains a NUL character or half a surrogate pair"

ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


def check_text(name: str, text: str, chars_max: int) -> str:
    """Return *text* if it is short enough and can be stored, else raise InvalidSettingError."""
    if len(text) > chars_max:
        raise InvalidSettingError(name, f"has {len(text)} characters; {chars_max} at most")
    if not _is_storable(text):
        raise InvalidSettingError(name, _NOT_STORABLE)
    return text


def check_description(text: str) -> str:
    """Return *text* if it may describe something."""
    return check_text("description", text, limits.DESCRIPTION_CHARS_MAX)


def check_choice(name: str, kind: type[ChoiceT], value: str) -> ChoiceT:
    """Return *value* as one of *kind*, else raise InvalidSettingError with the choices."""
    try:
        return kind(value)
    except ValueError as error:
        raise InvalidSettingError(name, f"is {value[:40]!r}; choose one of {', '.join(kind)}") from error


def check_after(after: str | int) -> None:
    """Raise InvalidRequestFieldError unless *after* may be where a page begins."""
    if isinstance(after, int):
        if not 0 <= after < 2**63:
            raise InvalidRequestFieldError("after", f"is {after}, which is no id")
    elif not _is_storable(after):
        raise InvalidRequestFieldError("after", _NOT_STORABLE)


def check_page_limit(limit: int) -> int:
    """Return *limit* if a page may have so many items, else raise InvalidRequestFieldError."""
    if not 1 <= limit <= limits.PAGE_ITEMS_MAX:
        raise InvalidRequestFieldError("limit", f"is {limit}; 1 to {limits.PAGE_ITEMS_MAX} is allowed")
    return limit


def _is_storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
