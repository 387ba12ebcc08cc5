"""The in-memory log: admission of a message, its queue, its receipt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from confdb.routes import TopicRoute
from msgbroker.client.testing.registry import Registry, queue_ids_of
from msgbroker.client.values.message import Receipt
from msgbroker.contract.errors import (
    BodyTooLargeError,
    StressRefusedError,
    TopicClosedError,
)
from msgbroker.engine.routing import queue_for_key
from msgbroker.engine.stress import is_stress
from msgbroker.v1 import message_pb2, publisher_pb2, subscriber_pb2


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of the log, in the form the engine looks at."""

    wire: message_pb2.Message
    message_id: UUID
    queue_id: int
    queue_offset: int
    stored_at_us: int
    event_code: str
    headers: Mapping[str, str]
    ordering_key: str
    stress: bool
    publisher_group: str
    born_host: str
    size_bytes: int
    target_group: int | None = None

    @property
    def held_bytes(self) -> int:
        """What it costs in memory: nothing here has a bound."""
        return self.size_bytes

    def delivery(self, attempt: int) -> subscriber_pb2.Delivery:
        """Return the message as a broker would send it."""
        return subscriber_pb2.Delivery(
            message=self.wire,
            queue_offset=self.queue_offset,
            message_id=self.message_id.bytes,
            stored_at_us=self.stored_at_us,
            stress=self.stress,
            publisher_group=self.publisher_group,
            born_host=self.born_host,
            attempt=attempt,
        )


class MemoryLog:
    """All queues of a center in memory. Messages stay as long as the center does."""

    def __init__(self, registry: Registry, clock: Callable[[], float], namespace: str) -> None:
        self.messages: list[StoredMessage] = []
        """All messages, in the order in which they were stored."""
        self._registry = registry
        self._clock = clock
        self._namespace = namespace
        self._queues: dict[int, list[StoredMessage]] = {}

    def queue(self, queue_id: int) -> list[StoredMessage]:
        """Return the messages of a queue; their index is their offset."""
        return self._queues.setdefault(queue_id, [])

    def tails(self, topic: TopicRoute) -> dict[int, int]:
        """Return the next offset of each queue of a topic."""
        return {queue_id: len(self.queue(queue_id)) for queue_id in queue_ids_of(topic)}

    def append(self, wire: message_pb2.Message, publisher_group: str, born_host: str) -> Receipt:
        """Check and store a message as a broker does."""
        self._registry.check_publisher_group(publisher_group)
        topic = self._admit_type(wire.topic, wire.event_code)
        if len(wire.body) > topic.body_bytes_max:
            raise BodyTooLargeError(topic.name, len(wire.body), topic.body_bytes_max)
        headers = dict(wire.headers)
        stress = is_stress(headers, self._registry.snapshot.stress_rules.get(self._namespace, ()))
        if stress and topic.stress_refused:
            raise StressRefusedError(topic.name)
        ordering_key = wire.ordering_key or wire.key
        ordinal = queue_for_key(ordering_key, topic.queue_count) if ordering_key else 0
        queue_id = queue_ids_of(topic)[ordinal]
        queue = self.queue(queue_id)
        stored_at_us = int(self._clock() * 1_000_000)
        stored = StoredMessage(
            wire=wire,
            message_id=_message_id(stored_at_us, len(self.messages)),
            queue_id=queue_id,
            queue_offset=len(queue),
            stored_at_us=stored_at_us,
            event_code=wire.event_code,
            headers=headers,
            ordering_key=ordering_key,
            stress=stress,
            publisher_group=publisher_group,
            born_host=born_host,
            size_bytes=len(wire.body),
        )
        queue.append(stored)
        self.messages.append(stored)
        return _receipt(stored)

    def _admit_type(self, topic_name: str, event_code: str) -> TopicRoute:
        registry = self._registry
        topic = registry.find_topic(topic_name)
        if topic is None and registry.takes_unknown:
            topic = registry.put_topic(topic_name, [event_code])
        topic = topic or registry.get_topic(topic_name)
        if topic.is_closed:
            raise TopicClosedError(topic_name)
        if event_code not in topic.event_codes:
            if not registry.takes_unknown:
                registry.check_event_code_of(topic, event_code)
            registry.add_event_code(topic, event_code)
        return registry.get_topic(topic_name)


def _receipt(stored: StoredMessage) -> Receipt:
    return Receipt(
        publisher_pb2.PublishResult(
            first_message_id=stored.message_id.bytes,
            stored_at_us=stored.stored_at_us,
            queue_ids=[stored.queue_id],
            queue_offsets=[stored.queue_offset],
        ),
        0,
    )


def _message_id(stored_at_us: int, number: int) -> UUID:
    """Return a UUIDv7: its time, then a number instead of randomness."""
    return UUID(int=(stored_at_us // 1_000) << 80 | 0x7 << 76 | 0b10 << 62 | number)
