"""Jobs as tests wait for them, and dead letters made by messages that instances reject."""

from __future__ import annotations

from msgbroker.client import Message, MessageCenter, Reject
from msgconsole.operations.stores import Stores
from msgdb.jobs.listing import JobStatus, get_job
from msgdb.store import MessageStore
from tests.support.collecting import GROUP, PAID, TOPIC, subscribed
from tests.support.dead_letter_rows import all_dead_letters
from tests.support.eventually import eventually


async def ended(stores: Stores, job_id: int, seconds: float = 20.0) -> JobStatus:
    """Return how a job stands once nothing more happens to it."""

    async def look() -> JobStatus | None:
        async with stores.messages.connection() as conn:
            status = await get_job(conn, job_id)
        return status if status.state != "RUNNING" and not status.is_in_step else None

    found = await eventually(look, seconds, what=f"job {job_id} ended")
    assert found is not None
    return found


async def reject(message: Message) -> None:
    """Handle no message."""
    raise Reject("the warehouse is closed")


async def buried(
    address: str, store: MessageStore, count: int, group: str = GROUP, *, key: str = "", topic: str = TOPIC
) -> list[int]:
    """Let *count* messages become dead letters of the group, and return their ids, ascending."""
    async with store.connection() as conn:
        before = len(await all_dead_letters(conn))

    async def are_there() -> bool:
        async with store.connection() as conn:
            return len(await all_dead_letters(conn)) >= before + count

    async with subscribed(address, group, topic=topic, act=reject), MessageCenter(address) as center:
        for number in range(count):
            headers = {"number": str(number)}
            await center.publish(topic, PAID, f"body {number}", key=key or f"key-{number}", headers=headers)
        await eventually(are_there, what=f"{count} dead letters")
    async with store.connection() as conn:
        return [letter.dead_letter_id for letter in (await all_dead_letters(conn))[:count]][::-1]
