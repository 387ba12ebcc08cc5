"""Which groups have lately lost an instance without a word: the next one begins with care.

Kept by this broker alone, and not persisted: where it is not known, more than one crash is needed to find the message
that causes them.
"""

from __future__ import annotations

from typing import Final

from msgbroker.server.deliver.instances.instance import Instance

_REMEMBERED_SECONDS: Final = 600.0
"""How long a crash is kept in mind: longer than a supervisor waits before it starts a process again."""
_GROUPS_MAX: Final = 10_000
_PER_GROUP_MAX: Final = 1_000


class RecentCrashes:
    """The processes that went away with messages in their hands, by group."""

    def __init__(self) -> None:
        self._gone: dict[int, dict[bytes, float]] = {}

    def note(self, group_id: int, instance: Instance, now: float) -> None:
        """Take note that *instance* went away without a word."""
        gone = self._gone.pop(group_id, {})
        if len(self._gone) >= _GROUPS_MAX:
            del self._gone[next(iter(self._gone))]
        self._gone[group_id] = gone
        process = _process_of(instance)
        gone.pop(process, None)
        if len(gone) >= _PER_GROUP_MAX:
            del gone[next(iter(gone))]
        gone[process] = now

    def is_to_be_careful(self, group_id: int, instance: Instance, now: float) -> bool:
        """Return whether *instance*, which attaches, is to begin with care.

        Not if it is itself what went away: then its connection broke, and nothing has ended it.
        """
        gone = self._gone.get(group_id)
        if gone is None:
            return False
        gone.pop(_process_of(instance), None)
        for process in [process for process, at in gone.items() if now - at > _REMEMBERED_SECONDS]:
            del gone[process]
        if not gone:
            del self._gone[group_id]
        return bool(gone)


def _process_of(instance: Instance) -> bytes:
    return instance.process_id or instance.name.encode()
