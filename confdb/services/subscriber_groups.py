"""Subscriber groups: create, update, delete, look up."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from operator import attrgetter

from confdb.features import Aspect, requires_with
from confdb.models import StressWhitelist, SubscriberGroup, Subscription
from confdb.routes import GroupMode, GroupOrder
from confdb.services.changes import Changes
from confdb.services.checks import check_choice, check_description
from confdb.services.feature_checks import FeatureChecks, Permission
from confdb.services.lookups import get_namespace, get_subscriber_group, list_named
from confdb.services.stress import remove_whitelisted
from confdb.services.subscriptions import remove_subscriptions
from confdb.services.views import Changed, Page, SubscriberGroupView, page_of, subscriber_group_view
from confdb.setting_bounds import (
    check_ack_timeout,
    check_attempts_max,
    check_handle_seconds_max,
    check_retry_schedule,
    check_unsettled_max,
)
from confdb.store import ConfigStore
from msgbroker.contract import limits
from msgbroker.contract.errors import ThingAlreadyExistsError
from msgbroker.contract.names import check_group


class SubscriberGroups:
    """Registers, changes, deletes and lists subscriber groups."""

    def __init__(self, store: ConfigStore, changes: Changes, features: FeatureChecks) -> None:
        self._store = store
        self._changes = changes
        self._features = features

    async def create(
        self,
        namespace: str,
        name: str,
        *,
        ack_timeout_seconds: float = limits.ACK_TIMEOUT_SECONDS_DEFAULT,
        handle_seconds_max: float = limits.HANDLE_SECONDS_DEFAULT,
        retry_schedule_seconds: Sequence[float] = limits.RETRY_SCHEDULE_SECONDS_DEFAULT,
        attempts_max: int | None = None,
        unsettled_max: int = limits.UNSETTLED_MAX_DEFAULT,
        order: GroupOrder = GroupOrder.NONE,
        mode: GroupMode = GroupMode.SHARED,
        paused: bool = False,
        description: str = "",
    ) -> Changed[SubscriberGroupView]:
        """Register a subscriber group. `attempts_max` by default: one more than the retry schedule has waits."""
        schedule = check_retry_schedule(retry_schedule_seconds)
        row = SubscriberGroup(
            name=check_group(name),
            ack_timeout_seconds=check_ack_timeout(ack_timeout_seconds),
            handle_seconds_max=check_handle_seconds_max(handle_seconds_max),
            retry_schedule_seconds=schedule,
            attempts_max=check_attempts_max(len(schedule) + 1 if attempts_max is None else attempts_max),
            unsettled_max=check_unsettled_max(unsettled_max),
            paused=paused,
            description=check_description(description),
            requires=[],
        )
        _set_order(row, order)
        _set_mode(row, mode)
        permission = await self._ask(order, mode)
        refusals = {"subscriber_group_namespace_id_name_key": ThingAlreadyExistsError("subscriber group", name)}
        async with self._changes.begin(refusals) as change:
            await permission.check(change)
            row.namespace_id = (await get_namespace(change.session, namespace)).namespace_id
            await change.add(row)
            view = subscriber_group_view(namespace, row)
            change.record("subscriber_group", namespace, name, before=None, after=view)
            return Changed(view, change.version)

    async def update(
        self,
        namespace: str,
        name: str,
        *,
        ack_timeout_seconds: float | None = None,
        handle_seconds_max: float | None = None,
        retry_schedule_seconds: Sequence[float] | None = None,
        attempts_max: int | None = None,
        unsettled_max: int | None = None,
        order: GroupOrder | None = None,
        mode: GroupMode | None = None,
        paused: bool | None = None,
        description: str | None = None,
    ) -> Changed[SubscriberGroupView]:
        """Change what is given. A new retry schedule takes `attempts_max` along if that followed the old one."""
        permission = await self._ask(order, mode)
        async with self._changes.begin() as change:
            await permission.check(change)
            row = await get_subscriber_group(change.session, namespace, name)
            before = subscriber_group_view(namespace, row)
            if retry_schedule_seconds is not None:
                _set_retry_schedule(row, check_retry_schedule(retry_schedule_seconds))
            if attempts_max is not None:
                row.attempts_max = check_attempts_max(attempts_max)
            if ack_timeout_seconds is not None:
                row.ack_timeout_seconds = check_ack_timeout(ack_timeout_seconds)
            if handle_seconds_max is not None:
                row.handle_seconds_max = check_handle_seconds_max(handle_seconds_max)
            if unsettled_max is not None:
                row.unsettled_max = check_unsettled_max(unsettled_max)
            if order is not None:
                _set_order(row, order)
            if mode is not None:
                _set_mode(row, mode)
            if paused is not None:
                row.paused = paused
            if description is not None:
                row.description = check_description(description)
            after = subscriber_group_view(namespace, row)
            change.record("subscriber_group", namespace, name, before=before, after=after)
            return Changed(after, change.version)

    async def _ask(self, order: str | None, mode: str | None) -> Permission:
        wanted: list[tuple[Aspect, StrEnum]] = []
        if order is not None:
            wanted.append((Aspect.GROUP_ORDER, check_choice("order", GroupOrder, order)))
        if mode is not None:
            wanted.append((Aspect.GROUP_MODE, check_choice("mode", GroupMode, mode)))
        return await self._features.ask(*wanted)

    async def delete(self, namespace: str, name: str) -> Changed[SubscriberGroupView]:
        """Delete a group with its subscriptions and whitelist entries. Its id is never used again."""
        async with self._changes.begin() as change:
            row = await get_subscriber_group(change.session, namespace, name)
            await remove_whitelisted(change, namespace, StressWhitelist.group_id == row.group_id)
            await remove_subscriptions(change, namespace, Subscription.group_id == row.group_id)
            view = subscriber_group_view(namespace, row)
            change.record("subscriber_group", namespace, name, before=view, after=None)
            await change.remove(row)
            return Changed(view, change.version)

    async def get(self, namespace: str, name: str) -> SubscriberGroupView:
        """Return a subscriber group, or raise GroupNotFoundError."""
        async with self._store.transaction() as session:
            return subscriber_group_view(namespace, await get_subscriber_group(session, namespace, name))

    async def list(
        self, namespace: str, *, after: str = "", limit: int = limits.PAGE_ITEMS_DEFAULT
    ) -> Page[SubscriberGroupView]:
        """Return the subscriber groups after the name *after*, by name."""
        async with self._store.transaction() as session:
            rows = await list_named(session, SubscriberGroup, namespace, after=after, limit=limit)
        return page_of((subscriber_group_view(namespace, row) for row in rows), limit, attrgetter("name"))


def _set_retry_schedule(row: SubscriberGroup, schedule: list[float]) -> None:
    if row.attempts_max == len(row.retry_schedule_seconds) + 1:
        row.attempts_max = len(schedule) + 1
    row.retry_schedule_seconds = schedule


def _set_order(row: SubscriberGroup, order: str) -> None:
    row.group_order = check_choice("order", GroupOrder, order)
    row.requires = requires_with(row.requires, Aspect.GROUP_ORDER, row.group_order)


def _set_mode(row: SubscriberGroup, mode: str) -> None:
    row.mode = check_choice("mode", GroupMode, mode)
    row.requires = requires_with(row.requires, Aspect.GROUP_MODE, row.mode)
