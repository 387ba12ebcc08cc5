"""Asking brokers to end connections, as rows, and waiting for what came of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from msgconsole.operations.brokers.connected import InstanceRow, PublisherRow
from msgconsole.operations.stores import Stores
from msgdb.requests import NewRequest, RequestOutcome, ask, expire, find_outcomes, hint

RowT = TypeVar("RowT", InstanceRow, PublisherRow)

ANSWER_SECONDS: Final = 10.0
"""How long brokers have for what is asked of them; they look each second."""
_POLL_SECONDS: Final = 0.1
_TELL_SECONDS: Final = 2.0
"""Mostly it is done before that, and there is nothing to tell of waiting."""


async def carry_out(
    stores: Stores,
    new: Mapping[RowT, NewRequest],
    *,
    actor: str,
    reason: str,
    on_waiting: Callable[[Sequence[str]], None],
    seconds: float,
) -> dict[RowT, RequestOutcome]:
    """Ask for the end of these connections; return what came of each: it is done, or nobody will do it.

    *on_waiting* is told the brokers that have not said anything yet. Raises InvalidSettingError where it is not said
    who asks, or why.
    """
    async with stores.messages.transaction() as conn:
        asked = await ask(conn, list(new.values()), actor=actor, reason=reason, seconds=seconds)
    async with stores.messages.connection() as conn:
        await hint(conn)
    by_request = {request: row for row, request in new.items()}
    of_request = {id_: by_request[request] for id_, request in asked.items()}
    brokers = {id_: row.broker for id_, row in of_request.items()}
    outcomes = await _until_answered(stores, brokers, seconds, on_waiting)
    return {row: outcomes[id_] for id_, row in sorted(of_request.items())}


async def _until_answered(
    stores: Stores, brokers: Mapping[int, str], seconds: float, on_waiting: Callable[[Sequence[str]], None]
) -> dict[int, RequestOutcome]:
    """Return what came of each request; those that nobody has taken in time are closed."""
    loop = asyncio.get_running_loop()
    deadline, tell_at = loop.time() + seconds, loop.time() + _TELL_SECONDS
    while True:
        is_late = loop.time() >= deadline
        async with stores.messages.transaction() as conn:
            if is_late:
                # A broker that is in the middle of it is waited for, in the row.
                await expire(conn, list(brokers))
            outcomes = await find_outcomes(conn, list(brokers))
        if is_late or len(outcomes) == len(brokers):
            return outcomes
        if loop.time() >= tell_at:
            on_waiting(sorted({broker for id_, broker in brokers.items() if id_ not in outcomes}))
        await asyncio.sleep(_POLL_SECONDS)
