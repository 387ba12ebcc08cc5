"""Subscriptions: create, change, delete, list.

A new one starts at the tails of the topic's queues. They are read before the subscription commits: what is published
once a broker routes by it lies behind them and is delivered; what was stored before lies in front of them and is not.
One from the beginning is for groups that have no place on the topic yet: a cursor does not go back. Until brokers know
of it, its beginning is kept for it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final, Protocol
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession

from confdb.expressions.cost_limits import check_expression
from confdb.features import Feature
from confdb.models import SubscriberGroup, Subscription, Topic
from confdb.routes import SubscriptionMode
from confdb.services.changes import Change, Changes
from confdb.services.checks import check_after, check_page_limit
from confdb.services.feature_checks import FeatureChecks
from confdb.services.lookups import (
    check_event_code_or_any,
    get_namespace,
    get_subscriber_group,
    get_topic,
    require_message_type,
)
from confdb.services.views import Changed, Page, SubscriptionView, page_of, subscription_view
from confdb.store import ConfigStore
from msgbroker.contract import limits
from msgbroker.contract.errors import (
    BeginningPassedError,
    InvalidSettingError,
    LimitReachedError,
    SubscriptionNotFoundError,
    ThingAlreadyExistsError,
    TopicNotFoundError,
)

_NAMED: Final = (
    sa.select(Subscription, SubscriberGroup.name.label("group"), Topic.name.label("topic"))
    .join(SubscriberGroup, SubscriberGroup.group_id == Subscription.group_id)
    .join(Topic, Topic.topic_id == Subscription.topic_id)
)


class QueueTails(Protocol):
    """What a change needs of msgdb: where queues end, who has read them, who delivers, and the mark of its version."""

    async def tails(self, topic_id: int, generation: int, queue_count: int) -> dict[int, int]:
        """Return the next offset by queue_id, for all generations; makes the queues that are missing."""

    async def has_cursor(self, group_id: int, topic_id: int) -> bool:
        """Return whether the group has a place on any queue of the topic."""

    async def keep_beginning(
        self, group_id: int, topic_id: int, generation: int, queue_count: int, version: int
    ) -> bool:
        """Keep the start of the topic for the group until brokers know *version*; False: the group has a place."""

    async def lane_owners(self) -> set[UUID]:
        """Return the brokers that hold lanes at the moment, whether or not the registry hears of them."""

    async def config_mark(self) -> tuple[UUID, int]:
        """Return the mark, an era and a version: brokers that are cut off from confdb go on by no older version."""

    async def raise_config_mark(self, version: int, lost: tuple[UUID, int] | None) -> None:
        """Raise the mark to *version*; *lost*: the mark as it is, if it is of versions that confdb has lost."""


class Subscriptions:
    """Registers, deletes and lists subscriptions: which group wants which message types."""

    def __init__(self, store: ConfigStore, changes: Changes, tails: QueueTails | None, features: FeatureChecks) -> None:
        self._features = features
        self._store = store
        self._changes = changes
        self._tails = tails

    async def create(
        self,
        namespace: str,
        group: str,
        topic: str,
        event_code: str,
        *,
        expression: str | None = None,
        from_beginning: bool = False,
    ) -> Changed[SubscriptionView]:
        """Subscribe a group to a message type (`*`: to every event code of the topic).

        With an *expression* it is a HEADER subscription, else a DIRECT one. It delivers what is published from now on,
        or with *from_beginning* what is stored, too, which only a group can that has not read the topic yet: else it
        raises BeginningPassedError. An expression that costs too much raises ExpressionTooCostlyError; of one that may
        not mean what it says, `confdb.expressions.compiled.warnings_about` tells.
        `ConfigService.wait_until_active` tells when brokers know it.
        """
        if expression is not None:
            check_expression(expression)
        topic_id, start_offsets = await self._start(namespace, group, topic, event_code, from_beginning=from_beginning)
        name = describe_subscription(group, topic, event_code)
        refusals = {
            "subscription_group_id_topic_id_event_code_key": ThingAlreadyExistsError("subscription", name),
        }
        async with self._changes.begin(refusals) as change:
            topic_row, group_id = await _require_subscribable(change.session, namespace, group, topic, event_code)
            if topic_row.topic_id != topic_id:
                # Deleted and created again meanwhile: the offsets are of the queues of the one that is gone.
                raise TopicNotFoundError(namespace, topic)
            row = Subscription(
                group_id=group_id,
                topic_id=topic_id,
                event_code=event_code,
                mode=SubscriptionMode.DIRECT if expression is None else SubscriptionMode.HEADER,
                expression=expression,
                start_offsets={str(queue_id): offset for queue_id, offset in start_offsets.items()},
            )
            await change.add(row)
            await _require_within_limit(change.session, group_id, group)
            view = subscription_view(namespace, group, topic, row)
            change.record("subscription", namespace, name, before=None, after=view)
            if from_beginning:
                await self._keep_beginning(change, group, topic_row, group_id)
            return Changed(view, change.version)

    async def update(
        self,
        namespace: str,
        group: str,
        topic: str,
        event_code: str,
        *,
        mode: SubscriptionMode | None = None,
        expression: str | None = None,
        paused: bool | None = None,
    ) -> Changed[SubscriptionView]:
        """Change what is given of a subscription; the group keeps its place on the topic.

        An *expression* makes it a HEADER subscription, the *mode* DIRECT takes its expression away. Either holds for
        what brokers read from then on; what they have read stays selected, or not, as it was. What a *paused* one
        wants, and no other subscription of the group, waits until it goes on.

        Raises SubscriptionNotFoundError, ExpressionTooCostlyError, and FeatureNotEverywhereError while a broker runs
        that would deliver for a paused one.
        """
        if expression is not None:
            check_expression(expression)
        if (mode is SubscriptionMode.DIRECT and expression is not None) or (
            mode is SubscriptionMode.HEADER and expression is None
        ):
            raise InvalidSettingError("mode", "is HEADER with an expression, and DIRECT without")
        permission = await self._features.ask_for([Feature.SUBSCRIPTION_PAUSED] if paused else [])
        async with self._changes.begin() as change:
            await permission.check(change)
            row = await _get_row(change.session, namespace, group, topic, event_code)
            before = subscription_view(namespace, group, topic, row)
            if expression is not None or mode is not None:
                row.expression = expression
                row.mode = SubscriptionMode.DIRECT if expression is None else SubscriptionMode.HEADER
            if paused is not None:
                row.paused = paused
                others = [feature for feature in row.requires if feature != Feature.SUBSCRIPTION_PAUSED]
                row.requires = [*others, Feature.SUBSCRIPTION_PAUSED] if paused else others
            after = subscription_view(namespace, group, topic, row)
            name = describe_subscription(group, topic, event_code)
            change.record("subscription", namespace, name, before=before, after=after)
            return Changed(after, change.version)

    async def delete(self, namespace: str, group: str, topic: str, event_code: str) -> Changed[SubscriptionView]:
        """Unsubscribe a group from a message type."""
        async with self._changes.begin() as change:
            group_id = (await get_subscriber_group(change.session, namespace, group)).group_id
            topic_id = (await get_topic(change.session, namespace, topic)).topic_id
            is_wanted = sa.and_(
                Subscription.group_id == group_id,
                Subscription.topic_id == topic_id,
                Subscription.event_code == check_event_code_or_any(event_code),
            )
            removed = await remove_subscriptions(change, namespace, is_wanted)
            if not removed:
                raise SubscriptionNotFoundError(group, topic, event_code)
            return Changed(removed[0], change.version)

    async def get(self, namespace: str, group: str, topic: str, event_code: str) -> SubscriptionView:
        """Return a subscription, or raise SubscriptionNotFoundError."""
        async with self._store.transaction() as session:
            row = await _get_row(session, namespace, group, topic, event_code)
            return subscription_view(namespace, group, topic, row)

    async def list(
        self,
        namespace: str,
        *,
        group: str | None = None,
        topic: str | None = None,
        after: int = 0,
        limit: int = limits.PAGE_ITEMS_DEFAULT,
    ) -> Page[SubscriptionView]:
        """Return the subscriptions after the id *after*, by id; of one group or to one topic, if given."""
        check_after(after)
        async with self._store.transaction() as session:
            namespace_id = (await get_namespace(session, namespace)).namespace_id
            wanted = _NAMED.where(SubscriberGroup.namespace_id == namespace_id, Subscription.subscription_id > after)
            if group is not None:
                wanted = wanted.where(
                    Subscription.group_id == (await get_subscriber_group(session, namespace, group)).group_id
                )
            if topic is not None:
                wanted = wanted.where(Subscription.topic_id == (await get_topic(session, namespace, topic)).topic_id)
            wanted = wanted.order_by(Subscription.subscription_id).limit(check_page_limit(limit))
            rows = (await session.execute(wanted)).all()
        items = (subscription_view(namespace, names.group, names.topic, names.Subscription) for names in rows)
        return page_of(items, limit, attrgetter("subscription_id"))

    async def _start(
        self, namespace: str, group: str, topic: str, event_code: str, *, from_beginning: bool
    ) -> tuple[int, dict[int, int]]:
        # Outside of the change: no lock is held while another database is asked. Queues that a new generation adds in
        # between are not named, and so start at 0.
        async with self._store.transaction() as session:
            row, group_id = await _require_subscribable(session, namespace, group, topic, event_code)
            is_repeat = await _exists(session, group_id, row.topic_id, event_code)
        if self._tails is None:
            raise ValueError("a subscription needs to know what is in the queues: give ConfigService a QueueTails")
        if from_beginning:
            # A repeat is refused as such, by the change itself.
            if not is_repeat and await self._tails.has_cursor(group_id, row.topic_id):
                raise BeginningPassedError(group, topic)
            return row.topic_id, {}
        return row.topic_id, await self._tails.tails(row.topic_id, row.generation, row.queue_count)

    async def _keep_beginning(self, change: Change, group: str, topic: Topic, group_id: int) -> None:
        """Let no broker make the group a place on the topic that does not know the subscription yet.

        Inside of the change, and as its last act, though another database is asked: the beginning is kept for this very
        version, and of two changes the later one keeps it. It waits for nobody but who makes these cursors.
        """
        assert self._tails is not None, "asked before the change"
        if not await self._tails.keep_beginning(
            group_id, topic.topic_id, topic.generation, topic.queue_count, change.version
        ):
            raise BeginningPassedError(group, topic.name)


def describe_subscription(group: str, topic: str, event_code: str) -> str:
    """Return how the audit trail calls a subscription."""
    return f"{group} {topic}/{event_code}"


async def remove_subscriptions(change: Change, namespace: str, which: sa.ColumnElement[bool]) -> list[SubscriptionView]:
    """Delete *which* subscriptions in *change*, each with its own audit row, and return what they were."""
    removed = []
    found = (await change.session.execute(_NAMED.where(which).order_by(Subscription.subscription_id))).all()
    for names in found:
        view = subscription_view(namespace, names.group, names.topic, names.Subscription)
        name = describe_subscription(view.group, view.topic, view.event_code)
        change.record("subscription", namespace, name, before=view, after=None)
        removed.append(view)
    await change.remove(*(names.Subscription for names in found))
    return removed


async def _get_row(session: AsyncSession, namespace: str, group: str, topic: str, event_code: str) -> Subscription:
    """Return the row of a subscription, or raise SubscriptionNotFoundError."""
    wanted = sa.select(Subscription).where(
        Subscription.group_id == (await get_subscriber_group(session, namespace, group)).group_id,
        Subscription.topic_id == (await get_topic(session, namespace, topic)).topic_id,
        Subscription.event_code == check_event_code_or_any(event_code),
    )
    row = (await session.scalars(wanted)).one_or_none()
    if row is None:
        raise SubscriptionNotFoundError(group, topic, event_code)
    return row


async def _require_subscribable(
    session: AsyncSession, namespace: str, group: str, topic: str, event_code: str
) -> tuple[Topic, int]:
    group_id = (await get_subscriber_group(session, namespace, group)).group_id
    row = await get_topic(session, namespace, topic)
    await require_message_type(session, row, event_code)
    return row, group_id


async def _exists(session: AsyncSession, group_id: int, topic_id: int, event_code: str) -> bool:
    wanted = sa.select(Subscription.subscription_id).where(
        Subscription.group_id == group_id, Subscription.topic_id == topic_id, Subscription.event_code == event_code
    )
    return await session.scalar(wanted) is not None


async def _require_within_limit(session: AsyncSession, group_id: int, group: str) -> None:
    # With the new one: a repeat in a full group was refused as a repeat before.
    of_group = sa.select(sa.func.count()).select_from(Subscription).where(Subscription.group_id == group_id)
    if (await session.scalar(of_group) or 0) > limits.SUBSCRIPTIONS_PER_GROUP_MAX:
        raise LimitReachedError("subscriptions", f"group {group!r}", limits.SUBSCRIPTIONS_PER_GROUP_MAX)
