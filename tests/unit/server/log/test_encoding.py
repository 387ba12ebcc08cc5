"""What is encoded by hand is what the generated classes would have written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msgbroker.contract.varint import varint
from msgbroker.server.log import encoding
from msgbroker.server.log.message import NO_HEADERS, LogMessage
from msgbroker.v1 import message_pb2, subscriber_pb2

_TEXT = st.text("aZ é文𝄞\0", max_size=20) | st.just("x" * 200)
_UINT = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1), st.sampled_from([2**14 - 1, 2**14, 2**28, 2**35]))
_DELIVERIES = st.builds(
    subscriber_pb2.Delivery,
    message=st.builds(
        message_pb2.Message,
        topic=_TEXT,
        event_code=_TEXT,
        key=_TEXT,
        ordering_key=_TEXT,
        headers=st.dictionaries(_TEXT, _TEXT, max_size=3),
        body=st.binary(max_size=300),
        born_at_us=_UINT,
    ),
    queue_offset=_UINT,
    message_id=st.binary(min_size=16, max_size=16),
    stored_at_us=st.integers(1, 2**62),
    stress=st.booleans(),
    publisher_group=_TEXT,
    born_host=_TEXT,
)


def stamped(delivery: subscriber_pb2.Delivery) -> LogMessage:
    suffix = encoding.delivery_suffix(delivery.publisher_group, delivery.born_host, stress=delivery.stress)
    said = delivery.message.SerializeToString()
    message = LogMessage(None, "", NO_HEADERS, "", said, suffix, b"row", b"body", stress=delivery.stress)
    message.queue_offset = delivery.queue_offset
    encoding.stamp([message], [delivery.message_id], delivery.stored_at_us)
    return message


@given(_DELIVERIES)
def test_a_stamped_message_reads_as_its_delivery(delivery: subscriber_pb2.Delivery) -> None:
    message = stamped(delivery)

    assert subscriber_pb2.Delivery.FromString(encoding.delivery_of(message.wire)) == delivery
    assert message.stored_at_us == delivery.stored_at_us
    assert message.wire_bytes == sum(map(len, message.wire))
    # The frame that it came in is not kept for its sake.
    assert (message.row_middle, message.body, message.suffix) == (b"", b"", b"")


@given(_DELIVERIES, st.integers(2, 100_000))
def test_a_later_attempt_reads_as_the_same_delivery_with_its_attempt(
    delivery: subscriber_pb2.Delivery, attempt: int
) -> None:
    again = encoding.with_attempt(stamped(delivery).wire, attempt)

    delivery.attempt = attempt
    assert subscriber_pb2.Delivery.FromString(encoding.delivery_of(again)) == delivery


@given(st.lists(st.tuples(_UINT, _UINT, st.lists(_DELIVERIES, max_size=3), st.booleans()), max_size=3))
def test_batches_joined_read_as_one_response(
    batches: list[tuple[int, int, list[subscriber_pb2.Delivery], bool]],
) -> None:
    parts: list[bytes] = []
    for queue_id, epoch, deliveries, is_suspect in batches:
        wires = [piece for delivery in deliveries for piece in stamped(delivery).wire]
        parts += [encoding.batch_head(queue_id, epoch, sum(map(len, wires)), is_suspect=is_suspect), *wires]

    assert subscriber_pb2.SubscribeResponse.FromString(b"".join(parts)) == subscriber_pb2.SubscribeResponse(
        batches=[
            subscriber_pb2.DeliveryBatch(queue_id=queue_id, epoch=epoch, deliveries=deliveries, suspect=is_suspect)
            for queue_id, epoch, deliveries, is_suspect in batches
        ]
    )


@given(_UINT)
def test_a_varint_is_what_protobuf_writes(value: int) -> None:
    written = subscriber_pb2.LaneRevoked(queue_id=value).SerializeToString()

    assert (b"" if value == 0 else b"\x08" + varint(value)) == written
