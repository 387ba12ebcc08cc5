"""What handlers see of a message, and what the client alone does with it."""

from __future__ import annotations

import re
from pathlib import Path

from msgbroker.client import Message
from msgbroker.client.handle.handed import HandedMessage
from msgbroker.client.testing import InMemoryCenter

DOCS = (Path(__file__).parents[4] / "docs" / "client.md").read_text()


def names_of(kind: type) -> set[str]:
    """What an editor offers behind the dot."""
    return {name for name in dir(kind) if not name.startswith("_")}


def test_a_message_has_what_handlers_are_told_of_and_nothing_else() -> None:
    told = set(re.findall(r"`message\.(\w+)", DOCS))

    assert told
    assert told <= names_of(Message)
    assert names_of(Message) == {
        "attempt",
        "body",
        "born_at",
        "born_host",
        "event_code",
        "extend",
        "headers",
        "json",
        "key",
        "message_id",
        "ordering_key",
        "publisher_group",
        "queue_id",
        "queue_offset",
        "redrives",
        "replayed",
        "stored_at",
        "stress",
        "text",
        "topic",
    }


async def test_what_handlers_are_given_is_a_message_that_can_be_kept_and_what_tests_look_at_is_not() -> None:
    given: list[tuple[type, bool]] = []
    async with InMemoryCenter() as center:

        @center.subscriber(group="SG", topic="TP")
        async def handle(message: Message) -> None:
            given.append((type(message), message.extend(30)))

        await center.start()
        await center.publish("TP", "EC", b"1")
        await center.settle_all()

        assert given == [(HandedMessage, True)]
        (published,) = center.published
        assert not published.extend(30)
        assert published.queue_id == (await center.publish("TP", "EC", b"2")).queue_id
