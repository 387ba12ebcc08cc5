"""Namespaces: create, delete, list."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import sqlalchemy as sa

from confdb.models import Namespace, PublisherGroup, StressRule, SubscriberGroup, Topic
from confdb.routes import StressOperator
from confdb.services.changes import Change, Changes
from confdb.services.checks import check_after, check_description, check_page_limit
from confdb.services.lookups import get_namespace
from confdb.services.stress import describe_rule
from confdb.services.views import Changed, NamespaceView, Page, namespace_view, page_of, stress_rule_view
from confdb.store import ConfigStore
from msgbroker.contract import limits
from msgbroker.contract.errors import ThingAlreadyExistsError, ThingInUseError
from msgbroker.contract.names import DEFAULT_NAMESPACE, check_namespace

_USERS: Final = (("topic", Topic), ("publisher group", PublisherGroup), ("subscriber group", SubscriberGroup))


class Namespaces:
    """Registers, deletes and lists namespaces."""

    def __init__(self, store: ConfigStore, changes: Changes) -> None:
        self._store = store
        self._changes = changes

    async def create(self, name: str, *, description: str = "") -> Changed[NamespaceView]:
        """Register a namespace, with the default stress rule `x-stress-test == "true"`."""
        check_namespace(name)
        row = Namespace(name=name, description=check_description(description))
        refusals = {"namespace_name_key": ThingAlreadyExistsError("namespace", name)}
        async with self._changes.begin(refusals) as change:
            await change.add(row)
            view = namespace_view(row)
            change.record("namespace", name, name, before=None, after=view)
            rule = StressRule(
                namespace_id=row.namespace_id, header="x-stress-test", operator=StressOperator.EQUALS, value="true"
            )
            await change.add(rule)
            rule_view = stress_rule_view(name, rule)
            change.record("stress_rule", name, describe_rule(rule_view), before=None, after=rule_view)
            return Changed(view, change.version)

    async def delete(self, name: str) -> Changed[NamespaceView]:
        """Delete a namespace and its stress rules; refused while it has topics or groups, and for `default`."""
        async with self._changes.begin() as change:
            row = await get_namespace(change.session, name)
            if name == DEFAULT_NAMESPACE:
                raise ThingInUseError("namespace", name, "whoever names no namespace")
            await _require_empty(change, row)
            of_namespace = sa.select(StressRule).where(StressRule.namespace_id == row.namespace_id)
            rules = (await change.session.scalars(of_namespace)).all()
            for rule in rules:
                rule_view = stress_rule_view(name, rule)
                change.record("stress_rule", name, describe_rule(rule_view), before=rule_view, after=None)
            await change.remove(*rules)
            view = namespace_view(row)
            change.record("namespace", name, name, before=view, after=None)
            await change.remove(row)
            return Changed(view, change.version)

    async def list(self, *, after: str = "", limit: int = limits.PAGE_ITEMS_DEFAULT) -> Page[NamespaceView]:
        """Return the namespaces after the name *after*, by name."""
        check_after(after)
        wanted = sa.select(Namespace).where(Namespace.name > after).order_by(Namespace.name)
        async with self._store.transaction() as session:
            rows = (await session.scalars(wanted.limit(check_page_limit(limit)))).all()
        return page_of(map(namespace_view, rows), limit, attrgetter("name"))


async def _require_empty(change: Change, row: Namespace) -> None:
    for what, model in _USERS:
        user = await change.session.scalar(
            sa.select(model.name).where(model.namespace_id == row.namespace_id).order_by(model.name).limit(1)
        )
        if user is not None:
            raise ThingInUseError("namespace", row.name, f"{what} {user!r}")
