"""Which queue of a topic's layout a message goes to."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

TOPICS_REMEMBERED_MAX: Final = 10_000


def queue_for_key(ordering_key: str, queue_count: int) -> int:
    """Return the ordinal of the queue of *ordering_key*. The same in every process and version, or order is lost.

    CRC-32 of the UTF-8 bytes, spread by a multiplication (Knuth's, modulo 2^32) and scaled to the count: the CRC alone
    is linear, and keys that differ in few bits would crowd in few queues.
    """
    spread = zlib.crc32(ordering_key.encode()) * 0x9E3779B1 & 0xFFFFFFFF
    return spread * queue_count >> 32


class UnkeyedSpreader:
    """Chooses queues for messages without an ordering key: one queue per topic and batch.

    It stays with the queue it wrote last for some batches, which keeps a transaction's locks few and the log's runs
    long, and then goes on to the next one, so that all lanes of a group get their share.
    """

    def __init__(self, first_turn: int = 0, batches_per_queue: int = 8, avoided_batches: int = 64) -> None:
        # Brokers that start at different turns seldom want the same queue.
        self._first_turn = first_turn
        self._batches_per_queue = batches_per_queue
        self._avoided_batches = avoided_batches
        self._batch = 0
        self._chosen: dict[int, int] = {}
        self._turns: dict[int, int] = {}
        self._avoided_until: dict[int, int] = {}

    def begin_batch(self) -> None:
        """Begin another batch: queues may change."""
        self._batch += 1
        self._chosen.clear()
        if self._avoided_until:
            self._avoided_until = {q: until for q, until in self._avoided_until.items() if until > self._batch}

    def choose(self, topic_id: int, queue_ids: Sequence[int]) -> int:
        """Return which of *queue_ids* takes the topic's messages of this batch."""
        chosen = self._chosen.get(topic_id)
        if chosen is None or chosen not in queue_ids:
            chosen = self._chosen[topic_id] = self._choose(topic_id, queue_ids)
        return chosen

    def avoid(self, queue_id: int) -> None:
        """Prefer other queues for a while: another broker holds this one."""
        self._avoided_until[queue_id] = self._batch + self._avoided_batches
        self._chosen = {topic_id: chosen for topic_id, chosen in self._chosen.items() if chosen != queue_id}

    def _choose(self, topic_id: int, queue_ids: Sequence[int]) -> int:
        turn = self._turns.pop(topic_id, self._first_turn * self._batches_per_queue)
        if len(self._turns) >= TOPICS_REMEMBERED_MAX:
            del self._turns[next(iter(self._turns))]
        self._turns[topic_id] = turn + 1
        place = turn // self._batches_per_queue % len(queue_ids)
        in_order = [*queue_ids[place:], *queue_ids[:place]]
        return next((queue_id for queue_id in in_order if queue_id not in self._avoided_until), in_order[0])
