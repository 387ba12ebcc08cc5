"""Each change, its audit rows and the new version are one transaction."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
import sqlalchemy as sa

from confdb.models import ConfigVersion
from confdb.services import ConfigService, WantedChanges
from confdb.services.changes import Changes
from confdb.snapshot import read_version
from confdb.store import ConfigStore
from msgbroker.contract.errors import InvalidSettingError, ThingAlreadyExistsError, TopicNotFoundError


async def test_the_audit_trail_says_who_changed_what_from_what_to_what(service: ConfigService) -> None:
    created = await service.topics.create("default", "TP_TRADE", description="first")
    updated = await service.topics.update("default", "TP_TRADE", description="second", queue_count=8)
    deleted = await service.topics.delete("default", "TP_TRADE")

    deletion, update, creation = (await service.audit.list()).items

    assert {entry.actor for entry in (deletion, update, creation)} == {"operator:ann"}
    assert {(entry.namespace, entry.kind, entry.name) for entry in (deletion, update, creation)} == {
        ("default", "topic", "TP_TRADE")
    }
    assert [entry.action for entry in (creation, update, deletion)] == ["topic.create", "topic.update", "topic.delete"]
    assert [entry.config_version for entry in (creation, update, deletion)] == [
        created.version,
        updated.version,
        deleted.version,
    ]
    assert creation.before is None
    assert creation.after is not None
    assert creation.after["description"] == "first"
    assert update.before == creation.after
    assert update.after == update.before | {"description": "second", "queue_count": 8, "generation": 2}
    assert deletion.before == update.after
    assert deletion.after is None


async def test_the_audit_trail_says_why_where_that_was_said(store: ConfigStore) -> None:
    await ConfigService(store, "ann").topics.create("default", "TP_TRADE")
    because = ConfigService(store, "ann", reason=" nobody publishes to it ")
    await because.topics.delete("default", "TP_TRADE")

    assert [entry.reason for entry in (await because.audit.list()).items] == ["nobody publishes to it", ""]
    for reason in ("x" * 1_001, "\0"):
        with pytest.raises(InvalidSettingError, match="reason"):
            ConfigService(store, "ann", reason=reason)


async def test_the_audit_trail_is_read_by_page_and_by_thing(service: ConfigService) -> None:
    for name in ("a", "b", "c"):
        await service.topics.create("default", name)
    await service.publisher_groups.create("default", "a")

    first = await service.audit.list(limit=2)
    assert [(entry.kind, entry.name) for entry in first.items] == [("publisher_group", "a"), ("topic", "c")]
    assert isinstance(first.next_after, int)
    second = await service.audit.list(limit=3, after=first.next_after)
    assert [(entry.kind, entry.name) for entry in second.items] == [("topic", "b"), ("topic", "a")]
    assert second.next_after is None
    of_one = await service.audit.list(WantedChanges(namespace="default", kinds=["topic"], name="a"))
    assert [entry.action for entry in of_one.items] == ["topic.create"]


async def test_the_audit_trail_says_from_which_version_on_things_are_there(service: ConfigService) -> None:
    await service.topics.create("default", "TP_TRADE")
    await service.topics.delete("default", "TP_TRADE")
    topic = await service.topics.create("default", "TP_TRADE")
    event_code = await service.event_codes.add("default", "TP_TRADE", "EC_PAID")
    await service.topics.update("default", "TP_TRADE", description="changed, not made")

    assert await service.audit.version_with("default", [("topic", "TP_TRADE")]) == topic.version
    things = [("topic", "TP_TRADE"), ("event_code", "TP_TRADE/EC_PAID"), ("topic", "TP_NEVER")]
    assert await service.audit.version_with("default", things) == event_code.version
    assert await service.audit.version_with("default", things[2:]) == 0
    assert await service.audit.version_with("tenant", things) == 0


async def test_each_change_takes_the_next_version(store: ConfigStore, service: ConfigService) -> None:
    before = await read_version(store)

    versions = [(await service.topics.create("default", name)).version for name in ("a", "b")]

    assert versions == [before + 1, before + 2]
    assert await read_version(store) == before + 2


async def test_what_changes_nothing_leaves_no_trace(store: ConfigStore, service: ConfigService) -> None:
    created = await service.topics.create("default", "TP_TRADE", description="same")

    repeated = await service.topics.update("default", "TP_TRADE", description="same", queue_count=4)

    assert repeated == created
    assert await read_version(store) == created.version
    assert len((await service.audit.list()).items) == 1


async def test_a_refused_change_leaves_no_trace(store: ConfigStore, service: ConfigService) -> None:
    created = await service.topics.create("default", "TP_TRADE")

    with pytest.raises(ThingAlreadyExistsError):
        await service.topics.create("default", "TP_TRADE")
    with pytest.raises(TopicNotFoundError):
        await service.topics.delete("default", "TP_OTHER")

    assert await read_version(store) == created.version
    assert len((await service.audit.list()).items) == 1


async def test_a_change_that_fails_at_its_end_is_undone_with_its_audit_rows(
    store: ConfigStore, service: ConfigService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("confdb.services.changes._NOTIFY", sa.text("SELECT 1 / 0, :channel, :version"))

    with pytest.raises(sa.exc.DataError):
        await service.topics.create("default", "TP_TRADE")

    assert await read_version(store) == 1
    assert (await service.audit.list()).items == ()
    assert (await service.topics.list("default")).items == ()


async def test_a_change_waits_for_the_one_under_way_and_comes_after_it(
    store: ConfigStore, service: ConfigService, database_url: str
) -> None:
    async with Changes(store, "slow").begin() as change:
        other = asyncio.create_task(service.topics.create("default", "TP_TRADE"))
        await _until_somebody_waits(database_url)
        assert not other.done()
        assert change.version == 1

    assert (await other).version == 2


async def test_of_two_that_register_the_same_at_once_one_is_refused(service: ConfigService) -> None:
    attempts = [service.topics.create("default", "TP_TRADE") for _ in range(2)]

    outcomes = await asyncio.gather(*attempts, return_exceptions=True)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Changed", "ThingAlreadyExistsError"]


async def test_every_change_is_notified_when_it_commits(service: ConfigService, database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as listening:
        await listening.execute("LISTEN msgcenter_config")

        created = await service.topics.create("default", "TP_TRADE")

        notified = [notify.payload async for notify in listening.notifies(timeout=10, stop_after=1)]
    assert notified == [str(created.version)]


async def test_a_change_without_an_actor_is_refused(store: ConfigStore) -> None:
    for actor in ("", "x" * 200, "\0"):
        with pytest.raises(InvalidSettingError, match="actor"):
            ConfigService(store, actor)


async def test_the_version_is_one_row_and_stays_one(store: ConfigStore) -> None:
    with pytest.raises(sa.exc.IntegrityError, match="config_version_singleton_check"):
        async with store.transaction() as session:
            session.add(ConfigVersion(singleton=2, version=7))


async def _until_somebody_waits(database_url: str) -> None:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as watching:
        waiting_count = 0
        while not waiting_count:
            ((waiting_count,),) = await (await watching.execute(waiting)).fetchall()


_TRAIL = """
INSERT INTO audit_entry (actor, action, kind, namespace, name, config_version)
SELECT 'ann', 'topic.update', 'topic', CASE WHEN n % 4000 = 0 THEN 'quiet' ELSE 'busy' END, 'TP', n
FROM generate_series(1, 20000) n
"""


async def test_a_page_of_a_namespace_is_read_without_what_others_changed(
    service: ConfigService, database_url: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(_TRAIL)
        connection.execute("ANALYZE audit_entry")
        for more in ("", " AND actor LIKE '%bob%'", " AND at >= now() - interval '1 day' AND at < now()"):
            page = f"SELECT * FROM audit_entry WHERE namespace = 'quiet'{more} ORDER BY audit_id DESC LIMIT 50"
            plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {page}"))
            assert "audit_entry_namespace_audit_id_idx" in plan, plan

    page_of_quiet = await service.audit.list(WantedChanges(namespace="quiet"), limit=50)

    assert {entry.namespace for entry in page_of_quiet.items} == {"quiet"}
    assert len(page_of_quiet.items) == 5
