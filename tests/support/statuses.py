"""Asking what became of a message, until it is so."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgbroker.client import Receipt
from msgconsole.operations.status.answers import Basis, GroupStatus, MessageStatus, State
from msgconsole.operations.status.message_status import find_status
from msgconsole.operations.status.wanted import WantedStatus
from msgconsole.operations.stores import Stores
from tests.support.collecting import GROUP
from tests.support.eventually import eventually


async def look(stores: Stores, message_id: UUID, **more: Any) -> MessageStatus:
    return await find_status(stores, WantedStatus(namespace="default", message_id=message_id, **more))


async def with_group(stores: Stores, receipt: Receipt, group: str = GROUP) -> GroupStatus:
    """Return what became of a message with one group, where it lies first."""
    return (await look(stores, receipt.message_id, group=group)).places[0].groups[0]


async def until(
    stores: Stores,
    receipt: Receipt,
    state: State,
    group: str = GROUP,
    *,
    place: int = 0,
    basis: Basis | None = None,
) -> GroupStatus:
    """Return the status once it is of that state, and told by that: what instances say is stored a moment later."""

    async def seen() -> GroupStatus | None:
        found = (await look(stores, receipt.message_id, group=group)).places
        told = found[place].groups[0] if len(found) > place else None
        is_it = told is not None and told.state is state and basis in {None, told.basis}
        return told if is_it else None

    told = await eventually(seen, what=f"{state}")
    assert told is not None
    return told


async def until_certain(stores: Stores, receipt: Receipt, state: State, group: str = GROUP) -> GroupStatus:
    """Return the status once it is of that state, and can be nothing else."""

    async def seen() -> GroupStatus | None:
        told = await with_group(stores, receipt, group)
        return told if told.state is state and told.is_certain else None

    told = await eventually(seen, what=f"{state} for certain")
    assert told is not None
    return told
