"""Find what a request names, or raise the error that says which of the names is not registered."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession

from confdb.models import EventCode, Namespace, PublisherGroup, SubscriberGroup, Topic
from msgbroker.contract.errors import (
    EventCodeNotFoundError,
    GroupNotFoundError,
    NamespaceNotFoundError,
    TopicNotFoundError,
)
from msgbroker.contract.names import (
    ANY_EVENT_CODE,
    check_event_code,
    check_group,
    check_namespace,
    check_topic,
)


async def get_namespace(session: AsyncSession, name: str) -> Namespace:
    """Return the namespace."""
    check_namespace(name)
    row = await session.scalar(sa.select(Namespace).where(Namespace.name == name))
    if row is None:
        raise NamespaceNotFoundError(name)
    return row


async def get_topic(session: AsyncSession, namespace: str, name: str) -> Topic:
    """Return the topic."""
    check_topic(name)
    namespace_id = (await get_namespace(session, namespace)).namespace_id
    row = await session.scalar(sa.select(Topic).where(Topic.namespace_id == namespace_id, Topic.name == name))
    if row is None:
        raise TopicNotFoundError(namespace, name)
    return row


async def get_publisher_group(session: AsyncSession, namespace: str, name: str) -> PublisherGroup:
    """Return the publisher group."""
    check_group(name)
    namespace_id = (await get_namespace(session, namespace)).namespace_id
    is_named = (PublisherGroup.namespace_id == namespace_id, PublisherGroup.name == name)
    row = await session.scalar(sa.select(PublisherGroup).where(*is_named))
    if row is None:
        raise GroupNotFoundError(namespace, name, "publisher")
    return row


async def get_subscriber_group(session: AsyncSession, namespace: str, name: str) -> SubscriberGroup:
    """Return the subscriber group."""
    check_group(name)
    namespace_id = (await get_namespace(session, namespace)).namespace_id
    is_named = (SubscriberGroup.namespace_id == namespace_id, SubscriberGroup.name == name)
    row = await session.scalar(sa.select(SubscriberGroup).where(*is_named))
    if row is None:
        raise GroupNotFoundError(namespace, name)
    return row


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
