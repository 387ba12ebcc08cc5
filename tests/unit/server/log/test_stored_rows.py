"""A message that is read back is the message that was published, as protobuf would write it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msgbroker.server.log.encoding import delivery_of
from msgbroker.server.log.stored_rows import messages_of_rows
from msgbroker.v1 import message_pb2, subscriber_pb2
from msgdb.log.reads import MessageRow

_TEXT = st.text("aZ é文𝄞", max_size=20) | st.just("x" * 200)
_TEXT_OR_NULL = st.none() | _TEXT.filter(bool)
_ROWS = st.builds(
    MessageRow,
    queue_id=st.integers(1, 2**40),
    queue_offset=st.integers(0, 2**40),
    stored_at_us=st.sampled_from([1_700_000_000_000_000, 1_700_000_000_000_001]),
    message_id=st.binary(min_size=16, max_size=16),
    namespace=st.just("default"),
    topic=_TEXT.filter(bool),
    event_code=_TEXT.filter(bool),
    key=_TEXT_OR_NULL,
    ordering_key=_TEXT_OR_NULL,
    headers=st.none() | st.dictionaries(_TEXT, _TEXT, min_size=1, max_size=3),
    body=st.binary(max_size=300),
    born_at_us=st.integers(1, 2**52),
    born_host=_TEXT_OR_NULL,
    publisher_group=_TEXT_OR_NULL,
    stress=st.booleans(),
    target_group=st.none() | st.integers(1, 9),
    redrives=st.sampled_from([0, 1, 200]),
)


@given(st.lists(_ROWS, max_size=5))
def test_rows_read_as_the_deliveries_they_were(rows: list[MessageRow]) -> None:
    messages = messages_of_rows(rows)

    assert [(m.queue_id, m.queue_offset, m.stored_at_us, m.stress, m.target_group) for m in messages] == [
        (row.queue_id, row.queue_offset, row.stored_at_us, row.stress, row.target_group) for row in rows
    ]
    for message, row in zip(messages, rows, strict=True):
        said = message_pb2.Message(
            topic=row.topic,
            event_code=row.event_code,
            key=row.key,
            ordering_key=row.ordering_key,
            headers=row.headers,
            body=row.body,
            born_at_us=row.born_at_us,
        )
        delivery = subscriber_pb2.Delivery.FromString(delivery_of(message.wire))
        assert delivery == subscriber_pb2.Delivery(
            message=said,
            queue_offset=row.queue_offset,
            message_id=row.message_id,
            stored_at_us=row.stored_at_us,
            stress=row.stress,
            publisher_group=row.publisher_group,
            born_host=row.born_host,
            redrives=row.redrives if row.target_group is not None else 0,
            replayed=row.target_group is not None and row.redrives == 0,
        )
        assert (message.event_code, message.ordering_key) == (row.event_code, row.ordering_key or row.key or "")
        assert dict(message.headers) == (row.headers or {})
        if len(said.headers) < 2:
            # With more, protobuf's order is its own.
            assert message.content == said.SerializeToString()
