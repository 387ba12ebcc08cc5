"""A standby of confdb that is promoted without the last changes: what is changed from then on everybody notices."""

from __future__ import annotations

from confdb.services import ConfigService
from confdb.snapshot import SnapshotFeed, read_version
from confdb.store import ConfigStore
from msgbroker.contract.errors import ConfigUnavailableError
from tests.integration.confdb.conftest import KnownTails
from tests.support.eventually import eventually
from tests.support.replicated_postgres import ReplicatedPostgres


async def test_a_change_after_the_loss_of_others_is_a_version_that_there_never_was(
    replicated: ReplicatedPostgres,
) -> None:
    async with ConfigStore.open(replicated.url) as store:
        service = ConfigService(store, "operator:ann", KnownTails())
        feed = SnapshotFeed(store)
        await service.topics.create("default", "TP_OLD")
        replicated.wait_until_followed()
        replicated.take_standby_away()
        lost = await service.topics.create("default", "TP_LOST")
        await feed.load_once()
        assert feed.current.version == lost.version

        replicated.fail_over()
        await eventually(lambda: _is_reached(store), what="the promoted standby")
        new = await service.topics.create("default", "TP_NEW")
        assert await feed.load_once() is True

        topics = feed.current.topics
        assert ("default", "TP_NEW") in topics
        assert ("default", "TP_LOST") not in topics
        # Whoever waits for it to be active must not take what is lost for it.
        assert feed.current.version == new.version > lost.version + 1
        assert new.thing.topic_id > lost.thing.topic_id, "its messages would be delivered as the lost one's"
        following = await service.topics.create("default", "TP_FOLLOWING")
        assert following.version == new.version + 1


async def _is_reached(store: ConfigStore) -> bool:
    try:
        return await read_version(store) > 0
    except ConfigUnavailableError:
        return False
