"""What publishers' streams remember of the configuration: bounded over all of them, and never of an old one."""

from __future__ import annotations

import sys
from collections.abc import Callable

from confdb.routes import Snapshot
from msgbroker.server.edge.decoding import frame_decoder, parse_message
from msgbroker.server.publish.admission import Admission
from msgbroker.server.publish.admitted_types import Origin
from msgbroker.server.publish.known_types import KnownTypes
from msgbroker.v1 import message_pb2, publisher_pb2
from tests.support.broker_builders import PAID, TOPIC, route, snapshot

decode_frame = frame_decoder(publisher_pb2.PublishFrame)


def admission(current: Callable[[], Snapshot], known: KnownTypes | None = None) -> Admission:
    return Admission(
        Origin("default", "", "host"),
        snapshot=current,
        learn_event_code=lambda _, __: None,
        parse=parse_message,
        known=known,
    )


class Stream:
    """A publisher's stream, as far as it remembers."""

    def __init__(self, known: KnownTypes, current: Snapshot | None = None) -> None:
        self.snapshot: Snapshot | None = current or snapshot(route(is_open=True))
        self.admission = admission(self._get, known)

    def use_codes(self, first: int, count: int) -> None:
        self.use(*(f"EC_{n}" for n in range(first, first + count)))

    def use(self, *event_codes: str) -> None:
        said = [message_pb2.Message(topic=TOPIC, event_code=event_code) for event_code in event_codes]
        received = decode_frame(publisher_pb2.PublishFrame(sequence=1, messages=said).SerializeToString())
        assert len(self.admission.admit(received.encoded, received.spans, 1).messages) == len(said)

    def _get(self) -> Snapshot:
        assert self.snapshot is not None
        return self.snapshot


def test_all_streams_together_remember_a_bounded_number_of_types_and_each_some() -> None:
    known = KnownTypes(count_max=100)
    streams = [Stream(known) for _ in range(10)]
    for turn in range(5):
        for stream in streams:
            stream.use_codes(turn * 50, 50)
            assert known.count <= 100 + 10 * 32

    for stream in streams:
        stream.admission.forget()
    assert known.count == 0


def test_one_stream_may_remember_what_the_others_do_not_need() -> None:
    known = KnownTypes(count_max=1_000)
    stream = Stream(known)
    stream.use_codes(0, 900)
    assert known.count == 900
    stream.use_codes(0, 900)
    assert known.count == 900


def test_a_stream_that_publishes_nothing_keeps_no_configuration_in_memory() -> None:
    topic = route()
    references = sys.getrefcount(topic)
    stream = Stream(KnownTypes(), snapshot(topic))
    stream.use(PAID)
    stream.admission.forget()
    stream.snapshot = None

    assert sys.getrefcount(topic) == references
    stream.snapshot = snapshot(topic)
    stream.use(PAID)


def test_headers_and_refusals_count_beside_what_every_message_costs() -> None:
    current = snapshot(route())
    headers_and_refusals = admission(lambda: current)
    said = [
        message_pb2.Message(topic=TOPIC, event_code=PAID, headers={str(n): "x" for n in range(10)}),
        message_pb2.Message(topic=TOPIC, event_code="EC_NONE"),
        message_pb2.Message(topic=TOPIC, event_code=PAID),
    ]
    received = decode_frame(publisher_pb2.PublishFrame(sequence=1, messages=said).SerializeToString())
    admitted = headers_and_refusals.admit(received.encoded, received.spans, 1)

    assert (len(admitted.messages), len(admitted.refusals)) == (2, 1)
    assert admitted.more_bytes == 10 * 150 + 1_024
    with_headers, without = admitted.messages
    assert with_headers.held_bytes - with_headers.size_bytes == without.held_bytes - without.size_bytes + 10 * 150
