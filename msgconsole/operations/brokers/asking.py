"""Asking all live brokers, side by side, for what only their memory has; and joining what they say.

Who does not answer in time is named: then the answer is incomplete, and whoever shows it says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from confdb.brokers import BrokerRegistry, LiveBroker
from msgbroker.client.connect.inspection import Inspector, MessagePlace, MessageStand, open_inspector
from msgbroker.contract.errors import MessageCenterError
from msgbroker.contract.whereabouts import Stand
from msgconsole.operations.stores import Stores

AnswerT = TypeVar("AnswerT")

ASK_SECONDS_MAX: Final = 3.0
"""How long one broker may take, to be connected to and to answer."""
_ASKED_MAX: Final = 32
"""So many brokers are asked at a time."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A live broker that has not answered."""

    broker: str
    """Its address; its id, where nothing has been heard of it any more."""
    why: str


@dataclass(frozen=True, slots=True)
class Answer(Generic[AnswerT]):
    """What one broker has answered."""

    broker: LiveBroker
    said: AnswerT


@dataclass(frozen=True, slots=True)
class Asked(Generic[AnswerT]):
    """What all brokers have answered, by their addresses, and which have not."""

    answers: Sequence[Answer[AnswerT]]
    unanswered: Sequence[Unanswered]


@dataclass(frozen=True, slots=True)
class PlaceFound:
    """Where a message is, and by which broker's word."""

    broker: str | None
    """The address of the broker that owns the lane; None: none of those that have answered does."""
    stand: MessageStand


@dataclass(frozen=True, slots=True)
class InFlightReport:
    """Where messages are, by the brokers' memories."""

    found: dict[MessagePlace, PlaceFound]
    """One for each place that was asked for."""
    unanswered: Sequence[Unanswered]
    """Brokers that have not answered: of what is NOT_OWNED, they may own the lane."""


async def find_in_flight(
    stores: Stores, places: Sequence[MessagePlace], *, seconds_max: float = ASK_SECONDS_MAX
) -> InFlightReport:
    """Return where messages are, as far as a broker's memory has it: with whom they are, or when they come again."""
    asked = await ask_brokers(stores, lambda inspector: inspector.in_flight(places), seconds_max=seconds_max)
    nowhere = PlaceFound(None, MessageStand(Stand.NOT_OWNED, epoch=0, attempt=0))
    found = dict.fromkeys(places, nowhere)
    for answer in asked.answers:
        for place, stand in zip(places, answer.said, strict=True):
            # Where two own a lane by their own word, one of them has lost it: its epoch is the lower one.
            if stand.stand is not Stand.NOT_OWNED and stand.epoch >= found[place].stand.epoch:
                found[place] = PlaceFound(answer.broker.address, stand)
    return InFlightReport(found, asked.unanswered)


async def ask_brokers(
    stores: Stores, ask: Callable[[Inspector], Awaitable[AnswerT]], *, seconds_max: float = ASK_SECONDS_MAX
) -> Asked[AnswerT]:
    """Ask all live brokers at their registered addresses, each for *seconds_max* at most; none holds up the others."""
    brokers = await BrokerRegistry(stores.config).list_live()
    places = asyncio.Semaphore(_ASKED_MAX)

    async def ask_one(broker: LiveBroker) -> Answer[AnswerT] | Unanswered:
        async with places:
            return await _ask_one(broker, ask, seconds_max)

    said = await asyncio.gather(*(ask_one(broker) for broker in brokers))
    return Asked(
        [each for each in said if isinstance(each, Answer)], [each for each in said if isinstance(each, Unanswered)]
    )


async def _ask_one(
    broker: LiveBroker, ask: Callable[[Inspector], Awaitable[AnswerT]], seconds_max: float
) -> Answer[AnswerT] | Unanswered:
    try:
        async with asyncio.timeout(seconds_max), open_inspector(broker.address, seconds_max) as inspector:
            return Answer(broker, await ask(inspector))
    except TimeoutError:
        return Unanswered(broker.address, f"no answer within {seconds_max:g} s")
    except MessageCenterError as error:
        return Unanswered(broker.address, error.message)
