"""Disconnecting an instance: its connections, asking their brokers to end them, and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgbroker.client.connect.inspection import WhichInstances
from msgbroker.contract.errors import InvalidSettingError
from msgconsole.operations.brokers.asking import Unanswered
from msgconsole.operations.brokers.connected import InstanceRow, list_instances
from msgconsole.operations.stores import Stores
from msgdb.requests import ASKED_AT_ONCE_MAX, NewRequest, RequestOutcome, ask, expire, find_outcomes, hint

ANSWER_SECONDS: Final = 10.0
"""How long brokers have for what is asked of them; they look each second."""
_POLL_SECONDS: Final = 0.1
_NAMED_MAX: Final = 10
_TELL_SECONDS: Final = 2.0
"""Mostly it is done before that, and there is nothing to tell of waiting."""


@dataclass(frozen=True, slots=True)
class DisconnectPlan:
    """What would be ended."""

    connections: Sequence[InstanceRow]
    """One for each group that the instance is connected for."""
    unanswered: Sequence[Unanswered]
    """Brokers that have not answered: it may be connected there, too, and would stay so."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """What came of one connection."""

    namespace: str
    group: str
    instance_id: str
    broker: str
    outcome: RequestOutcome


async def plan_disconnect(stores: Stores, which: WhichInstances) -> DisconnectPlan:
    """Return the connections of an instance, whichever brokers they are at. Changes nothing.

    Raises NamespaceNotFoundError, GroupNotFoundError, InvalidSettingError where it is not said whose instance is meant.
    """
    report = await list_instances(stores, which, ASKED_AT_ONCE_MAX)
    if report.has_more:
        # Not one instance, but a name that many groups' instances have.
        raise InvalidSettingError("group", f"must be given: there are over {ASKED_AT_ONCE_MAX} such connections")
    namespaces = sorted({each.namespace for each in report.instances})
    if len(namespaces) > 1:
        # Each tenant gives its instances what names it likes.
        named = ", ".join(namespaces[:_NAMED_MAX]) + (", ..." if namespaces[_NAMED_MAX:] else "")
        raise InvalidSettingError("namespace", f"must be given: {named} have an instance of that id")
    return DisconnectPlan(report.instances, report.unanswered)


async def disconnect(
    stores: Stores,
    connections: Sequence[InstanceRow],
    *,
    actor: str,
    reason: str,
    on_waiting: Callable[[Sequence[str]], None],
    seconds: float = ANSWER_SECONDS,
) -> list[Disconnected]:
    """Have the brokers end just these connections, and return what came of each: it is done, or nobody will do it.

    Each connection is ended once: one that the instance makes afterwards is another. *on_waiting* is told the brokers
    that have not said anything yet. Raises InvalidSettingError where it is not said who asks, or why.
    """
    new = [
        NewRequest(each.broker_id, each.group_id, each.attachment, f"instance {each.instance_id} of {each.group}")
        for each in connections
    ]
    async with stores.messages.transaction() as conn:
        asked = await ask(conn, new, actor=actor, reason=reason, seconds=seconds)
    async with stores.messages.connection() as conn:
        await hint(conn)
    by_name = {(each.broker_id, each.attachment): each for each in connections}
    of_request = {id_: by_name[each.broker_id, each.attachment] for id_, each in asked.items()}
    outcomes = await _until_answered(stores, of_request, seconds, on_waiting)
    return [
        Disconnected(each.namespace, each.group, each.instance_id, each.broker, outcomes[id_])
        for id_, each in sorted(of_request.items())
    ]


async def _until_answered(
    stores: Stores,
    of_request: dict[int, InstanceRow],
    seconds: float,
    on_waiting: Callable[[Sequence[str]], None],
) -> dict[int, RequestOutcome]:
    """Return what came of each request; those that nobody has taken in time are closed."""
    loop = asyncio.get_running_loop()
    deadline, tell_at = loop.time() + seconds, loop.time() + _TELL_SECONDS
    while True:
        is_late = loop.time() >= deadline
        async with stores.messages.transaction() as conn:
            if is_late:
                # A broker that is in the middle of it is waited for, in the row.
                await expire(conn, list(of_request))
            outcomes = await find_outcomes(conn, list(of_request))
        if is_late or len(outcomes) == len(of_request):
            return outcomes
        if loop.time() >= tell_at:
            on_waiting(sorted({each.broker for id_, each in of_request.items() if id_ not in outcomes}))
        await asyncio.sleep(_POLL_SECONDS)
