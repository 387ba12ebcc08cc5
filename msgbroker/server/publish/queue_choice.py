"""Which queue each message of a batch goes to, by its topic's layout; topics without one to be had are told apart."""

from __future__ import annotations

from collections.abc import Iterator

from confdb.routes import TopicRoute
from msgbroker.contract.errors import StoreUnavailableError, TopicSetAsideError
from msgbroker.engine.routing import UnkeyedSpreader, queue_for_key
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.log.message import LogMessage
from msgbroker.server.log.topic_queues import TopicQueues
from msgdb.append.plan import AppendFrame
from msgdb.postgres.failures import RowsHeldError


class QueueChoice:
    """Gives the messages of a batch their queues. What is found out about a topic holds for that batch."""

    def __init__(self, queues: TopicQueues, topics_aside: SetAside[int], *, first_turn: int) -> None:
        self._queues = queues
        self._topics_aside = topics_aside
        self._spreader = UnkeyedSpreader(first_turn)
        self._layouts: dict[int, tuple[int, ...]] = {}
        self.queues_at_most = 0
        """How many queues the topics of this batch have, chosen or not."""
        self._refused: dict[int, StoreUnavailableError | TopicSetAsideError] = {}

    def begin_batch(self) -> None:
        """Begin another batch: layouts and queues may change."""
        self._spreader.begin_batch()
        self._layouts.clear()
        self.queues_at_most = 0
        self._refused.clear()

    def avoid(self, queue_id: int) -> None:
        """Prefer other queues for a while: another broker holds this one."""
        self._spreader.avoid(queue_id)

    async def choose(self, frame: AppendFrame) -> None:
        """Give each message of *frame* its queue: by its ordering key, or any.

        Raises TopicSetAsideError or RowsHeldError, which are about one topic, or StoreUnavailableError.
        """
        layouts = self._layouts
        for message in frame.messages:
            assert isinstance(message, LogMessage)
            route = message.route
            assert route is not None
            queue_ids = layouts.get(route.topic_id)
            if queue_ids is None:
                queue_ids = layouts[route.topic_id] = await self._queue_ids(route)
                self.queues_at_most += len(queue_ids)
            if message.ordering_key:
                message.queue_id = queue_ids[queue_for_key(message.ordering_key, len(queue_ids))]
            else:
                message.queue_id = self._spreader.choose(route.topic_id, queue_ids)

    async def _queue_ids(self, route: TopicRoute) -> tuple[int, ...]:
        refused = self._refused.get(route.topic_id)
        if refused is not None:
            raise refused
        try:
            return await self._ensured(route)
        except (TopicSetAsideError, RowsHeldError) as error:
            # For all of the batch: each try may take a while.
            self._refused[route.topic_id] = error
            raise

    async def _ensured(self, route: TopicRoute) -> tuple[int, ...]:
        aside = self._topics_aside
        if aside.units and aside.is_waiting(route.topic_id):
            raise TopicSetAsideError(route.name, "it failed a moment ago")
        queue_ids: tuple[int, ...] = ()
        with aside.contained(route.topic_id):
            queue_ids = (await self._queues.ensure(route)).queue_ids
        if not queue_ids:
            raise TopicSetAsideError(route.name, "its queues cannot be made")
        return queue_ids


def routes_of(frame: AppendFrame) -> Iterator[TopicRoute]:
    """Give the topic of each message of *frame*."""
    for message in frame.messages:
        assert isinstance(message, LogMessage)
        assert message.route is not None
        yield message.route
