"""protobuf's variable-length numbers, for the few places that encode by hand."""

from __future__ import annotations

from typing import Final

_CHUNK: Final = 1 << 14


def _slow_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_SHORT: Final = tuple(_slow_varint(value) for value in range(_CHUNK))
# The low 14 bits with both continuation bits set: the start of every longer number.
_CONTINUED: Final = tuple(bytes((value & 0x7F | 0x80, value >> 7 | 0x80)) for value in range(_CHUNK))


def varint(value: int) -> bytes:
    """Return *value* (not negative) as protobuf writes it."""
    if value < _CHUNK:
        return _SHORT[value]
    high = value >> 14
    if high < _CHUNK:
        return _CONTINUED[value & 0x3FFF] + _SHORT[high]
    return _CONTINUED[value & 0x3FFF] + varint(high)
