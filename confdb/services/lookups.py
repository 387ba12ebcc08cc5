"""Find what a request names, or raise the error that says which of the names is not registered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession

from confdb.models import EventCode, Namespace, PublisherGroup, SubscriberGroup, Subscription, Topic
from confdb.services.checks import check_after, check_page_limit
from msgbroker.contract.errors import (
    EventCodeNotFoundError,
    GroupNotFoundError,
    NamespaceNotFoundError,
    ThingInUseError,
    TopicNotFoundError,
)
from msgbroker.contract.names import (
    ANY_EVENT_CODE,
    check_event_code,
    check_group,
    check_namespace,
    check_topic,
)

NamedT = TypeVar("NamedT", Topic, PublisherGroup, SubscriberGroup)


async def get_namespace(session: AsyncSession, name: str) -> Namespace:
    """Return the namespace, or raise NamespaceNotFoundError."""
    check_namespace(name)
    row = await session.scalar(sa.select(Namespace).where(Namespace.name == name))
    if row is None:
        raise NamespaceNotFoundError(name)
    return row


async def get_topic(session: AsyncSession, namespace: str, name: str) -> Topic:
    """Return the topic, or raise TopicNotFoundError."""
    check_topic(name)
    row = await _find_named(session, Topic, namespace, name)
    if row is None:
        raise TopicNotFoundError(namespace, name)
    return row


async def get_publisher_group(session: AsyncSession, namespace: str, name: str) -> PublisherGroup:
    """Return the publisher group, or raise GroupNotFoundError."""
    check_group(name)
    row = await _find_named(session, PublisherGroup, namespace, name)
    if row is None:
        raise GroupNotFoundError(namespace, name, "publisher")
    return row


async def get_subscriber_group(session: AsyncSession, namespace: str, name: str) -> SubscriberGroup:
    """Return the subscriber group, or raise GroupNotFoundError."""
    check_group(name)
    row = await _find_named(session, SubscriberGroup, namespace, name)
    if row is None:
        raise GroupNotFoundError(namespace, name)
    return row


async def _find_named(session: AsyncSession, kind: type[NamedT], namespace: str, name: str) -> NamedT | None:
    namespace_id = (await get_namespace(session, namespace)).namespace_id
    return await session.scalar(sa.select(kind).where(kind.namespace_id == namespace_id, kind.name == name))


async def list_named(
    session: AsyncSession, kind: type[NamedT], namespace: str, *, after: str, limit: int
) -> Sequence[NamedT]:
    """Return the topics or groups of a namespace after the name *after*, by name, *limit* of them at most."""
    check_after(after)
    namespace_id = (await get_namespace(session, namespace)).namespace_id
    wanted = sa.select(kind).where(kind.namespace_id == namespace_id, kind.name > after)
    return (await session.scalars(wanted.order_by(kind.name).limit(check_page_limit(limit)))).all()


async def require_unsubscribed(
    session: AsyncSession, kind: str, name: str, *is_concerned: sa.ColumnElement[bool]
) -> None:
    """Raise ThingInUseError for *kind* and *name*, with the first such group, if a subscription *is_concerned*."""
    subscribed = sa.select(SubscriberGroup.name).join(Subscription, Subscription.group_id == SubscriberGroup.group_id)
    group = await session.scalar(subscribed.where(*is_concerned).order_by(SubscriberGroup.name).limit(1))
    if group is not None:
        raise ThingInUseError(kind, name, f"a subscription of group {group!r}")


def check_event_code_or_any(event_code: str) -> str:
    """Return *event_code* if it may name an event code, or is `*`; else raise InvalidNameError."""
    return event_code if event_code == ANY_EVENT_CODE else check_event_code(event_code)


async def require_message_type(session: AsyncSession, topic: Topic, event_code: str) -> None:
    """Raise unless *event_code* is registered for *topic*, or `*`, or may still register itself (open topic)."""
    check_event_code_or_any(event_code)
    if event_code == ANY_EVENT_CODE or topic.is_open:
        return
    if await session.get(EventCode, (topic.topic_id, event_code)) is None:
        raise EventCodeNotFoundError(topic.name, event_code)
