"""Alarms of clients that ask for more than there is: they stand for a while, and go."""

from __future__ import annotations

from unittest.mock import patch
from uuid import UUID

import pytest

from msgbroker.contract.errors import TooManyStreamsError
from msgbroker.server import clock
from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.deliver.outgoing import Outgoing, OutgoingConfig
from msgbroker.server.edge.calls.places import Places
from msgbroker.server.edge.overload import OverloadWatch
from msgdb.reports.alarms import AlarmKind


class Pressed:
    """A watch, and what it watches."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.board = AlarmBoard(None, UUID(int=1), "here")  # type: ignore[arg-type]
        self.places = Places("publisher streams", 1)
        self.outgoing = Outgoing(OutgoingConfig(bytes_max=100))
        self.watch = OverloadWatch([self.places], self.outgoing, self.board, lambda: self.now)

    def stand(self) -> list[AlarmKind]:
        self.watch.look_once()
        return [alarm.kind for alarm in self.board.standing]


async def test_an_alarm_stands_for_a_minute_after_the_last_one_that_found_no_place() -> None:
    pressed = Pressed()
    with pressed.places.taken(), patch.object(clock, "now", lambda: pressed.now):
        assert pressed.stand() == []
        with pytest.raises(TooManyStreamsError, match="1 publisher streams"), pressed.places.taken():
            raise AssertionError("it found one")
        assert pressed.stand() == [AlarmKind.STREAMS_FULL]
        pressed.now += 59
        assert pressed.stand() == [AlarmKind.STREAMS_FULL]
        pressed.now += 1
        assert pressed.stand() == []
    assert pressed.places.count == 0


async def test_streams_that_are_ended_to_make_room_are_an_alarm_and_those_that_stalled_for_long_are_none() -> None:
    pressed = Pressed()
    outlet = pressed.outgoing.open(lambda _: None)
    with patch.object(clock, "now", lambda: 0.0):
        outlet.begin_write(10)
    pressed.outgoing.watch_once(pressed.now)
    assert (pressed.outgoing.ended_count, pressed.stand()) == (1, [])
    greedy = pressed.outgoing.open(lambda _: None)
    with patch.object(clock, "now", lambda: pressed.now - 3):
        greedy.begin_write(30)
    pressed.outgoing.watch_once(pressed.now)

    assert (pressed.outgoing.ended_count, pressed.stand()) == (2, [AlarmKind.OUTGOING_FULL])
