"""The rules for names, keys and headers: what is allowed, and the error that says what is not.

One alphabet for every name: `A-Z a-z 0-9 _ - . :`, starting with a letter, a digit or `_`. Case matters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidHeadersError, InvalidKeyError, InvalidNameError

ALPHABET: Final = "A-Z a-z 0-9 _ - . : (first: a letter, a digit or _)"
ANY_EVENT_CODE: Final = "*"
"""What stands in a subscription for every event code of the topic."""
DEFAULT_NAMESPACE: Final = "default"

_NOT_UTF8: Final = "has a lone surrogate, which UTF-8 has no place for"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*\Z")


def check_namespace(name: str) -> str:
    """Return *name* if it may name a namespace, else raise InvalidNameError."""
    return _check("namespace", name, limits.NAMESPACE_CHARS_MAX)


def check_topic(name: str) -> str:
    """Return *name* if it may name a topic, else raise InvalidNameError."""
    return _check("topic", name, limits.TOPIC_CHARS_MAX)


def check_event_code(name: str) -> str:
    """Return *name* if it may name an event code, else raise InvalidNameError."""
    return _check("event code", name, limits.EVENT_CODE_CHARS_MAX)


def check_group(name: str) -> str:
    """Return *name* if it may name a publisher or subscriber group, else raise InvalidNameError."""
    return _check("group", name, limits.GROUP_CHARS_MAX)


def check_instance_id(name: str) -> str:
    """Return *name* if it may name an instance of a group, else raise InvalidNameError."""
    return _check("instance id", name, limits.INSTANCE_ID_CHARS_MAX)


def check_key(kind: str, key: str) -> str:
    """Return *key* if it may be a key or an ordering key, else raise InvalidKeyError."""
    try:
        size_bytes = len(key) if key.isascii() else len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidKeyError(kind, _NOT_UTF8) from error
    if size_bytes > limits.KEY_BYTES_MAX:
        raise InvalidKeyError(kind, f"is {size_bytes} bytes; {limits.KEY_BYTES_MAX} at most")
    if "\0" in key:
        raise InvalidKeyError(kind, "contains a NUL character")
    return key


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise InvalidHeadersError if there are too many headers, too long ones, or a NUL in one."""
    if len(headers) > limits.HEADERS_MAX:
        raise InvalidHeadersError(f"{len(headers)} headers; {limits.HEADERS_MAX} at most")
    size_bytes = 0
    for name, value in headers.items():
        if not name:
            raise InvalidHeadersError("a header without a name")
        if not (isinstance(name, str) and isinstance(value, str)):  # type: ignore[redundant-expr] # callers' mistakes
            raise InvalidHeadersError(f"header {name!r} is {type(value).__name__}; names and values must be text")
        if "\0" in name or "\0" in value:
            raise InvalidHeadersError(f"header {name!r} contains a NUL character")
        try:
            size_bytes += len(name.encode()) + len(value.encode())
        except UnicodeEncodeError as error:
            raise InvalidHeadersError(f"header {name!r} {_NOT_UTF8}") from error
    if size_bytes > limits.HEADERS_BYTES_MAX:
        raise InvalidHeadersError(f"{size_bytes} bytes of header names and values; {limits.HEADERS_BYTES_MAX} at most")


def _check(kind: str, name: str, chars_max: int) -> str:
    if len(name) > chars_max:
        raise InvalidNameError(kind, name, f"has {len(name)} characters; {chars_max} at most")
    if not _NAME.match(name):
        raise InvalidNameError(kind, name, f"must be of {ALPHABET}" if name else "is empty")
    return name
