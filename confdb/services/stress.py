"""Stress traffic: the rules that mark it, and the whitelist of the groups that may be handed it."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import sqlalchemy as sa

from confdb.features import Aspect
from confdb.models import StressRule, StressWhitelist, SubscriberGroup, Topic
from confdb.routes import StressOperator
from confdb.services.changes import Change, Changes
from confdb.services.checks import check_after, check_choice, check_page_limit, check_text
from confdb.services.feature_checks import FeatureChecks
from confdb.services.lookups import (
    check_event_code_or_any,
    get_namespace,
    get_subscriber_group,
    get_topic,
    require_message_type,
)
from confdb.services.views import (
    Changed,
    Page,
    StressRuleView,
    WhitelistView,
    page_of,
    stress_rule_view,
    whitelist_view,
)
from confdb.store import ConfigStore
from msgbroker.contract import limits
from msgbroker.contract.errors import (
    InvalidSettingError,
    LimitReachedError,
    ThingAlreadyExistsError,
    ThingNotFoundError,
)

_NAMED: Final = (
    sa.select(StressWhitelist, SubscriberGroup.name.label("group"), Topic.name.label("topic"))
    .join(SubscriberGroup, SubscriberGroup.group_id == StressWhitelist.group_id)
    .join(Topic, Topic.topic_id == StressWhitelist.topic_id)
)


class Stress:
    """Registers and deletes the stress rules and the whitelist of all namespaces."""

    def __init__(self, store: ConfigStore, changes: Changes, features: FeatureChecks) -> None:
        self._store = store
        self._changes = changes
        self._features = features

    async def add_rule(
        self, namespace: str, header: str, operator: StressOperator = StressOperator.EQUALS, value: str = ""
    ) -> Changed[StressRuleView]:
        """Mark messages of a namespace whose *header* satisfies the rule as stress traffic, from now on."""
        operator = _check_rule(header, operator, value)
        row = StressRule(header=header, operator=operator, value=value)
        name = _rule_name(header, operator, value)
        refusals = {
            "stress_rule_namespace_id_header_operator_value_key": ThingAlreadyExistsError("stress rule", name),
        }
        permission = await self._features.ask((Aspect.STRESS_OPERATOR, operator))
        async with self._changes.begin(refusals) as change:
            await permission.check(change)
            row.namespace_id = (await get_namespace(change.session, namespace)).namespace_id
            await change.add(row)
            await _require_within_limit(change, row.namespace_id, namespace)
            view = stress_rule_view(namespace, row)
            change.record("stress_rule", namespace, name, before=None, after=view)
            return Changed(view, change.version)

    async def remove_rule(
        self, namespace: str, header: str, operator: StressOperator = StressOperator.EQUALS, value: str = ""
    ) -> Changed[StressRuleView]:
        """Remove a rule; messages that were marked by it stay marked."""
        operator = _check_rule(header, operator, value)
        name = _rule_name(header, operator, value)
        async with self._changes.begin() as change:
            namespace_id = (await get_namespace(change.session, namespace)).namespace_id
            is_wanted = (StressRule.namespace_id == namespace_id, StressRule.header == header)
            is_same = (StressRule.operator == operator, StressRule.value == value)
            row = await change.session.scalar(sa.select(StressRule).where(*is_wanted, *is_same))
            if row is None:
                raise ThingNotFoundError("stress rule", name)
            view = stress_rule_view(namespace, row)
            change.record("stress_rule", namespace, name, before=view, after=None)
            await change.remove(row)
            return Changed(view, change.version)

    async def list_rules(self, namespace: str) -> Page[StressRuleView]:
        """Return all rules of a namespace, the oldest first."""
        async with self._store.transaction() as session:
            namespace_id = (await get_namespace(session, namespace)).namespace_id
            wanted = sa.select(StressRule).where(StressRule.namespace_id == namespace_id)
            rows = (await session.scalars(wanted.order_by(StressRule.stress_rule_id))).all()
        return Page(tuple(stress_rule_view(namespace, row) for row in rows))

    async def allow(self, namespace: str, group: str, topic: str, event_code: str) -> Changed[WhitelistView]:
        """Let a group be handed stress messages of a message type (`*`: of the whole topic)."""
        name = _whitelist_name(group, topic, event_code)
        refusals = {
            "stress_whitelist_group_id_topic_id_event_code_key": ThingAlreadyExistsError("whitelist entry", name),
        }
        async with self._changes.begin(refusals) as change:
            group_id = (await get_subscriber_group(change.session, namespace, group)).group_id
            topic_row = await get_topic(change.session, namespace, topic)
            await require_message_type(change.session, topic_row, event_code)
            row = StressWhitelist(group_id=group_id, topic_id=topic_row.topic_id, event_code=event_code)
            await change.add(row)
            view = whitelist_view(namespace, group, topic, row)
            change.record("stress_whitelist", namespace, name, before=None, after=view)
            return Changed(view, change.version)

    async def disallow(self, namespace: str, group: str, topic: str, event_code: str) -> Changed[WhitelistView]:
        """Take a group off the whitelist of a message type: brokers hand it no further stress message of it."""
        async with self._changes.begin() as change:
            group_id = (await get_subscriber_group(change.session, namespace, group)).group_id
            topic_id = (await get_topic(change.session, namespace, topic)).topic_id
            is_wanted = sa.and_(
                StressWhitelist.group_id == group_id,
                StressWhitelist.topic_id == topic_id,
                StressWhitelist.event_code == check_event_code_or_any(event_code),
            )
            removed = await remove_whitelisted(change, namespace, is_wanted)
            if not removed:
                raise ThingNotFoundError("whitelist entry", _whitelist_name(group, topic, event_code))
            return Changed(removed[0], change.version)

    async def list_whitelist(
        self, namespace: str, *, group: str | None = None, after: int = 0, limit: int = limits.PAGE_ITEMS_DEFAULT
    ) -> Page[WhitelistView]:
        """Return the whitelist after the id *after*, by id; of one group, if given."""
        check_after(after)
        async with self._store.transaction() as session:
            namespace_id = (await get_namespace(session, namespace)).namespace_id
            is_wanted = SubscriberGroup.namespace_id == namespace_id
            wanted = _NAMED.where(is_wanted, StressWhitelist.stress_whitelist_id > after)
            if group is not None:
                wanted = wanted.where(
                    StressWhitelist.group_id == (await get_subscriber_group(session, namespace, group)).group_id
                )
            wanted = wanted.order_by(StressWhitelist.stress_whitelist_id).limit(check_page_limit(limit))
            rows = (await session.execute(wanted)).all()
        items = (whitelist_view(namespace, names.group, names.topic, names.StressWhitelist) for names in rows)
        return page_of(items, limit, attrgetter("stress_whitelist_id"))


def describe_rule(view: StressRuleView) -> str:
    """Return how the audit trail calls a rule."""
    return _rule_name(view.header, view.operator, view.value)


async def remove_whitelisted(change: Change, namespace: str, which: sa.ColumnElement[bool]) -> list[WhitelistView]:
    """Delete *which* whitelist entries in *change*, each with its own audit row, and return what they were.

    The audit of stress leaks asks who was on the whitelist when: an entry never goes without a trace.
    """
    removed = []
    found = (await change.session.execute(_NAMED.where(which))).all()
    for names in found:
        view = whitelist_view(namespace, names.group, names.topic, names.StressWhitelist)
        name = _whitelist_name(view.group, view.topic, view.event_code)
        change.record("stress_whitelist", namespace, name, before=view, after=None)
        removed.append(view)
    await change.remove(*(names.StressWhitelist for names in found))
    return removed


def _check_rule(header: str, operator: str, value: str) -> StressOperator:
    if not header:
        raise InvalidSettingError("header", "is empty")
    check_text("header", header, limits.HEADERS_BYTES_MAX)
    check_text("value", value, limits.HEADERS_BYTES_MAX)
    chosen = check_choice("operator", StressOperator, operator)
    if chosen is StressOperator.EXISTS and value:
        raise InvalidSettingError("value", "is given, but EXISTS compares with none")
    if chosen is StressOperator.PREFIX and not value:
        raise InvalidSettingError("value", "is empty: every value has that prefix; use EXISTS")
    return chosen


def _rule_name(header: str, operator: str, value: str) -> str:
    return f"{header} {operator} {value}".rstrip()


def _whitelist_name(group: str, topic: str, event_code: str) -> str:
    return f"{group} {topic}/{event_code}"


async def _require_within_limit(change: Change, namespace_id: int, namespace: str) -> None:
    # With the new one: a repeat in a full namespace was refused as a repeat before.
    of_namespace = sa.select(sa.func.count()).select_from(StressRule).where(StressRule.namespace_id == namespace_id)
    if (await change.session.scalar(of_namespace) or 0) > limits.STRESS_RULES_PER_NAMESPACE_MAX:
        owner = f"namespace {namespace!r}"
        raise LimitReachedError("stress rules", owner, limits.STRESS_RULES_PER_NAMESPACE_MAX)
