"""Mappings that are never changed, and share with those that are made of them what is the same. Pure.

For a history of ten thousand changes of some thousand things: a copy for each would take gigabytes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Final, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")

_BUCKETS: Final = 64


class SharedMapping(Mapping[KeyT, ValueT]):
    """A mapping in buckets: what is changed takes a copy of one of them. In no particular order."""

    def __init__(self, things: Mapping[KeyT, ValueT]) -> None:
        buckets: list[dict[KeyT, ValueT]] = [{} for _ in range(_BUCKETS)]
        for key, thing in things.items():
            buckets[hash(key) % _BUCKETS][key] = thing
        self._buckets = tuple(buckets)

    def changed(self, key: KeyT, thing: ValueT | None) -> SharedMapping[KeyT, ValueT]:
        """Return this with another thing of that name, or without one."""
        place = hash(key) % _BUCKETS
        bucket = dict(self._buckets[place])
        if thing is None:
            bucket.pop(key, None)
        else:
            bucket[key] = thing
        found: SharedMapping[KeyT, ValueT] = SharedMapping.__new__(SharedMapping)
        found._buckets = (*self._buckets[:place], bucket, *self._buckets[place + 1 :])
        return found

    def __getitem__(self, key: KeyT) -> ValueT:
        return self._buckets[hash(key) % _BUCKETS][key]

    def __iter__(self) -> Iterator[KeyT]:
        return (key for bucket in self._buckets for key in bucket)

    def __len__(self) -> int:
        return sum(map(len, self._buckets))
