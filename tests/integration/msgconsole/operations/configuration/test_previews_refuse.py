"""A dry run of a change is refused exactly where the change is, with the same words; and it writes nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import psycopg
import pytest

from confdb import features
from confdb.brokers import BrokerRegistry
from confdb.routes import StressOperator, SubscriptionMode
from confdb.services import ConfigService
from confdb.snapshot import load_snapshot
from confdb.store import ConfigStore
from msgbroker.contract.errors import LookTooLongError, MessageCenterError
from msgconsole.operations.configuration.group_preview import preview_group_update
from msgconsole.operations.configuration.newest import NamedType
from msgconsole.operations.configuration.rule_preview import preview_rule
from msgconsole.operations.configuration.stress_preview import preview_whitelist
from msgconsole.operations.configuration.subscribing import WantedSubscription, register
from msgconsole.operations.configuration.subscription_preview import (
    preview_subscribe,
    preview_subscription_update,
    preview_unsubscribe,
)
from msgconsole.operations.configuration.topic_preview import preview_topic_update
from msgconsole.operations.stores import Stores
from msgdb.lanes.leases import claim
from msgdb.lanes.records import LaneToClaim
from msgdb.store import MessageStore
from tests.integration.msgconsole.operations.configuration.test_archive_switch import beat_of
from tests.support.registry import age
from tests.support.rows import OWNER

COSTLY = "headers.exists(a, headers.exists(b, a == b))"
EXPRESSIONS = (None, 'headers.region == "hz"', 'headers.region != "sh"', "headers.region", "headers.", COSTLY, "", "\0")
GROUPS = ("SG_A", "SG_B", "SG_NOBODY", "no name!")
TOPICS = ("TP_TRADE", "TP_OPEN", "TP_NOTHING")
CODES = ("EC_PAID", "EC_NEW", "*", "no code!")

Outcome = tuple[type, str] | None


class Attempt(NamedTuple):
    """A change, and its dry run."""

    reason: str
    dry_run: Callable[[], Awaitable[object]]
    change: Callable[[ConfigService], Awaitable[object]]


@pytest.fixture
async def stores(database_url: str) -> AsyncIterator[Stores]:
    async with ConfigStore.open(database_url) as config, MessageStore.open(database_url, pool_size=2) as messages:
        yield Stores(config, messages)


@pytest.fixture
async def config(stores: Stores) -> ConfigService:
    """Return the services once two topics and two groups are registered; one has read a topic."""
    config = stores.service("ada")
    await config.topics.create("default", "TP_TRADE")
    await config.event_codes.add("default", "TP_TRADE", "EC_PAID")
    await config.topics.create("default", "TP_OPEN", is_open=True)
    for group in ("SG_A", "SG_B"):
        await config.subscriber_groups.create("default", group)
    made = (await config.subscriptions.create("default", "SG_A", "TP_TRADE", "EC_PAID")).thing
    group_id = (await config.subscriber_groups.get("default", "SG_A")).group_id
    async with stores.messages.transaction() as conn:
        await claim(conn, OWNER, [LaneToClaim(group_id, "", queue_id, 0) for queue_id in made.start_offsets], 0.0)
    return config


class Chance:
    """What somebody may type, by chance."""

    def __init__(self, seed: int, stores: Stores) -> None:
        self._random = random.Random(seed)
        self._stores = stores

    def one_of(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def change(self) -> tuple[str, Attempt]:
        """Return one change and what it is."""
        kind = self.one_of("update", "update", "create", "delete", "group", "topic", "whitelist", "rule")
        return kind, getattr(self, f"_{kind}")()

    @property
    def _reason(self) -> str:
        return str(self.one_of("", "", "why", "x" * 5_000))

    def _asked(self) -> NamedType:
        return NamedType(
            self.one_of("default", "default", "default", "nowhere"),
            self.one_of("SG_A", "SG_A", *GROUPS),
            self.one_of("TP_TRADE", "TP_TRADE", *TOPICS),
            self.one_of("EC_PAID", "EC_PAID", *CODES),
        )

    def _update(self) -> Attempt:
        asked, reason = self._asked(), self._reason
        wanted = {
            "mode": self.one_of(None, None, SubscriptionMode.DIRECT, SubscriptionMode.HEADER),
            "expression": self.one_of(*EXPRESSIONS),
            "paused": self.one_of(None, True, False),
        }
        return Attempt(
            reason,
            lambda: preview_subscription_update(self._stores, asked, reason=reason, **wanted),
            lambda service: service.subscriptions.update(*asked, **wanted),
        )

    def _create(self) -> Attempt:
        namespace, group, topic, code = self._asked()
        wanted = WantedSubscription(
            namespace=namespace,
            group=group,
            topic=topic,
            event_code=code,
            expression=self.one_of(*EXPRESSIONS),
            from_beginning=self.one_of(True, False),
        )
        reason = self._reason
        return Attempt(
            reason,
            lambda: preview_subscribe(self._stores, wanted, reason=reason),
            lambda service: register(service, wanted),
        )

    def _delete(self) -> Attempt:
        asked, reason = self._asked(), self._reason
        return Attempt(
            reason,
            lambda: preview_unsubscribe(self._stores, asked, reason=reason),
            lambda service: service.subscriptions.delete(*asked),
        )

    def _group(self) -> Attempt:
        asked, reason = self._asked(), self._reason
        settings = self._some(
            ack_timeout_seconds=(5.0, 60.0, -1.0, 1e9, float("nan")),
            handle_seconds_max=(0.0, 600.0, 1e12),
            retry_schedule_seconds=((), (1.0, 2.0), (-1.0,), (1.0,) * 1_000),
            attempts_max=(1, 5, 0, 10_000),
            unsettled_max=(1, 100, 0, 10**9),
            paused=(True, False),
            description=("for people", "x" * 100_000, "\0"),
        )
        return Attempt(
            reason,
            lambda: preview_group_update(self._stores, asked.namespace, asked.group, reason=reason, **settings),
            lambda service: service.subscriber_groups.update(asked.namespace, asked.group, **settings),
        )

    def _topic(self) -> Attempt:
        asked, reason = self._asked(), self._reason
        settings = self._some(
            queue_count=(4, 8, 1, 10**6),
            body_bytes_max=(1, 8_192, 0, 10**9),
            is_open=(True, False),
            is_closed=(True, False),
            stress_refused=(True, False),
            trace_rate=(0.0, 1.0, 2.0),
            description=("for people", "x" * 100_000),
        )
        return Attempt(
            reason,
            lambda: preview_topic_update(self._stores, asked.namespace, asked.topic, reason=reason, **settings),
            lambda service: service.topics.update(asked.namespace, asked.topic, **settings),
        )

    def _whitelist(self) -> Attempt:
        asked, reason, allowed = self._asked(), self._reason, self.one_of(True, False)
        return Attempt(
            reason,
            lambda: preview_whitelist(self._stores, asked, allowed=allowed, reason=reason),
            lambda service: (service.stress.allow if allowed else service.stress.disallow)(*asked),
        )

    def _rule(self) -> Attempt:
        namespace, reason, added = self.one_of("default", "nowhere"), self._reason, self.one_of(True, False)
        rule = (self.one_of("x-load", ""), self.one_of(*StressOperator), self.one_of("", "yes"))
        return Attempt(
            reason,
            lambda: preview_rule(self._stores, namespace, *rule, added=added, reason=reason),
            lambda service: (service.stress.add_rule if added else service.stress.remove_rule)(namespace, *rule),
        )

    def _some(self, **choices: tuple[Any, ...]) -> dict[str, Any]:
        return {name: self.one_of(*values) for name, values in choices.items() if self._random.random() < 0.4}


async def outcome_of(attempt: Callable[[], Awaitable[object]]) -> Outcome:
    try:
        await attempt()
    except MessageCenterError as error:
        return type(error), error.message
    return None


async def made(stores: Stores, attempt: Attempt) -> None:
    await attempt.change(stores.service("ada", attempt.reason))


def contents(url: str) -> dict[str, str]:
    """Return what is in each table, as a digest."""
    with psycopg.connect(url) as connection:
        names = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchall()
        digest = "SELECT coalesce(md5(string_agg(t::text, '|' ORDER BY t::text)), '') FROM \"{}\" t"
        return {name: str(connection.execute(digest.format(name)).fetchone()) for (name,) in names}


@pytest.mark.parametrize("seed", range(8))
async def test_a_dry_run_is_refused_exactly_where_the_change_is_and_writes_nothing(
    seed: int, stores: Stores, config: ConfigService, database_url: str
) -> None:
    if seed % 2:
        # A broker of an earlier version: what it does not understand is refused.
        old = frozenset(features.UNDERSTOOD) - {features.Feature.SUBSCRIPTION_PAUSED, features.Feature.JOBS}
        beat = beat_of(1, old)
        await BrokerRegistry(stores.config).beat(beat)
        # Nobody waits for its answers; it counts as running.
        age(database_url, beat.broker_id, 30)
    chance = Chance(seed, stores)
    refused = 0
    for _ in range(40):
        kind, attempt = chance.change()
        before = contents(database_url)

        foretold = await outcome_of(attempt.dry_run)

        assert contents(database_url) == before, kind
        assert foretold == await outcome_of(partial(made, stores, attempt)), kind
        refused += foretold is not None
    assert 0 < refused < 40


async def test_a_dry_run_after_a_promotion_skips_no_ids(
    stores: Stores, config: ConfigService, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE config_version SET timeline = 'another/00000001'")

    def given_out() -> dict[str, int]:
        with psycopg.connect(database_url) as connection:
            rows = connection.execute("SELECT sequencename, last_value FROM pg_sequences").fetchall()
        # The audit row of a rehearsal has a number, as each row that is undone.
        return {name: value for name, value in rows if name != "audit_entry_audit_id_seq"}

    before = given_out()
    asked = NamedType("default", "SG_A", "TP_TRADE", "EC_PAID")

    await preview_subscription_update(stores, asked, paused=True)

    assert given_out() == before
    await config.subscriptions.update(*asked, paused=True)
    assert given_out()["topic_topic_id_seq"] > before["topic_topic_id_seq"] + 100_000 - 1


async def test_what_changes_nothing_is_said_to_change_nothing(stores: Stores, config: ConfigService) -> None:
    await config.subscriptions.update("default", "SG_A", "TP_TRADE", "EC_PAID", expression='headers.region == "hz"')
    asked = NamedType("default", "SG_A", "TP_TRADE", "EC_PAID")

    same = await preview_subscription_update(stores, asked, expression='headers.region == "hz"', paused=False)
    assert same.changes == ()
    assert (await preview_group_update(stores, "default", "SG_A", attempts_max=17, paused=False)).changes == ()
    assert (await preview_topic_update(stores, "default", "TP_TRADE", queue_count=4)).changes == ()
    other = await preview_subscription_update(stores, asked, mode=SubscriptionMode.DIRECT)
    assert [(change.field, change.before, change.after) for change in other.changes] == [
        ("mode", "HEADER", "DIRECT"),
        ("expression", 'headers.region == "hz"', None),
    ]
    assert {(change.kind, change.name) for change in other.changes} == {("subscription", "SG_A TP_TRADE/EC_PAID")}


async def test_a_look_that_takes_too_long_is_told(
    stores: Stores, config: ConfigService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msgdb.looking.spans._SEARCH", "SELECT pg_sleep(30), %(number)s, %(queue_id)s, %(at)s")
    monkeypatch.setattr("msgdb.store._LOOK", "SELECT set_config('statement_timeout', '50', true), %(milliseconds)s")
    asked = NamedType("default", "SG_A", "TP_TRADE", "EC_PAID")

    for dry_run in (
        preview_subscription_update(stores, asked, mode=SubscriptionMode.DIRECT),
        preview_whitelist(stores, asked, allowed=True),
        preview_topic_update(stores, "default", "TP_TRADE", stress_refused=True),
        preview_rule(stores, "default", "x-load", StressOperator.EXISTS, "", added=True),
    ):
        with pytest.raises(LookTooLongError):
            await dry_run


async def test_a_change_waits_for_no_dry_run_that_has_ended(stores: Stores, config: ConfigService) -> None:
    asked = NamedType("default", "SG_A", "TP_TRADE", "EC_PAID")
    before = await load_snapshot(stores.config)

    await asyncio.gather(*(preview_subscription_update(stores, asked, paused=True) for _ in range(5)))
    changed = await config.subscriptions.update(*asked, paused=True)

    assert changed.version == before.version + 1
    assert (await load_snapshot(stores.config)).groups["default", "SG_A"].subscriptions[0].paused
