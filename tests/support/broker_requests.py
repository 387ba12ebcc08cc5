"""What is asked of a broker, and what came of it."""

from __future__ import annotations

from msgdb.requests import NewRequest, RequestOutcome, ask, find_outcomes, hint
from msgdb.store import MessageStore
from tests.support.eventually import eventually


async def asked(store: MessageStore, new: NewRequest, *, reason: str = "it hangs") -> int:
    """Ask for the end of a connection, as ada; return the id of what is asked."""
    async with store.transaction() as conn:
        (request_id,) = await ask(conn, [new], seconds=60.0, actor="ada", reason=reason)
    async with store.connection() as conn:
        await hint(conn)
    return request_id


async def outcome_of(store: MessageStore, request_id: int) -> RequestOutcome:
    """Return what came of it, once its broker has said so."""

    async def look() -> RequestOutcome | None:
        async with store.connection() as conn:
            return (await find_outcomes(conn, [request_id])).get(request_id)

    outcome = await eventually(look)
    assert outcome is not None
    return outcome
