"""Publisher groups: create, delete, look up."""

from __future__ import annotations

from operator import attrgetter

from confdb.models import PublisherGroup
from confdb.services.changes import Changes
from confdb.services.checks import check_description
from confdb.services.lookups import get_namespace, get_publisher_group, list_named
from confdb.services.views import Changed, Page, PublisherGroupView, page_of, publisher_group_view
from confdb.store import ConfigStore
from msgbroker.contract import limits
from msgbroker.contract.errors import ThingAlreadyExistsError
from msgbroker.contract.names import check_group


class PublisherGroups:
    """Registers, deletes and lists publisher groups."""

    def __init__(self, store: ConfigStore, changes: Changes) -> None:
        self._store = store
        self._changes = changes

    async def create(self, namespace: str, name: str, *, description: str = "") -> Changed[PublisherGroupView]:
        """Register a publisher group."""
        row = PublisherGroup(name=check_group(name), description=check_description(description))
        refusals = {"publisher_group_namespace_id_name_key": ThingAlreadyExistsError("publisher group", name)}
        async with self._changes.begin(refusals) as change:
            row.namespace_id = (await get_namespace(change.session, namespace)).namespace_id
            await change.add(row)
            view = publisher_group_view(namespace, row)
            change.record("publisher_group", namespace, name, before=None, after=view)
            return Changed(view, change.version)

    async def delete(self, namespace: str, name: str) -> Changed[PublisherGroupView]:
        """Delete a publisher group."""
        async with self._changes.begin() as change:
            row = await get_publisher_group(change.session, namespace, name)
            view = publisher_group_view(namespace, row)
            change.record("publisher_group", namespace, name, before=view, after=None)
            await change.remove(row)
            return Changed(view, change.version)

    async def get(self, namespace: str, name: str) -> PublisherGroupView:
        """Return a publisher group, or raise GroupNotFoundError."""
        async with self._store.transaction() as session:
            return publisher_group_view(namespace, await get_publisher_group(session, namespace, name))

    async def list(
        self, namespace: str, *, after: str = "", limit: int = limits.PAGE_ITEMS_DEFAULT
    ) -> Page[PublisherGroupView]:
        """Return the publisher groups after the name *after*, by name."""
        async with self._store.transaction() as session:
            rows = await list_named(session, PublisherGroup, namespace, after=after, limit=limit)
        return page_of((publisher_group_view(namespace, row) for row in rows), limit, attrgetter("name"))
