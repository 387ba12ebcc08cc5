"""Topics: create, update, delete, look up."""

from __future__ import annotations

from operator import attrgetter

import sqlalchemy as sa

from confdb.features import Aspect, requires_with
from confdb.models import EventCode, StressWhitelist, Subscription, Topic
from confdb.routes import TopicKind
from confdb.services.changes import Changes
from confdb.services.checks import check_choice, check_description
from confdb.services.event_codes import record_removal
from confdb.services.feature_checks import FeatureChecks
from confdb.services.lookups import get_namespace, get_topic, list_named, require_unsubscribed
from confdb.services.stress import remove_whitelisted
from confdb.services.subscriptions import remove_subscriptions
from confdb.services.views import Changed, Page, TopicView, page_of, topic_view
from confdb.setting_bounds import check_body_bytes_max, check_queue_count, check_trace_rate
from confdb.store import ConfigStore
from msgbroker.contract import limits
from msgbroker.contract.errors import (
    InvalidSettingError,
    ThingAlreadyExistsError,
)
from msgbroker.contract.names import check_topic


class Topics:
    """Registers, changes, deletes and lists the topics of all namespaces."""

    def __init__(self, store: ConfigStore, changes: Changes, features: FeatureChecks) -> None:
        self._store = store
        self._changes = changes
        self._features = features

    async def create(
        self,
        namespace: str,
        name: str,
        *,
        kind: TopicKind = TopicKind.NORMAL,
        queue_count: int = limits.QUEUES_DEFAULT,
        body_bytes_max: int = limits.BODY_BYTES_DEFAULT,
        is_open: bool = False,
        trace_rate: float = limits.TRACE_RATE_DEFAULT,
        description: str = "",
    ) -> Changed[TopicView]:
        """Register a topic. `is_open`: event codes that are not registered yet register themselves."""
        check_topic(name)
        kind = check_choice("kind", TopicKind, kind)
        row = Topic(
            name=name,
            kind=kind,
            queue_count=check_queue_count(queue_count),
            body_bytes_max=check_body_bytes_max(body_bytes_max),
            is_open=is_open,
            trace_rate=check_trace_rate(trace_rate),
            description=check_description(description),
            requires=requires_with((), Aspect.TOPIC_KIND, kind),
        )
        permission = await self._features.ask((Aspect.TOPIC_KIND, kind))
        refusals = {"topic_namespace_id_name_key": ThingAlreadyExistsError("topic", name)}
        async with self._changes.begin(refusals) as change:
            await permission.check(change)
            row.namespace_id = (await get_namespace(change.session, namespace)).namespace_id
            await change.add(row)
            view = topic_view(namespace, row)
            change.record("topic", namespace, name, before=None, after=view)
            return Changed(view, change.version)

    async def update(
        self,
        namespace: str,
        name: str,
        *,
        queue_count: int | None = None,
        body_bytes_max: int | None = None,
        is_open: bool | None = None,
        is_closed: bool | None = None,
        stress_refused: bool | None = None,
        trace_rate: float | None = None,
        description: str | None = None,
    ) -> Changed[TopicView]:
        """Change what is given. The queue count only goes up, and then makes a new generation of queues."""
        async with self._changes.begin() as change:
            row = await get_topic(change.session, namespace, name)
            before = topic_view(namespace, row)
            if queue_count is not None:
                _set_queue_count(row, check_queue_count(queue_count))
            if body_bytes_max is not None:
                row.body_bytes_max = check_body_bytes_max(body_bytes_max)
            if is_open is not None:
                row.is_open = is_open
            if is_closed is not None:
                row.is_closed = is_closed
            if stress_refused is not None:
                row.stress_refused = stress_refused
            if trace_rate is not None:
                row.trace_rate = check_trace_rate(trace_rate)
            if description is not None:
                row.description = check_description(description)
            after = topic_view(namespace, row)
            change.record("topic", namespace, name, before=before, after=after)
            return Changed(after, change.version)

    async def delete(self, namespace: str, name: str, *, with_subscriptions: bool = False) -> Changed[TopicView]:
        """Delete a topic, its event codes and whitelist entries.

        Refused while a group subscribes to it, unless *with_subscriptions*.
        """
        async with self._changes.begin() as change:
            row = await get_topic(change.session, namespace, name)
            of_this = Subscription.topic_id == row.topic_id
            if with_subscriptions:
                await remove_subscriptions(change, namespace, of_this)
            await require_unsubscribed(change.session, "topic", name, of_this)
            await remove_whitelisted(change, namespace, StressWhitelist.topic_id == row.topic_id)
            of_topic = sa.select(EventCode).where(EventCode.topic_id == row.topic_id)
            codes = (await change.session.scalars(of_topic)).all()
            for code in codes:
                record_removal(change, namespace, name, code)
            await change.remove(*codes)
            view = topic_view(namespace, row)
            change.record("topic", namespace, name, before=view, after=None)
            await change.remove(row)
            return Changed(view, change.version)

    async def get(self, namespace: str, name: str) -> TopicView:
        """Return a topic, or raise TopicNotFoundError."""
        async with self._store.transaction() as session:
            return topic_view(namespace, await get_topic(session, namespace, name))

    async def list(self, namespace: str, *, after: str = "", limit: int = limits.PAGE_ITEMS_DEFAULT) -> Page[TopicView]:
        """Return the topics after the name *after*, by name."""
        async with self._store.transaction() as session:
            rows = await list_named(session, Topic, namespace, after=after, limit=limit)
        return page_of((topic_view(namespace, row) for row in rows), limit, attrgetter("name"))


def _set_queue_count(row: Topic, queue_count: int) -> None:
    if queue_count < row.queue_count:
        # Messages wait in the queues that would go.
        raise InvalidSettingError("queue_count", f"is {row.queue_count} and can only go up")
    if queue_count > row.queue_count:
        row.queue_count = queue_count
        row.generation += 1
