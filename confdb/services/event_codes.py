"""Event codes of topics: add, remove, list."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import sqlalchemy as sa

from confdb.models import EventCode, StressWhitelist, Subscription
from confdb.services.changes import Change, Changes
from confdb.services.checks import check_after, check_page_limit
from confdb.services.lookups import get_topic, require_unsubscribed
from confdb.services.stress import remove_whitelisted
from confdb.services.views import Changed, EventCodeView, Page, event_code_view, page_of
from confdb.store import ConfigStore
from msgbroker.contract import limits
from msgbroker.contract.errors import (
    EventCodeNotFoundError,
    LimitReachedError,
    ThingAlreadyExistsError,
)
from msgbroker.contract.names import check_event_code


class EventCodes:
    """Registers, deletes and lists the event codes of topics."""

    def __init__(self, store: ConfigStore, changes: Changes) -> None:
        self._store = store
        self._changes = changes

    async def add(self, namespace: str, topic: str, name: str) -> Changed[EventCodeView]:
        """Register an event code of a topic."""
        added = await self._add(namespace, topic, [check_event_code(name)])
        if not added.thing:
            raise ThingAlreadyExistsError("event code", f"{topic}/{name}")
        return Changed(added.thing[0], added.version)

    async def ensure(self, namespace: str, topic: str, names: Sequence[str]) -> Changed[tuple[EventCodeView, ...]]:
        """Register those of *names* that are not registered yet, and return them: all, or none where there is no room.

        A repeat changes nothing.
        """
        return await self._add(namespace, topic, [check_event_code(name) for name in names])

    async def learn(self, namespace: str, topic: str, names: Sequence[str]) -> Sequence[str]:
        """Register as many of *names* as there is room for, and return the rest: nobody has asked for any of them.

        They are used by publishers of an open topic, whose messages are stored either way.
        """
        checked = [check_event_code(name) for name in names]
        async with self._changes.begin() as change:
            topic_id = (await get_topic(change.session, namespace, topic)).topic_id
            missing, room = await _missing(change, topic_id, checked)
            await _insert(change, namespace, topic, topic_id, missing[:room])
            return missing[room:]

    async def remove(self, namespace: str, topic: str, name: str) -> Changed[EventCodeView]:
        """Remove an event code and its whitelist entries; refused while a group subscribes to it by name."""
        async with self._changes.begin() as change:
            topic_row = await get_topic(change.session, namespace, topic)
            row = await change.session.get(EventCode, (topic_row.topic_id, check_event_code(name)))
            if row is None:
                raise EventCodeNotFoundError(topic, name)
            is_to_code = (Subscription.topic_id == topic_row.topic_id, Subscription.event_code == name)
            await require_unsubscribed(change.session, "event code", f"{topic}/{name}", *is_to_code)
            is_of_code = sa.and_(StressWhitelist.topic_id == topic_row.topic_id, StressWhitelist.event_code == name)
            await remove_whitelisted(change, namespace, is_of_code)
            view = record_removal(change, namespace, topic, row)
            await change.remove(row)
            return Changed(view, change.version)

    async def get(self, namespace: str, topic: str, name: str) -> EventCodeView:
        """Return an event code, or raise EventCodeNotFoundError."""
        async with self._store.transaction() as session:
            topic_id = (await get_topic(session, namespace, topic)).topic_id
            row = await session.get(EventCode, (topic_id, check_event_code(name)))
            if row is None:
                raise EventCodeNotFoundError(topic, name)
            return event_code_view(namespace, topic, row)

    async def list(
        self, namespace: str, topic: str, *, after: str = "", limit: int = limits.PAGE_ITEMS_DEFAULT
    ) -> Page[EventCodeView]:
        """Return the event codes of a topic after the name *after*, by name."""
        check_after(after)
        async with self._store.transaction() as session:
            topic_id = (await get_topic(session, namespace, topic)).topic_id
            wanted = sa.select(EventCode).where(EventCode.topic_id == topic_id, EventCode.name > after)
            rows = (await session.scalars(wanted.order_by(EventCode.name).limit(check_page_limit(limit)))).all()
        return page_of((event_code_view(namespace, topic, row) for row in rows), limit, attrgetter("name"))

    async def _add(self, namespace: str, topic: str, names: Sequence[str]) -> Changed[tuple[EventCodeView, ...]]:
        async with self._changes.begin() as change:
            topic_id = (await get_topic(change.session, namespace, topic)).topic_id
            missing, room = await _missing(change, topic_id, names)
            if len(missing) > room:
                count_max = limits.EVENT_CODES_PER_TOPIC_MAX
                raise LimitReachedError("event codes", f"topic {topic!r}", count_max, count_max - room)
            views = await _insert(change, namespace, topic, topic_id, missing)
            return Changed(views, change.version)


async def _missing(change: Change, topic_id: int, names: Sequence[str]) -> tuple[list[str], int]:
    """Return those of *names* that the topic does not have, and how many more it may have."""
    existing = set(await change.session.scalars(sa.select(EventCode.name).where(EventCode.topic_id == topic_id)))
    missing = [name for name in dict.fromkeys(names) if name not in existing]
    return missing, limits.EVENT_CODES_PER_TOPIC_MAX - len(existing)


async def _insert(
    change: Change, namespace: str, topic: str, topic_id: int, names: Sequence[str]
) -> tuple[EventCodeView, ...]:
    rows = [EventCode(topic_id=topic_id, name=name) for name in names]
    change.session.add_all(rows)
    await change.session.flush()
    views = tuple(event_code_view(namespace, topic, row) for row in rows)
    for view in views:
        change.record("event_code", namespace, f"{topic}/{view.name}", before=None, after=view)
    return views


def record_removal(change: Change, namespace: str, topic: str, row: EventCode) -> EventCodeView:
    """Note in *change* that an event code goes, and return what it was."""
    view = event_code_view(namespace, topic, row)
    change.record("event_code", namespace, f"{topic}/{row.name}", before=view, after=None)
    return view
