"""Event codes of open topics: each that was used is registered, whenever it was learnt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from msgbroker.contract import limits
from msgbroker.contract.errors import ConfigUnavailableError, TopicNotFoundError
from msgbroker.server.publish.event_code_registrar import EventCodeRegistrar
from tests.support.broker_builders import TOPIC, route

OPEN = route(is_open=True)


class Registered:
    """Stands for the services: what they were asked to register, and what happens meanwhile."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.meanwhile: Callable[[], Any] = lambda: None

    @property
    def event_codes(self) -> Registered:
        return self

    async def learn(self, namespace: str, topic: str, names: Sequence[str]) -> Sequence[str]:
        assert (namespace, topic) == ("default", TOPIC)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        self.batches.append([*names])
        return ()


@pytest.fixture
def registered() -> Registered:
    return Registered()


@pytest.fixture
def registrar(registered: Registered) -> EventCodeRegistrar:
    return EventCodeRegistrar(registered)  # type: ignore[arg-type]


async def test_what_is_learnt_while_others_are_registered_is_registered_next(
    registered: Registered, registrar: EventCodeRegistrar
) -> None:
    registered.meanwhile = lambda: registrar.learn(OPEN, "EC_TWO")
    registrar.learn(OPEN, "EC_ONE")
    for _ in range(3):
        await registrar.register_once()

    assert registered.batches == [["EC_ONE"], ["EC_TWO"]]


async def test_of_more_than_a_topic_may_have_the_rest_is_registered_in_the_next_round(
    registered: Registered, registrar: EventCodeRegistrar
) -> None:
    codes = [f"EC_{number:04}" for number in range(limits.EVENT_CODES_PER_TOPIC_MAX + 1)]
    for code in codes:
        registrar.learn(OPEN, code)
    for _ in range(3):
        await registrar.register_once()

    assert registered.batches == [codes[:-1], codes[-1:]]


async def test_what_could_not_be_registered_now_is_registered_later(
    registered: Registered, registrar: EventCodeRegistrar
) -> None:
    def fail() -> None:
        raise ConfigUnavailableError("away")

    registered.meanwhile = fail
    registrar.learn(OPEN, "EC_ONE")
    with pytest.raises(ConfigUnavailableError):
        await registrar.register_once()
    registrar.learn(OPEN, "EC_TWO")
    await registrar.register_once()

    assert registered.batches == [["EC_ONE", "EC_TWO"]]


async def test_codes_of_a_topic_that_is_gone_are_forgotten(
    registered: Registered, registrar: EventCodeRegistrar
) -> None:
    def fail() -> None:
        raise TopicNotFoundError("default", TOPIC)

    registered.meanwhile = fail
    registrar.learn(OPEN, "EC_ONE")
    for _ in range(2):
        await registrar.register_once()

    assert registered.batches == []
