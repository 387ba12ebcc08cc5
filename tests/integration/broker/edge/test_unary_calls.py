"""The simple calls: Publish, Pull and Settle, for whoever does without a stream."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from confdb.services import ConfigService
from msgbroker.client import MessageCenter
from msgbroker.server.app import Broker
from msgbroker.v1 import message_pb2, publisher_pb2, publisher_pb2_grpc, subscriber_pb2, subscriber_pb2_grpc
from msgdb.append import sql
from msgdb.store import MessageStore
from tests.support.broker_fixtures import StartBroker
from tests.support.collecting import GROUP, PAID, TOPIC, all_settled, dead_letters, register_group
from tests.support.eventually import eventually
from tests.support.raw_streams import raw_subscriber


@pytest.fixture
async def channel(trade: ConfigService, broker: Broker) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(broker.address) as channel:
        yield channel


@pytest.fixture
def publisher(channel: grpc.aio.Channel) -> Any:
    return publisher_pb2_grpc.PublisherStub(channel)


@pytest.fixture
def subscriber(channel: grpc.aio.Channel) -> Any:
    return subscriber_pb2_grpc.SubscriberStub(channel)


def said(body: str, topic: str = TOPIC, event_code: str = PAID) -> message_pb2.Message:
    return message_pb2.Message(topic=topic, event_code=event_code, body=body.encode())


def pulling(**more: Any) -> subscriber_pb2.PullRequest:
    return subscriber_pb2.PullRequest(**{"group": GROUP, "instance_id": "one", "wait_ms": 5_000, **more})


def settling(
    *pulled: subscriber_pb2.PulledMessage, verdict: int = subscriber_pb2.VERDICT_ACK, **more: Any
) -> subscriber_pb2.SettleRequest:
    receipts = [message.receipt for message in pulled]
    values = {"group": GROUP, "instance_id": "one", "receipts": receipts, "verdict": verdict, **more}
    return subscriber_pb2.SettleRequest(**values)


def reason_of(error: grpc.aio.AioRpcError) -> str:
    return str(dict(error.trailing_metadata() or ())["msgcenter-reason"])


# --- all --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    ["Publisher/Publish", "Subscriber/Pull", "Subscriber/Settle", "Directory/ListBrokers", "Directory/Register"],
)
async def test_a_request_that_cannot_be_read_is_refused_as_invalid(channel: grpc.aio.Channel, method: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await channel.unary_unary(f"/msgbroker.v1.{method}")(b"\x0a\x02\xff\xfe\xff")  # type: ignore[arg-type]

    assert (raised.value.code().name, reason_of(raised.value)) == ("INVALID_ARGUMENT", "INVALID_FIELD")


# --- Publish ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host, listen", [("127.0.0.1", "127.0.0.1:0"), ("::1", "[::1]:0")], ids=["ipv4", "ipv6"])
async def test_where_a_caller_does_not_say_its_host_it_is_the_address_it_calls_from(
    trade: ConfigService, start_broker: StartBroker, message_store: MessageStore, host: str, listen: str
) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            pytest.skip(f"there is no {host} on this machine")
    broker = await start_broker(listen=listen)
    async with grpc.aio.insecure_channel(broker.address) as channel:
        publisher: Any = publisher_pb2_grpc.PublisherStub(channel)
        await publisher.Publish(publisher_pb2.PublishRequest(messages=[said("a")]))

    async with message_store.connection() as conn:
        assert await (await conn.execute("SELECT born_host FROM message")).fetchone() == (host,)


async def test_a_call_stores_its_messages_and_refuses_bad_ones_alone(
    publisher: Any, message_store: MessageStore
) -> None:
    request = publisher_pb2.PublishRequest(messages=[said("0"), said("1", topic="TP_NONE"), said("2")])
    result = await publisher.Publish(request)

    assert [bool(queue_id) for queue_id in result.queue_ids] == [True, False, True]
    assert [(refusal.index, refusal.refusal.reason) for refusal in result.refusals] == [(1, "TOPIC_NOT_FOUND")]
    async with message_store.connection() as conn:
        rows = await (await conn.execute("SELECT body FROM message ORDER BY queue_offset")).fetchall()
    assert rows == [(b"0",), (b"2",)]


async def test_a_call_with_an_id_and_a_sequence_is_stored_once(publisher: Any, message_store: MessageStore) -> None:
    publisher_id = secrets.token_bytes(16)
    request = publisher_pb2.PublishRequest(publisher_id=publisher_id, sequence=1, messages=[said("a"), said("b")])
    first = await publisher.Publish(request)
    again = await publisher.Publish(request)

    assert (first.duplicate, again.duplicate) == (False, True)
    again.duplicate = False
    assert again == first
    async with message_store.connection() as conn:
        assert await (await conn.execute("SELECT count(*) FROM message")).fetchone() == (2,)


async def test_a_sequence_that_is_not_next_is_refused_with_what_is(publisher: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await publisher.Publish(
            publisher_pb2.PublishRequest(publisher_id=secrets.token_bytes(16), sequence=3, messages=[said("a")])
        )

    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert reason_of(raised.value) == "SEQUENCE_GAP"


@pytest.mark.parametrize(
    "request_fields",
    [{"sequence": 1}, {"publisher_id": b"x" * 16}, {"publisher_id": b"short", "sequence": 1}, {"messages": []}],
    ids=", ".join,
)
async def test_a_malformed_call_is_refused(publisher: Any, request_fields: dict[str, Any]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await publisher.Publish(publisher_pb2.PublishRequest(**{"messages": [said("a")], **request_fields}))

    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert reason_of(raised.value) == "INVALID_FIELD"


async def test_a_call_with_too_many_messages_is_refused(publisher: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await publisher.Publish(publisher_pb2.PublishRequest(messages=[said("a")] * 1_001))

    assert (raised.value.code().name, reason_of(raised.value)) == ("INVALID_ARGUMENT", "FRAME_TOO_LARGE")


async def test_a_call_is_refused_with_a_hint_while_too_much_waits_to_be_stored(
    trade: ConfigService, start_broker: StartBroker, message_store: MessageStore
) -> None:
    broker = await start_broker(ingest_bytes_max=1024 * 1024)
    async with (
        grpc.aio.insecure_channel(broker.address) as channel,
        message_store.connection() as holder,
    ):
        publisher: Any = publisher_pb2_grpc.PublisherStub(channel)
        await publisher.Publish(publisher_pb2.PublishRequest(messages=[said("the queues are made")]))
        rows = await holder.execute("SELECT queue_id FROM queue")
        await holder.execute(sql.begin("", (), [queue_id for (queue_id,) in await rows.fetchall()]).encode())
        large = publisher_pb2.PublishRequest(messages=[said("x" * 8_000)] * 30)
        waiting = [asyncio.ensure_future(publisher.Publish(large)) for _ in range(3)]
        small = publisher_pb2.PublishRequest(messages=[said("a")])

        async def refusal() -> grpc.aio.AioRpcError | None:
            call = publisher.Publish(small, timeout=5)
            done, _ = await asyncio.wait([asyncio.ensure_future(_outcome(call))], timeout=0.1)
            return done.pop().result() if done else None

        error = await eventually(refusal, 1.5)
        await holder.execute("ROLLBACK")
        answers = await asyncio.gather(*waiting, return_exceptions=True)

    assert error is not None
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "1048576" in (error.details() or "")
    metadata = dict(error.trailing_metadata() or ())
    assert (metadata["msgcenter-reason"], metadata["grpc-retry-pushback-ms"]) == ("BROKER_BUSY", "500")
    status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(retry)
    assert (info.reason, info.domain) == ("BROKER_BUSY", "msgcenter")
    assert retry.retry_delay.ToMilliseconds() == 500
    # What was taken in is stored; nothing of what was refused is.
    assert next(len(answer.queue_ids) for answer in answers if not isinstance(answer, BaseException)) == 30


async def _outcome(call: Any) -> grpc.aio.AioRpcError | None:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error
    return None


# --- Pull and Settle --------------------------------------------------------------------------------------------------


async def test_what_is_pulled_and_acknowledged_does_not_come_again(
    trade: ConfigService, broker: Broker, publisher: Any, subscriber: Any
) -> None:
    await register_group(trade)
    await subscriber.Pull(pulling(wait_ms=0))
    await publisher.Publish(publisher_pb2.PublishRequest(messages=[said(str(number)) for number in range(5)]))
    pulled = list((await subscriber.Pull(pulling(messages_max=3))).messages)
    assert len(pulled) == 3
    pulled += (await subscriber.Pull(pulling())).messages
    settled = await subscriber.Settle(settling(*pulled))

    assert sorted(message.delivery.message.body.decode() for message in pulled) == ["0", "1", "2", "3", "4"]
    assert (settled.settled, settled.stale) == (5, 0)
    await all_settled(broker)
    assert not (await subscriber.Pull(pulling(wait_ms=0))).messages


async def test_a_pull_waits_for_what_is_published_meanwhile(
    trade: ConfigService, broker: Broker, publisher: Any, subscriber: Any
) -> None:
    await register_group(trade)
    waiting = asyncio.ensure_future(subscriber.Pull(pulling(wait_ms=20_000)))
    await eventually(lambda: any(group.lanes for group in broker.hub.groups.values()))
    await publisher.Publish(publisher_pb2.PublishRequest(messages=[said("a")]))

    async with asyncio.timeout(5):
        (pulled,) = (await waiting).messages
    assert pulled.delivery.message.body == b"a"


async def test_a_receipt_that_was_used_is_stale(
    trade: ConfigService, broker: Broker, publisher: Any, subscriber: Any
) -> None:
    await register_group(trade)
    await publisher.Publish(publisher_pb2.PublishRequest(messages=[said("a")]))
    pulled = (await subscriber.Pull(pulling())).messages
    first = await subscriber.Settle(settling(*pulled))
    again = await subscriber.Settle(settling(*pulled))
    stranger = await subscriber.Settle(settling(*pulled, instance_id="two"))

    assert (first.settled, first.stale) == (1, 0)
    assert (again.settled, again.stale) == (0, 1)
    assert (stranger.settled, stranger.stale) == (0, 1)
    lanes = [owned for group in broker.hub.groups.values() for owned in group.lanes.values()]
    assert broker.hub.counters.totals(lanes, {})["stale"] == 2


async def test_receipts_may_come_in_any_order_and_more_than_once(
    trade: ConfigService, publisher: Any, subscriber: Any
) -> None:
    await register_group(trade)
    await publisher.Publish(publisher_pb2.PublishRequest(messages=[said(body) for body in "abcd"]))
    pulled = (await subscriber.Pull(pulling())).messages
    some = [pulled[number] for number in (3, 0, 2, 0)]
    receipts = [message.receipt for message in some]
    keeping = subscriber_pb2.ExtendRequest(group=GROUP, instance_id="one", receipts=receipts, extend_ms=60_000)
    kept = await subscriber.Extend(keeping)
    settled = await subscriber.Settle(settling(*some))

    assert (kept.extended, kept.stale) == (3, 0)
    assert (settled.settled, settled.stale) == (3, 1)


async def test_what_is_pulled_and_not_settled_in_time_comes_again_and_the_old_receipt_is_stale(
    trade: ConfigService, publisher: Any, subscriber: Any
) -> None:
    await register_group(trade, ack_timeout_seconds=1, retry_schedule_seconds=(0.1,))
    await publisher.Publish(publisher_pb2.PublishRequest(messages=[said("a")]))
    (first,) = (await subscriber.Pull(pulling())).messages
    (second,) = (await subscriber.Pull(pulling())).messages
    late = await subscriber.Settle(settling(first))
    in_time = await subscriber.Settle(settling(second))

    assert second.delivery.attempt == 2
    assert (late.settled, late.stale) == (0, 1)
    assert (in_time.settled, in_time.stale) == (1, 0)


async def test_a_pulled_message_can_be_released_retried_and_rejected(
    trade: ConfigService, publisher: Any, subscriber: Any, message_store: MessageStore
) -> None:
    await register_group(trade)
    await publisher.Publish(publisher_pb2.PublishRequest(messages=[said("a")]))
    attempts = []
    for verdict in (subscriber_pb2.VERDICT_RELEASE, subscriber_pb2.VERDICT_RETRY, subscriber_pb2.VERDICT_REJECT):
        (pulled,) = (await subscriber.Pull(pulling())).messages
        attempts.append(pulled.delivery.attempt or 1)
        await subscriber.Settle(settling(pulled, verdict=verdict, immediately=True, error="n\0o"))

    (letter,) = await eventually(lambda: dead_letters(trade, message_store))
    assert attempts == [1, 1, 2]
    assert (letter.summary.reason, letter.summary.attempts, letter.summary.last_error) == ("REJECTED", 2, "n\ufffdo")


async def test_a_pulled_message_may_be_called_unreadable(
    trade: ConfigService, publisher: Any, subscriber: Any, message_store: MessageStore
) -> None:
    await register_group(trade)
    await publisher.Publish(publisher_pb2.PublishRequest(messages=[said("a")]))
    (pulled,) = (await subscriber.Pull(pulling())).messages
    await subscriber.Settle(settling(pulled, verdict=subscriber_pb2.VERDICT_REJECT, unreadable=True, error="no JSON"))

    (letter,) = await eventually(lambda: dead_letters(trade, message_store))
    assert (letter.summary.reason, letter.summary.last_error) == ("UNREADABLE_BODY", "no JSON")


async def test_a_name_that_pulls_and_subscribes_in_turn_is_one_instance(
    trade: ConfigService, broker: Broker, publisher: Any, subscriber: Any
) -> None:
    await register_group(trade)
    for number in range(3):
        await subscriber.Pull(pulling(wait_ms=0))
        async with raw_subscriber(broker.address, instance_id="one") as raw:
            await eventually(lambda: raw.told)
            (group,) = broker.hub.groups.values()
            assert [instance.is_closed for instance in group.instances.values()] == [False]
            await publisher.Publish(publisher_pb2.PublishRequest(messages=[said(str(number))]))
            await raw.until(1)
            # What the stream held goes to the pull that takes its place, at once; nobody said that it was begun.
            (pulled,) = (await subscriber.Pull(pulling())).messages
            assert (pulled.delivery.attempt or 1) == 1
            assert (await subscriber.Settle(settling(pulled))).settled == 1
            assert [instance.is_closed for instance in group.instances.values()] == [False]
            await eventually(lambda: raw.has_ended)


async def test_what_was_pulled_counts_as_begun_when_another_takes_its_place(
    trade: ConfigService, broker: Broker, publisher: Any, subscriber: Any
) -> None:
    await register_group(trade)
    await publisher.Publish(publisher_pb2.PublishRequest(messages=[said(str(number)) for number in range(5)]))
    pulled: list[Any] = []
    while len(pulled) < 5:
        pulled += (await subscriber.Pull(pulling())).messages
    async with raw_subscriber(broker.address, instance_id="one") as raw:
        given = await raw.until(5)

    assert [one.delivery.attempt for one in given] == [2] * 5


@pytest.mark.parametrize(
    "fields, status, reason",
    [
        ({"messages_max": 1_001}, "INVALID_ARGUMENT", "INVALID_FIELD"),
        ({"wait_ms": 30_001}, "INVALID_ARGUMENT", "INVALID_FIELD"),
        ({"group": "SG_NOBODY"}, "NOT_FOUND", "GROUP_NOT_FOUND"),
        ({"group": "no spaces"}, "INVALID_ARGUMENT", "INVALID_NAME"),
        ({"group": "g" * 3_000}, "INVALID_ARGUMENT", "INVALID_NAME"),
        ({"namespace": "n" * 3_000}, "INVALID_ARGUMENT", "INVALID_NAME"),
        ({"instance_id": ""}, "INVALID_ARGUMENT", "INVALID_NAME"),
    ],
)
async def test_a_pull_out_of_bounds_is_refused(
    trade: ConfigService, subscriber: Any, fields: dict[str, Any], status: str, reason: str
) -> None:
    await register_group(trade)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await subscriber.Pull(pulling(**fields))

    assert (raised.value.code().name, reason_of(raised.value)) == (status, reason)


@pytest.mark.parametrize(
    "fields", [{"receipts": []}, {"receipts": [b"made up"]}, {"verdict": 0}, {"receipts": [b""] * 1_001}]
)
async def test_a_malformed_settle_is_refused(trade: ConfigService, subscriber: Any, fields: dict[str, Any]) -> None:
    await register_group(trade)
    request = {"group": GROUP, "instance_id": "one", "receipts": [b"x" * 28], "verdict": 1, **fields}
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await subscriber.Settle(subscriber_pb2.SettleRequest(**request))

    assert (raised.value.code().name, reason_of(raised.value)) == ("INVALID_ARGUMENT", "INVALID_FIELD")


async def test_a_draining_broker_sends_callers_elsewhere(
    trade: ConfigService, broker: Broker, center: MessageCenter, publisher: Any, subscriber: Any
) -> None:
    await register_group(trade)
    broker.grpc_door.publisher.drain()
    broker.grpc_door.pull.drain()
    for call in (
        publisher.Publish(publisher_pb2.PublishRequest(messages=[said("a")])),
        subscriber.Pull(pulling()),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
        assert (raised.value.code().name, reason_of(raised.value)) == ("UNAVAILABLE", "BROKER_UNAVAILABLE")


async def test_what_was_pulled_may_be_settled_while_the_broker_drains(
    trade: ConfigService, start_broker: StartBroker, message_store: MessageStore
) -> None:
    await register_group(trade)
    broker = await start_broker(drain_seconds=30, lease_seconds=60)
    async with grpc.aio.insecure_channel(broker.address) as channel, MessageCenter(broker.address) as center:
        subscriber: Any = subscriber_pb2_grpc.SubscriberStub(channel)
        await center.publish(TOPIC, PAID, "once")
        pulled = (await subscriber.Pull(pulling())).messages
        stopping = asyncio.create_task(broker.shut_down())
        # Its puller takes its time: less than the broker would wait.
        ended, _ = await asyncio.wait([stopping], timeout=1)
        settled = await subscriber.Settle(settling(*pulled))
        async with asyncio.timeout(15):
            await stopping

    assert ended == set()
    assert (settled.settled, settled.stale) == (1, 0)
    async with message_store.connection() as conn:
        cursors = await conn.execute("SELECT sum(acked_offset)::bigint, count(owner) FROM cursor")
        assert await cursors.fetchone() == (1, 0)


async def test_a_pull_that_waits_is_sent_elsewhere_when_the_broker_drains(
    trade: ConfigService, start_broker: StartBroker
) -> None:
    await register_group(trade)
    broker = await start_broker(drain_seconds=30)
    async with grpc.aio.insecure_channel(broker.address) as channel:
        subscriber: Any = subscriber_pb2_grpc.SubscriberStub(channel)
        # The second one waits for the first.
        calls = [subscriber.Pull(pulling(wait_ms=30_000)) for _ in range(2)]
        await eventually(lambda: any(group.lanes for group in broker.hub.groups.values()))
        async with asyncio.timeout(15):
            await broker.shut_down()
            for call in calls:
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await call
                assert (raised.value.code().name, reason_of(raised.value)) == ("UNAVAILABLE", "BROKER_UNAVAILABLE")
