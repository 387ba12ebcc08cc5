"""What an instance is told, as it goes over the wire."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from msgbroker.engine.missing_types import MissingType
from msgbroker.engine.verdicts import Held
from msgbroker.server.deliver.instances.instance import Instance
from msgbroker.server.deliver.instances.notices import (
    Attached,
    Confirmed,
    Draining,
    LaneRevoked,
    Notice,
    Relocation,
    TakenBack,
)
from msgbroker.server.edge.subscribing.notices import encode_notice
from msgbroker.v1 import subscriber_pb2

MISSING = MissingType("TP_NONE", "EC_PAID", "TOPIC_NOT_FOUND")


def read(response: bytes) -> str:
    return text_format.MessageToString(subscriber_pb2.SubscribeResponse.FromString(response), as_one_line=True)


@pytest.mark.parametrize(
    "notice, told",
    [
        (
            Attached(100, 2.5, 0.0, "b-1", [MISSING], 10.0),
            (
                'attached { unsettled_max: 100 ack_timeout_ms: 2500 broker_id: "b-1" missing { topic: "TP_NONE"'
                ' event_code: "EC_PAID" reason: "TOPIC_NOT_FOUND" } careful_ms: 10000 }'
            ),
        ),
        (Attached(100, 60.0, 3_600.0), "attached { unsettled_max: 100 ack_timeout_ms: 60000 handle_ms_max: 3600000 }"),
        (LaneRevoked(7, 3), "revoked { queue_id: 7 epoch: 3 }"),
        (
            TakenBack([Held(7, 3, 1, [(4, 5), (8, 11)]), Held(7, 3, 2, [(5, 6)])]),
            (
                "taken_back { queue_id: 7 epoch: 3 attempt: 1 ranges: 4 ranges: 4 ranges: 8 ranges: 10 }"
                " taken_back { queue_id: 7 epoch: 3 attempt: 2 ranges: 5 ranges: 5 }"
            ),
        ),
        (Relocation(["host:1", "host:2"]), 'relocation { addresses: "host:1" addresses: "host:2" }'),
        (Draining(), "draining: true"),
        (Confirmed(12), "confirmed: 12"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_notice_says_on_the_wire_what_it_says(notice: Notice, told: str) -> None:
    assert read(encode_notice(notice)) == told


def test_notices_that_wait_together_are_one_response() -> None:
    instance = Instance("one", 1, 1, encode=encode_notice)
    instance.revoke(7, 3)
    instance.confirm(4)
    instance.relocate(["host:1"])
    instance.revoke(8, 1)

    assert read(instance.next_response()) == (
        'revoked { queue_id: 7 epoch: 3 } revoked { queue_id: 8 epoch: 1 } relocation { addresses: "host:1" }'
        " confirmed: 4"
    )


def test_who_pulls_has_no_way_to_be_told_and_nothing_waits_for_it() -> None:
    instance = Instance("one", 1, 1)
    instance.revoke(7, 3)
    instance.confirm(4)

    assert (instance.outlet.held_bytes, instance.next_response()) == (0, b"")
