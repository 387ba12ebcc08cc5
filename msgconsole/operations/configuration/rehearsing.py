"""Rehearsing a change of the configuration: it goes the way of one that is made, and is undone.

So what the change itself refuses its dry run refuses, with the same error; and what it would make is read from the very
rows that brokers would load.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from confdb.services import ConfigService
from confdb.services.changes import Rehearsal, Rehearsed, ThingChange
from msgconsole.operations.stores import Stores
from msgdb.log.queues import QueueTailReader, list_topic_queues
from msgdb.log.reads import next_offsets
from msgdb.store import MessageStore

DoneT = TypeVar("DoneT")

_ACTOR: Final = "dry run"
"""Nobody reads it: what would be written down is undone."""


class FieldChange(NamedTuple):
    """What would become of one field of a thing."""

    kind: str
    """Of what kind the thing is, as the audit trail has it, ..."""
    name: str
    """... and its name."""
    field: str
    before: Any
    after: Any


def _is_left_out(field: str) -> bool:
    # Given out by the database: the change itself is given others. What is required follows from the rest.
    return field.endswith("_id") or field in {"created_at", "requires"}


async def rehearse(
    stores: Stores, act: Callable[[ConfigService], Awaitable[DoneT]], *, reason: str = ""
) -> tuple[DoneT, Rehearsed]:
    """Carry out *act* with services that keep nothing; return what it made, and the configuration before and after.

    Raises what *act* raises.
    """
    rehearsal = Rehearsal(stores.config)
    tails = LookingTails(stores.messages)
    done = await act(ConfigService(stores.config, _ACTOR, tails, reason=reason, rehearsal=rehearsal))
    return done, await rehearsal.told()


def changed_fields(rehearsed: Rehearsed) -> tuple[FieldChange, ...]:
    """Return what would be different; nothing: all is so already."""
    return tuple(field for thing in rehearsed.things for field in _fields_of(thing))


def _fields_of(change: ThingChange) -> list[FieldChange]:
    # Of what is created or deleted there are no fields on one side.
    before: Mapping[str, Any] = change.before or {}
    after: Mapping[str, Any] = change.after or {}
    return [
        FieldChange(change.kind, change.name, field, before.get(field), after.get(field))
        for field in {**before, **after}
        if before.get(field) != after.get(field) and not _is_left_out(field)
    ]


class LookingTails(QueueTailReader):
    """What a change asks the message store, without making queues and without keeping a beginning for a group."""

    def __init__(self, store: MessageStore) -> None:
        super().__init__(store)
        self._looked_at = store

    async def tails(self, topic_id: int, generation: int, queue_count: int) -> dict[int, int]:
        """Return the next offset of each queue that is there: of one that would be made it is 0."""
        del generation, queue_count
        async with self._looked_at.looking() as conn:
            queues = await list_topic_queues(conn, topic_id)
            return await next_offsets(conn, [queue.queue_id for queue in queues])

    async def keep_beginning(
        self, group_id: int, topic_id: int, generation: int, queue_count: int, version: int
    ) -> bool:
        """Return whether the beginning could be kept."""
        del generation, queue_count, version
        return not await self.has_cursor(group_id, topic_id)
