"""Pages of what is connected, by numbers that only go up: who comes later is behind, and nobody is told twice.

What a page costs beside what is on it: one look at each group, and one at each instance of the group that it begins
in. For ten thousand of either that is a millisecond or two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Final, NamedTuple, Protocol, TypeVar

from msgbroker.contract import limits
from msgbroker.contract.errors import InvalidRequestFieldError
from msgbroker.server.deliver.group import GroupDelivery
from msgbroker.server.deliver.instances.instance import Instance


class Numbered(Protocol):
    """A connection, with its number."""

    serial: int


NumberedT = TypeVar("NumberedT", bound=Numbered)

_BY_SERIAL: Final = attrgetter("serial")
_DIGITS_MAX: Final = 19


class Wanted(NamedTuple):
    """Which instances are asked for; what is empty may be any."""

    namespace: str
    group: str
    instance_id: str

    def takes(self, group: GroupDelivery) -> bool:
        """Return whether instances of this group are asked for."""
        route = group.route
        return (not self.namespace or self.namespace == route.namespace) and (
            not self.group or self.group == route.name
        )


class Attached(NamedTuple):
    """An instance, and its group."""

    group: GroupDelivery
    instance: Instance


class Place(NamedTuple):
    """Where a page ends: behind that connection."""

    group_id: int = 0
    """0 where there are no groups."""
    serial: int = 0

    @property
    def text(self) -> str:
        """It, as an answer names it."""
        return f"{self.group_id}:{self.serial}"


def checked_limit(limit: int) -> int:
    """Return how many are to be on a page. Raises InvalidRequestFieldError."""
    if limit > limits.CONNECTED_PAGE_MAX:
        raise InvalidRequestFieldError("limit", f"is {limit}; {limits.CONNECTED_PAGE_MAX} at most")
    return limit or limits.CONNECTED_PAGE_DEFAULT


def place_of(page: str) -> Place:
    """Return where a page begins. Raises InvalidRequestFieldError."""
    if not page:
        return Place()
    numbers = page.split(":")
    if len(numbers) != 2 or not all(n.isascii() and n.isdigit() and len(n) <= _DIGITS_MAX for n in numbers):
        raise InvalidRequestFieldError("page", "must be as an answer named it")
    return Place(*map(int, numbers))


def page_of_instances(
    groups: Mapping[int, GroupDelivery], wanted: Wanted, after: Place, limit: int
) -> tuple[list[Attached], str]:
    """Return a page of instances, and where the next one begins; empty: there is none."""
    found: list[Attached] = []
    for group_id in sorted(groups):
        group = groups[group_id]
        if group_id < after.group_id or not wanted.takes(group):
            continue
        instances = group.named(wanted.instance_id) if wanted.instance_id else group.instances.values()
        behind = after.serial if group_id == after.group_id else 0
        # One more than there is room for, to know whether there is another page.
        found += [Attached(group, each) for each in _first_behind(instances, behind, limit + 1 - len(found))]
        if len(found) > limit:
            last = found[limit - 1]
            return found[:limit], Place(last.group.route.group_id, last.instance.serial).text
    return found, ""


def page_of(connections: Iterable[NumberedT], after: Place, limit: int) -> tuple[list[NumberedT], str]:
    """Return a page of connections, and where the next one begins; empty: there is none."""
    found = _first_behind(connections, after.serial, limit + 1)
    if len(found) > limit:
        return found[:limit], Place(serial=found[limit - 1].serial).text
    return found, ""


def _first_behind(connections: Iterable[NumberedT], serial: int, count: int) -> list[NumberedT]:
    return sorted((each for each in connections if each.serial > serial), key=_BY_SERIAL)[:count]
