"""Messages that one instance is handed beside, to see what it makes of them: nothing else changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from confdb.services import ConfigService
from confdb.store import ConfigStore
from msgbroker.client import Message, MessageCenter, Reject
from msgbroker.contract.errors import (
    GroupNotFoundError,
    InvalidSettingError,
    SubscriptionNotFoundError,
    ThingNotFoundError,
)
from msgbroker.server.app import Broker
from msgbroker.server.jobs import trying
from msgconsole.operations.replays import trial as trials
from msgconsole.operations.replays.trial import TryDone, TryPlan, WantedTry, plan_try, try_messages
from msgconsole.operations.stores import Stores
from msgdb.acts import list_acts
from msgdb.jobs import trials as trial_rows
from msgdb.jobs.specs import Place
from msgdb.jobs.trials import TrialState, TrialStatus, Tried, begin_trial, get_trial
from msgdb.lanes.lag import LaneLag, list_lag
from msgdb.log.copies import find_copies
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import (
    GROUP,
    PAID,
    REFUNDED,
    TOPIC,
    all_settled,
    dead_letters,
    register_group,
    subscribed,
)
from tests.support.eventually import eventually

ONE = "points-1"
_REDRIVEN_TO_ANOTHER = """
INSERT INTO message (queue_id, queue_offset, stored_at, message_id, namespace, topic, event_code, key, body, born_at,
                     stress, target_group, redrives)
SELECT queue_id, queue_offset + 1, clock_timestamp(), message_id, namespace, topic, event_code, key,
       'only for the other group', born_at, stress,
       (SELECT group_id FROM subscriber_group WHERE name = %(group)s), 1
