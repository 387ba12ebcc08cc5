"""Run one act of the configuration's service layer for a command, and print what came of it."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import typer

from confdb.services import Changed, ConfigService, Page, WantedChanges
from confdb.services.checks import check_text
from msgbroker.contract import limits
from msgbroker.contract.errors import StoreUnavailableError, SubscriptionNotActiveError
from msgconsole.cli.carrying_out.acting import open_stores
from msgconsole.cli.carrying_out.if_not_exists import Existing, create_or_get
from msgconsole.cli.printing.output import plain, print_json, print_line
from msgconsole.cli.typed.options import require_reason
from msgconsole.local import places
from msgconsole.local.databases import open_config_store
from msgconsole.operations.configuration.deletions import DeletedBy
from msgconsole.operations.stores import Stores

ThingT = TypeVar("ThingT")
AfterT = TypeVar("AfterT", str, int)


def look_up(act: Callable[[ConfigService], Awaitable[ThingT]]) -> ThingT:
    """Open the configuration's service, and return what *act* finds in it."""

    async def run() -> ThingT:
        async with open_service() as service:
            return await act(service)

    return asyncio.run(run())


def check_known(namespace: str | None) -> None:
    """Refuse a namespace that neither is registered nor was: of a misspelt one, "there is none" would be believed."""
    if namespace is not None:
        look_up(lambda service: service.audit.list(WantedChanges(namespace=namespace), limit=1))


def look_up_all(
    list_page: Callable[[ConfigService, AfterT, int], Awaitable[Page[ThingT]]], first: AfterT, count_max: int
) -> list[ThingT]:
    """Return up to *count_max* things, page by page; say so if there are more. *list_page* takes after and limit."""

    async def collect(service: ConfigService) -> list[ThingT]:
        found: list[ThingT] = []
        after: AfterT | str | int | None = first
        while after is not None and len(found) < count_max:
            limit = min(limits.PAGE_ITEMS_MAX, count_max - len(found))
            page = await list_page(service, after, limit)  # type: ignore[arg-type]
            found.extend(page.items)
            after = page.next_after
        if after is not None:
            typer.echo(f"Only the first {count_max}: there may be more (--limit).", err=True)
        return found

    return look_up(collect)


def change(
    act: Callable[[ConfigService], Awaitable[Changed[ThingT]]],
    said: Callable[[ThingT], str],
    *,
    as_json: bool,
    wait: bool = True,
    existing: Existing[ThingT] | None = None,
    reason: str | None = None,
) -> None:
    """Carry out *act*, print what it made, and (with *wait*) return once every live broker routes by it.

    With *existing*, what is there already will do. *reason* is why, for the audit trail.
    """

    async def run() -> None:
        # Who waits asks the message store, too, which brokers serve by what they know.
        async with open_service_with_tails(reason) if wait else open_service(reason) as service:
            changed, is_new = await create_or_get(service, act, existing)
            if as_json:
                created = {} if existing is None else {"created": is_new}
                print_json(plain(changed.thing) | {"config_version": changed.version} | created)
            else:
                print_line(said(changed.thing) if is_new or existing is None else existing.sentence)
            if wait:
                await _wait_until_routed(service, changed.version)

    asyncio.run(run())


def carry_out(
    operation: Callable[[Stores], Awaitable[Changed[ThingT]]],
    said: Callable[[ThingT], str],
    *,
    as_json: bool,
    wait: bool = True,
) -> None:
    """Carry out a change that asks the message store as well, print it, and wait for it, as `change` does."""

    async def run() -> None:
        async with open_stores() as stores:
            changed = await operation(stores)
            if as_json:
                print_json(plain(changed.thing) | {"config_version": changed.version})
            else:
                print_line(said(changed.thing))
            if wait:
                await _wait_until_routed(stores.service(actor()), changed.version)

    asyncio.run(run())


@asynccontextmanager
async def open_service(reason: str | None = None) -> AsyncIterator[ConfigService]:
    """Give the service layer, acting for the system's user."""
    async with open_config_store(places.confdb_url()) as store:
        yield ConfigService(store, actor(), reason=reason or "")


@asynccontextmanager
async def open_service_with_tails(reason: str | None = None) -> AsyncIterator[ConfigService]:
    """Give a service layer that can also begin subscriptions: it asks the message store where the queues end."""
    async with open_stores() as stores:
        yield stores.service(actor(), reason or "")


def actor() -> str:
    """Return who is at the keyboard, for the audit trail."""
    return f"cli:{getpass.getuser()}"[: limits.ACTOR_CHARS_MAX]


def check_reason(reason: str | None) -> None:
    """Refuse a reason that the audit trail does not take, in a dry run as well. Raises InvalidSettingError."""
    check_text("reason", (reason or "").strip(), limits.REASON_CHARS_MAX)


def deleted_by(reason: str | None, *, force: bool) -> DeletedBy:
    """Return who is at the keyboard and why, as a deletion takes it; refuse one by force without a reason."""
    check_reason(reason)
    return DeletedBy(actor(), require_reason(reason, dry_run=False) if force else reason or "", force)


async def _wait_until_routed(service: ConfigService, version: int) -> None:
    try:
        await service.wait_until_active(version)
    except SubscriptionNotActiveError as error:
        # The change itself stands: say who lags, and do not fail.
        typer.echo(f"Not everywhere yet: waiting for {error.waiting_for}.", err=True)
    except StoreUnavailableError as error:
        typer.echo(f"Perhaps not everywhere yet: {error.message}.", err=True)
