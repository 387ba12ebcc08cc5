"""Acts on lanes that somebody may be serving: under new epochs, and *obeyed* once nobody goes by the old ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from confdb.brokers import BrokerRegistry
from msgconsole.operations.stores import Stores
from msgdb.lanes.resets import find_waiting

_POLL_SECONDS: Final = 0.1


async def until_obeyed(
    stores: Stores,
    group_id: int,
    leases: Mapping[int, datetime],
    wait_seconds: float,
    on_waiting: Callable[[Sequence[str]], None],
) -> list[str]:
    """Return once nobody hands out by what the lanes were when their *leases* were these, or after a while who may.

    *on_waiting* is told of the brokers that are waited for.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_seconds
    while True:
        async with stores.messages.looking() as conn:
            owners = await find_waiting(conn, group_id, leases)
        if not owners:
            return []
        names = await _names_of(stores, set(owners.values()))
        if loop.time() >= deadline:
            return names
        on_waiting(names)
        await asyncio.sleep(_POLL_SECONDS)


async def _names_of(stores: Stores, owners: Collection[UUID]) -> list[str]:
    live = {broker.broker_id: broker.address for broker in await BrokerRegistry(stores.config).list_live()}
    return sorted(live.get(owner, f"{owner} (it is gone: its leases pass soon)") for owner in owners)
