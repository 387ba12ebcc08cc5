"""What waits for clients: bounded over all of them, shared fairly, and taken from those that do not read."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from msgbroker.contract.errors import MessageCenterError, NotReadingError, OutgoingFullError
from msgbroker.server import clock
from msgbroker.server.deliver.outgoing import Outgoing, OutgoingConfig, Outlet

CONFIG = OutgoingConfig(bytes_max=1_000, stalled_seconds=2.0, stalled_seconds_max=60.0, outlets_per_look_max=3)


class Streams:
    """Streams that are written to; what becomes of each is noted."""

    def __init__(self, count: int = 1, config: OutgoingConfig = CONFIG) -> None:
        self.outgoing = Outgoing(config)
        self.outgoing.follow(1)
        self.gave_back: list[int] = []
        self.ended: list[int] = []
        self.heard_of_room: list[int] = []
        self.outlets = [self._open(number) for number in range(count)]

    def _open(self, number: int) -> Outlet:
        def end(because: MessageCenterError) -> None:
            assert isinstance(because, NotReadingError)
            self.ended.append(number)

        outlet = self.outgoing.open(end)
        outlet.on_stalled(lambda: self.gave_back.append(number))
        outlet.on_room(lambda: self.heard_of_room.append(number))
        return outlet

    def write(self, number: int, size_bytes: int, at: float = 0.0, *, has_stress: bool = False) -> None:
        with patch.object(clock, "now", lambda: at):
            self.outlets[number].begin_write(size_bytes, has_stress=has_stress)


def test_below_half_of_the_bound_everybody_may_have_what_is_there() -> None:
    streams = Streams(2)
    first, second = streams.outlets
    first.hold(499)
    assert first.room_bytes > 0
    assert second.room_bytes > 0


def test_above_half_each_has_an_equal_share_of_the_other_half_whatever_one_has_taken() -> None:
    streams = Streams(5)
    greedy, *others = streams.outlets
    greedy.hold(600)

    assert greedy.room_bytes <= 0
    assert [outlet.room_bytes for outlet in others] == [100] * 4
    others[0].hold(60)
    assert [outlet.room_bytes for outlet in others] == [40, 100, 100, 100]


def test_nobody_gets_more_when_it_is_full_and_everybody_who_asked_hears_of_room() -> None:
    streams = Streams(4)
    streams.outlets[0].hold(1_000)
    assert [outlet.room_bytes for outlet in streams.outlets[:3]] == [0, 0, 0]
    with pytest.raises(OutgoingFullError, match="1000 bytes"):
        streams.outgoing.check_room()
    assert streams.heard_of_room == []
    streams.outlets[0].hold(-1)

    assert sorted(streams.heard_of_room) == [0, 1, 2]
    streams.outlets[0].hold(-1)
    assert len(streams.heard_of_room) == 3


def test_what_is_being_written_counts_twice_until_it_has_been_taken_over() -> None:
    streams = Streams()
    streams.write(0, 100)
    assert streams.outgoing.bytes_held == 200
    streams.outlets[0].end_write()
    assert streams.outgoing.bytes_held == 0


def test_a_stream_that_has_ended_holds_nothing_whatever_is_said_of_it_later() -> None:
    streams = Streams(2)
    outlet = streams.outlets[0]
    outlet.hold(100)
    streams.write(0, 50)
    outlet.close()
    outlet.close()
    outlet.hold(70)
    streams.write(0, 50)

    assert (streams.outgoing.bytes_held, len(streams.outgoing.outlets), len(streams.outgoing.writing)) == (0, 1, 0)


def test_who_has_not_read_for_a_while_gives_back_what_waits_once_and_gets_more_when_it_has_read() -> None:
    streams = Streams(2)
    streams.write(0, 10)
    streams.write(1, 10, at=1.5)
    for now in (1.9, 2.0, 3.0):
        streams.outgoing.watch_once(now)

    assert (streams.gave_back, streams.ended) == ([0], [])
    assert streams.outlets[0].room_bytes == 0
    streams.outlets[0].end_write()
    assert streams.outlets[0].room_bytes > 0


def test_those_that_do_not_read_are_ended_while_memory_is_short_the_longest_first() -> None:
    streams = Streams(4)
    for number in range(4):
        streams.write(number, 100, at=number / 10)
    streams.outgoing.watch_once(2.05)
    assert streams.ended == [0]
    for _ in range(2):
        # What those on their way out still hold is not held against the others.
        streams.outgoing.watch_once(3.0)
        assert streams.ended == [0, 1]
    streams.outlets[3].hold(200)
    streams.outgoing.watch_once(3.0)

    assert streams.ended == [0, 1, 2]


def test_who_has_not_read_for_very_long_is_ended_however_much_memory_there_is() -> None:
    streams = Streams()
    streams.write(0, 1)
    streams.outgoing.watch_once(59.9)
    assert streams.ended == []
    streams.outgoing.watch_once(60.0)
    streams.outgoing.watch_once(61.0)
    assert streams.ended == [0]


def test_a_look_sees_to_a_bounded_number_and_says_that_there_are_more() -> None:
    streams = Streams(7)
    for number in range(7):
        streams.write(number, 1)
    looks = [streams.outgoing.watch_once(2.0) for _ in range(3)]

    assert looks == [True, True, False]
    assert streams.gave_back == list(range(7))


def test_a_version_is_obeyed_once_no_write_is_under_way_that_it_forbids() -> None:
    streams = Streams(3)
    obeyed: list[int] = []
    streams.outgoing.on_obeyed(lambda: obeyed.append(streams.outgoing.obeyed_version(2)))
    streams.write(0, 1, has_stress=True)
    streams.write(1, 1, has_stress=True)
    streams.write(2, 1)
    streams.outlets[1].on_new_configuration(lambda: True)
    streams.outgoing.follow(2)
    assert streams.outgoing.obeyed_version(2) == 1

    streams.outlets[2].end_write()
    streams.outlets[1].end_write()
    assert obeyed == []
    streams.outlets[0].end_write()
    assert obeyed == [2]


def test_a_write_that_keeps_a_version_back_is_ended_once_it_has_stalled() -> None:
    streams = Streams(2)
    streams.write(0, 1, has_stress=True)
    streams.write(1, 1)
    streams.outgoing.watch_once(10.0)
    assert streams.ended == []
    streams.outgoing.follow(2)
    streams.outgoing.watch_once(10.0)

    assert streams.ended == [0]
    # Until it is gone, for certain.
    assert streams.outgoing.obeyed_version(2) == 1


def test_writes_that_begin_under_a_new_version_obey_it() -> None:
    streams = Streams()
    streams.outgoing.follow(2)
    streams.write(0, 1, has_stress=True)

    assert streams.outgoing.obeyed_version(2) == 2