FROM message
"""
_WAITED_FOR = "SELECT extract(epoch FROM changed_at - created_at)::float8 FROM trial WHERE state = 'TRYING'"


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    """Return a broker whose leases outlast whatever holds this machine up."""
    return await start_broker(lease_seconds=30.0)


@pytest.fixture
async def stores(database_url: str, message_store: MessageStore) -> Any:
    async with ConfigStore.open(database_url) as config_store:
        yield Stores(config_store, message_store)


def wanted(*message_ids: UUID, **said: Any) -> WantedTry:
    return WantedTry(**{"namespace": "default", "group": GROUP, "instance_id": ONE, "message_ids": message_ids, **said})


async def attempt(stores: Stores, *message_ids: UUID, **said: Any) -> TryDone:
    told: list[Any] = []
    done = await try_messages(stores, wanted(*message_ids, **said), actor="ada", reason="why", on_tried=told.append)
    assert told == list(done.messages)
    return done


async def was_there(_stores: Stores, _wanted: WantedTry, count: int) -> TryPlan:
    """Say that the instance was connected as somebody looked."""
    return TryPlan(count, is_connected=True, unanswered=())


def outcomes(done: TryDone) -> list[tuple[str, str]]:
    return [(each.outcome, each.error) for each in done.messages]


async def publish(center: MessageCenter, *bodies: str, **options: Any) -> list[UUID]:
    event_code = options.pop("event_code", PAID)
    return [(await center.publish(TOPIC, event_code, body, key="one", **options)).message_id for body in bodies]


async def lanes(stores: Stores) -> list[LaneLag]:
    async with stores.messages.connection() as conn:
        return [lag._replace(lease_in_seconds=None, oldest_stored_at_us=None) for lag in await list_lag(conn)]


async def persisted(stores: Stores, count: int) -> None:
    async def look() -> bool:
        return sum(lag.acked_offset for lag in await lanes(stores)) == count

    await eventually(look, what=f"{count} settled, as it is stored")


def nothing_is_left(broker: Broker) -> bool:
    """Whether no trial stands, and nobody holds anything of one."""
    groups = broker.hub.groups.values()
    return not any(group.trials.lanes() for group in groups) and all(
        instance.unsettled == 0 for group in groups for instance in group.instances.values()
    )


async def act_on(message: Message) -> None:
    said = message.body.decode()
    if said == "fails" and message.replayed:
        raise ConnectionError("not yet")
    if said == "rejected" and message.replayed:
        raise Reject("never")


async def test_what_an_instance_makes_of_messages_is_told_and_nothing_else_changes(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    async with (
        subscribed(broker.address, act=act_on, instance_id=ONE) as ours,
        subscribed(broker.address, instance_id="points-2") as others,
    ):
        ids = await publish(center, "well", "fails", "rejected")
        await eventually(lambda: len(ours.messages) + len(others.messages) == 3, what="all three")
        await all_settled(broker)
        await persisted(stores, 3)
        before, had, theirs = await lanes(stores), len(ours.messages), len(others.messages)

        done = await attempt(stores, *ids)

        assert (done.state, done.error, done.untried) == (TrialState.DONE, None, 0)
        assert outcomes(done) == [
            ("ACKNOWLEDGED", ""),
            ("FAILED", "ConnectionError: not yet"),
            ("REJECTED", "never"),
        ]
        assert all(0 <= each.seconds < 10 for each in done.messages)
        tried = ours.messages[had:]
        assert [(message.body, message.replayed, message.attempt) for message in tried] == [
            (b"well", True, 1),
            (b"fails", True, 1),
            (b"rejected", True, 1),
        ]
        assert [message.message_id for message in tried] == ids
        assert len(others.messages) == theirs
        # Live delivery goes on at the same instance, and moves what it moves by itself.
        assert await lanes(stores) == before
        assert nothing_is_left(broker)
        await publish(center, "later")
        await all_settled(broker)
    async with stores.messages.connection() as conn:
        (act,) = await list_acts(conn)
        stored = await (await conn.execute("SELECT count(*) FROM message")).fetchone()
    assert stored == (4,)
    assert await dead_letters(trade, stores.messages) == []
    assert (act.action, act.thing, act.actor) == ("message.try", f"instance {ONE} of group {GROUP}", "ada")
    assert act.namespace == "default"
    assert act.detail == {"trial_id": done.trial_id, "message_ids": [str(each) for each in ids]}


async def test_a_paused_group_tries_what_its_instances_are_not_given(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    await trade.wait_until_active((await trade.subscriber_groups.update("default", GROUP, paused=True)).version)
    async with subscribed(broker.address, instance_id=ONE) as ours:
        ids = await publish(center, "0", "1", "2")
        assert outcomes(await attempt(stores, ids[1])) == [("ACKNOWLEDGED", "")]
        assert ours.bodies == ["1"]
        await trade.wait_until_active((await trade.subscriber_groups.update("default", GROUP, paused=False)).version)
        await ours.until(4)
        await all_settled(broker)
    # It was not settled by being tried.
    assert ours.bodies == ["1", "0", "1", "2"]


async def test_an_instance_that_does_not_answer_in_time_is_told_to_stop(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, ack_timeout_seconds=1.0, handle_seconds_max=0)
    cancelled = asyncio.Event()

    async def hang(message: Message) -> None:
        if message.replayed:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    async with subscribed(broker.address, act=hang, instance_id=ONE) as ours:
        ids = await publish(center, "0")
        await ours.until(1)
        await all_settled(broker)
        done = await attempt(stores, *ids)
        await cancelled.wait()
        assert nothing_is_left(broker)
    assert outcomes(done) == [("TIMED_OUT", "no answer in time")]
    assert done.state is TrialState.DONE


async def test_a_handler_that_takes_longer_than_the_ack_timeout_keeps_its_message(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, ack_timeout_seconds=1.0, handle_seconds_max=60.0)
    release = asyncio.Event()

    async def hang(message: Message) -> None:
        if message.replayed:
            await release.wait()

    async with subscribed(broker.address, act=hang, instance_id=ONE) as ours:
        ids = await publish(center, "0")
        await ours.until(1)
        trying = asyncio.create_task(attempt(stores, *ids))
        await ours.until(2)
        extended = [group.trials for group in broker.hub.groups.values()]
        await eventually(lambda: any(o.lane.counters.extended for t in extended for o in t.lanes()), what="extended")
        release.set()
        done = await trying
    assert outcomes(done) == [("ACKNOWLEDGED", "")]


async def test_an_instance_that_goes_away_ends_the_trial(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    ids = await publish(center, "0", "1")
    begun = asyncio.Event()

    async def hang(message: Message) -> None:
        if message.replayed:
            begun.set()
            await asyncio.Event().wait()

    async with subscribed(broker.address, act=hang, instance_id=ONE):
        trying = asyncio.create_task(attempt(stores, *ids))
        await begun.wait()
        (group,) = broker.hub.groups.values()
        next(iter(group.instances.values())).close()
        done = await trying
    assert (done.state, done.untried, done.error) == (TrialState.FAILED, 1, "the instance went away")
    assert outcomes(done) == [("FAILED", "the instance went away")]


async def test_the_message_that_was_tried_pays_for_the_crash_of_its_instance_and_no_live_one(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade, unsettled_max=10)
    async with subscribed(broker.address, instance_id="points-2") as other:
        ids = await publish(center, "tried")
        await other.until(1)
        await all_settled(broker)

    release = asyncio.Event()

    async def hang(message: Message) -> None:
        await release.wait()

    async with subscribed(broker.address, act=hang, instance_id=ONE, concurrency=1, credit=5) as ours:
        trying = asyncio.create_task(attempt(stores, *ids))
        (group,) = await eventually(lambda: list(broker.hub.groups.values()), what="the group")

        def is_begun() -> bool:
            held = [o.lane.first_held(name) for o in group.trials.lanes() for name in group.instances]
            return any(first is not None and first.has_begun for first in held)

        await eventually(is_begun, what="it is tried, and begun")
        await publish(center, "live")
        instance = next(iter(group.instances.values()))
        await eventually(lambda: instance.unsettled == 2, what="a live one beside it")
        # Without a word: as a process does that crashes.
        broker.hub.detach(group, instance)
        await trying
        # The client of this test lives, comes again, and is given the live one.
        release.set()
        await ours.until(2)
        await all_settled(broker)
    assert [(message.body, message.attempt) for message in ours.messages] == [(b"tried", 1), (b"live", 1)]


async def test_an_instance_that_no_broker_has_is_refused_at_once(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    ids = await publish(center, "0")
    async with subscribed(broker.address, instance_id="points-2") as ours:
        await ours.until(1)
        with pytest.raises(ThingNotFoundError, match="no connected instance"):
            await attempt(stores, *ids)
    async with stores.messages.connection() as conn:
        assert await list_acts(conn) == []


async def test_an_instance_that_went_meanwhile_is_waited_for_a_while_and_then_said_to_be_nowhere(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_TAKEN_SECONDS", 1.0)
    monkeypatch.setattr(trials, "_plan", was_there)
    await register_group(trade)
    ids = await publish(center, "0")
    async with subscribed(broker.address, instance_id="points-2") as ours:
        await ours.until(1)
        done = await attempt(stores, *ids)
        assert (done.state, done.untried) == (TrialState.FAILED, 1)
        assert done.error == "no broker that knows of trials has an instance of that id in this group"
        assert len(ours.messages) == 1


async def test_only_the_broker_that_has_the_instance_takes_the_trial(
    trade: ConfigService, start_broker: StartBroker, stores: Stores
) -> None:
    first, second = await start_broker(), await start_broker()
    await register_group(trade)
    async with (
        MessageCenter(first.address) as center,
        subscribed(first.address, instance_id="points-2") as others,
        subscribed(second.address, instance_id=ONE) as ours,
    ):
        ids = await publish(center, "0")
        await eventually(lambda: len(ours.messages) + len(others.messages) == 1, what="it was delivered")
        had = len(ours.messages)
        done = await attempt(stores, *ids, *ids)
        assert outcomes(done) == [("ACKNOWLEDGED", "")] * 2
        assert len(ours.messages) == had + 2


async def test_a_broker_of_which_nothing_is_heard_ends_the_trial(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)
    ids = await publish(center, "0")
    monkeypatch.setattr(trials, "_SILENT_SECONDS", 0.5)
    monkeypatch.setattr(trials, "_plan", was_there)
    trying = asyncio.create_task(attempt(stores, *ids))

    async def taken() -> bool:
        async with stores.messages.connection() as conn:
            changed = await conn.execute("UPDATE trial SET state = 'TRYING', owner = gen_random_uuid()")
        return changed.rowcount == 1

    await eventually(taken, what="somebody took it")
    done = await trying
    assert (done.state, done.error) == (TrialState.FAILED, "nothing was heard of the broker that had the instance")


async def test_a_trial_that_fails_for_an_unknown_reason_ends_neither_the_broker_nor_later_trials(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)
    begun = asyncio.Event()

    async def hang(message: Message) -> None:
        if message.replayed:
            begun.set()
            await asyncio.Event().wait()

    def fail(rows: Any) -> Any:
        raise ZeroDivisionError

    ids = await publish(center, "0", "1")
    async with (
        subscribed(broker.address, act=hang, instance_id=ONE),
        subscribed(broker.address, instance_id="points-2"),
    ):
        await all_settled(broker)
        with monkeypatch.context() as patched:
            patched.setattr(trials, "_SILENT_SECONDS", 2.0)
            beside = asyncio.create_task(attempt(stores, ids[0]))
            await begun.wait()
            patched.setattr(trying, "messages_of_rows", fail)
            failed = await attempt(stores, ids[1], instance_id="points-2")
            await beside
        assert (failed.state, failed.untried) == (TrialState.FAILED, 1)

        done = await attempt(stores, ids[1], instance_id="points-2")
        ended = asyncio.ensure_future(broker.wait_until_failed())
        await asyncio.wait([ended], timeout=0)
        assert not ended.done()
        ended.cancel()
    assert outcomes(done) == [("ACKNOWLEDGED", "")]


async def test_whoever_stops_waiting_ends_the_trial_and_the_instance_is_told(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def hang(message: Message) -> None:
        if message.replayed:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    async with subscribed(broker.address, act=hang, instance_id=ONE) as ours:
        ids = await publish(center, "0", "1")
        await ours.until(2)
        trying = asyncio.create_task(attempt(stores, *ids))
        await begun.wait()
        trying.cancel()
        await cancelled.wait()
        await eventually(lambda: nothing_is_left(broker), what="nothing is left")
        assert len(ours.messages) == 3
    async with stores.messages.connection() as conn:
        row = await (await conn.execute("SELECT state, outcomes FROM trial")).fetchone()
    assert row == ("CANCELLED", [])


async def test_a_stress_message_is_tried_by_no_group_that_is_not_on_the_whitelist(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    (stress,) = await publish(center, "0", headers={"x-stress-test": "true"})
    async with subscribed(broker.address, instance_id=ONE) as ours:
        done = await attempt(stores, stress)
        assert [each.outcome for each in done.messages] == ["NOT_HANDED_OUT"]
        assert "whitelist" in done.messages[0].error
        assert ours.messages == []
        await trade.wait_until_active((await trade.stress.allow("default", GROUP, TOPIC, PAID)).version)
        assert outcomes(await attempt(stores, stress)) == [("ACKNOWLEDGED", "")]
        assert [message.stress for message in ours.messages[-1:]] == [True]


async def test_what_the_instance_has_no_handler_for_is_given_back(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    (other,) = await publish(center, "0", event_code=REFUNDED)
    async with subscribed(broker.address, instance_id=ONE, event_code=PAID):
        done = await attempt(stores, other)
    assert outcomes(done) == [("GIVEN_BACK", "no handler for this message type here")]


async def test_a_message_of_a_day_that_is_gone_by_then_is_said_to_be_gone(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)
    ids = await publish(center, "0")
    async with subscribed(broker.address, instance_id=ONE) as ours:
        await ours.until(1)
        await all_settled(broker)

        async def gone_meanwhile(conn: Any, *arguments: Any, **said: Any) -> int:
            await conn.execute("DELETE FROM message")
            return await begin_trial(conn, *arguments, **said)

        monkeypatch.setattr(trials, "begin_trial", gone_meanwhile)
        done = await attempt(stores, *ids)
    assert outcomes(done) == [("NOT_HANDED_OUT", "it is not in the log any more")]


@pytest.mark.parametrize(
    "said, error",
    [
        ({"message_ids": ()}, InvalidSettingError),
        ({"message_ids": tuple(uuid4() for _ in range(101))}, InvalidSettingError),
        ({"message_ids": (uuid4(),)}, ThingNotFoundError),
        ({"message_ids": (uuid4(),), "group": "SG_NOBODY"}, GroupNotFoundError),
    ],
)
async def test_what_cannot_be_is_refused(
    trade: ConfigService, stores: Stores, said: dict[str, Any], error: type[Exception]
) -> None:
    await register_group(trade)
    with pytest.raises(error):
        await plan_try(stores, wanted(**said))


async def test_a_group_is_handed_nothing_of_a_topic_that_it_does_not_subscribe_to(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    ids = await publish(center, "0")
    await trade.wait_until_active((await trade.subscriber_groups.create("default", GROUP)).version)
    with pytest.raises(SubscriptionNotFoundError):
        await attempt(stores, *ids)


async def test_what_an_instance_has_answered_is_told_though_nobody_said_for_a_while_that_he_waits(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever waits was frozen, or cut off from the store, while the handler was at it.
    monkeypatch.setattr(trials, "_WAITING_SECONDS", 3_600.0)
    await register_group(trade)

    async def handle(message: Message) -> None:
        if message.replayed:
            async with stores.messages.connection() as conn:
                await conn.execute("UPDATE trial SET waited_at = clock_timestamp() - interval '1 minute'")

    async with subscribed(broker.address, act=handle, instance_id=ONE) as ours:
        ids = await publish(center, "0", "1")
        await ours.until(2)
        await all_settled(broker)
        done = await attempt(stores, *ids)

    assert len(ours.messages) == 3
    assert (outcomes(done), done.untried) == ([("ACKNOWLEDGED", "")], 1)


async def test_a_trial_hands_out_no_copy_that_was_stored_for_another_group(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter
) -> None:
    await register_group(trade)
    await register_group(trade, "SG_OTHER")
    ids = await publish(center, "the message")
    async with subscribed(broker.address, instance_id=ONE) as ours:
        await ours.until(1)
        await all_settled(broker)
        async with stores.messages.connection() as conn:
            # Redriven to another group, with a body that was edited for it.
            await conn.execute(_REDRIVEN_TO_ANOTHER, {"group": "SG_OTHER"})
        await attempt(stores, *ids)
        assert ours.bodies == ["the message", "the message"]


async def test_an_instance_that_goes_away_after_its_last_answer_has_answered_all(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)
    noted = trial_rows.note_tried

    async def go_away(conn: Any, trial_id: int, owner: UUID, tried: Sequence[Tried] = ()) -> bool:
        if tried:
            (group,) = broker.hub.groups.values()
            next(iter(group.instances.values())).close()
        return await noted(conn, trial_id, owner, tried)

    async with subscribed(broker.address, instance_id=ONE) as ours:
        ids = await publish(center, "0")
        await ours.until(1)
        await all_settled(broker)
        monkeypatch.setattr(trying, "note_tried", go_away)
        done = await attempt(stores, *ids)
    assert (done.state, done.error, outcomes(done)) == (TrialState.DONE, None, [("ACKNOWLEDGED", "")])


async def test_a_trial_that_nobody_waits_for_any_more_ends_and_the_instance_is_told(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)
    monkeypatch.setattr(trial_rows, "WAITED_SECONDS", 2.0)
    cancelled = asyncio.Event()

    async def hang(message: Message) -> None:
        if message.replayed:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    async with subscribed(broker.address, act=hang, instance_id=ONE) as ours:
        ids = await publish(center, "0", "1")
        await ours.until(2)
        await all_settled(broker)
        async with stores.messages.transaction() as conn:
            copies = [(await find_copies(conn, each, "default"))[0][0] for each in ids]
            places = [Place(copy.queue_id, copy.queue_offset, copy.stored_at_us) for copy in copies]
            group_id = next(iter(broker.hub.groups.values())).route.group_id
            # As a command leaves it that is killed: nothing more is heard of it.
            said: dict[str, Any] = {"actor": "ada", "reason": "why", "thing": "it"}
            trial_id = await begin_trial(conn, group_id, ONE, places, namespace="default", **said)

        async def is_over() -> TrialStatus | None:
            async with stores.messages.connection() as conn:
                status = await get_trial(conn, trial_id)
            return status if status.state is TrialState.CANCELLED else None

        status = await eventually(is_over, 20.0, what="the trial is over")
        await cancelled.wait()
        await eventually(lambda: nothing_is_left(broker), what="nothing of it is left")
        assert status is not None
        assert (status.error, status.tried) == ("nobody waited for it any more", [])
        assert len(ours.messages) == 3


async def test_a_trial_goes_on_for_as_long_as_somebody_waits(
    trade: ConfigService, broker: Broker, stores: Stores, center: MessageCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_group(trade)
    monkeypatch.setattr(trial_rows, "WAITED_SECONDS", 2.0)
    release = asyncio.Event()

    async def hang(message: Message) -> None:
        if message.replayed:
            await release.wait()

    async with subscribed(broker.address, act=hang, instance_id=ONE) as ours:
        ids = await publish(center, "0")
        await ours.until(1)
        trying = asyncio.create_task(attempt(stores, *ids))
        await ours.until(2)

        async def is_old() -> bool:
            async with stores.messages.connection() as conn:
                row = await (await conn.execute(_WAITED_FOR)).fetchone()
            return row is not None and row[0] > 4.0

        await eventually(is_old, 20.0, what="it was waited for, for longer than it may be left alone")
        release.set()
        done = await trying
    assert (done.state, outcomes(done)) == (TrialState.DONE, [("ACKNOWLEDGED", "")])
