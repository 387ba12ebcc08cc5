"""What waits to be written to clients, in bytes over all streams and calls; and what becomes of those that do not read.

Each stream or call that is written to has an `Outlet`, which holds what waits there: messages in an instance's outbox,
answers for a publisher, and what gRPC has been given and has not taken over yet, because the client does not read. All
outlets together have one bound. Up to half of it whoever comes may have what it likes; beyond that each has an equal
share of the other half, so that those who do not read never take what others need.

Who has not taken a write for some seconds gives back what waits for it, and is given nothing more until it has. It is
ended when memory is short, or after a longer while.

A write that began when a stress message in it was permitted, and is under way when it no longer is, keeps the broker
from saying that it obeys the new configuration (`obeyed_version`): for some seconds, then it is ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from msgbroker.contract.errors import MessageCenterError, NotReadingError, OutgoingFullError
from msgbroker.server import clock
from msgbroker.server.loops import pause

log = structlog.get_logger(__name__)

_RETRY_AFTER_SECONDS: Final = 1.0
_COPIES_IN_WRITE: Final = 2
"""What is being written is in memory twice: with us, and with gRPC."""


@dataclass(frozen=True, slots=True)
class OutgoingConfig:
    """How much may wait to be written, and how long a client may take to read."""

    bytes_max: int = 64 * 1024 * 1024
    stalled_seconds: float = 2.0
    """A write that takes longer has stalled: its client does not read."""
    stalled_seconds_max: float = 60.0
    """After so long the stream or call is ended, whether memory is short or not."""
    look_seconds: float = 0.25
    """How often stalled writes are looked for."""
    outlets_per_look_max: int = 100
    """So many of them are seen to before others have their turn."""


def _nothing() -> None:
    """Do nothing."""


def _never() -> bool:
    return False


class Outlet:
    """One stream or call that is written to: what it holds, and the write that is under way to it.

    Whoever writes to it says what is to be called, by the methods `on_…`; until then nothing is.
    """

    __slots__ = (
        "_end",
        "_has_room",
        "_has_stalled",
        "_obeys",
        "_outgoing",
        "_write_bytes",
        "held_bytes",
        "is_closed",
        "is_ending",
        "is_stalled",
        "stress_version",
        "writing_since",
    )

    def __init__(self, outgoing: Outgoing, end: Callable[[MessageCenterError], object]) -> None:
        self._outgoing = outgoing
        self._end = end
        self._has_stalled: Callable[[], None] = _nothing
        self._has_room: Callable[[], None] = _nothing
        self._obeys: Callable[[], bool] = _never
        self._write_bytes = 0
        self.held_bytes = 0
        self.writing_since = 0.0
        self.stress_version: int | None = None
        """The configuration that permits the stress messages of the write under way; None where there are none."""
        self.is_stalled = False
        """Whether its client has not read for a while."""
        self.is_ending = False
        self.is_closed = False

    def on_stalled(self, give_back: Callable[[], None]) -> None:
        """Call *give_back* when its client has not read for a while: what waits for it is to be given back."""
        self._has_stalled = give_back

    def on_room(self, listener: Callable[[], None]) -> None:
        """Call *listener*, and nobody else, when there is room again after there was none for anybody."""
        self._has_room = listener

    def on_new_configuration(self, obeys: Callable[[], bool]) -> None:
        """Ask *obeys* when the configuration changed: whether what is being written would be written now."""
        self._obeys = obeys

    @property
    def room_bytes(self) -> int:
        """How many bytes more it may hold."""
        return 0 if self.is_stalled else self._outgoing.room_bytes(self)

    @property
    def is_writing(self) -> bool:
        """Whether a write to it is under way, which lasts as long as its client does not read."""
        return self in self._outgoing.writing

    def hold(self, size_bytes: int) -> None:
        """Count bytes that wait here; less, with a negative number."""
        if self.is_closed:
            # It holds nothing any more, whatever somebody still says of it.
            return
        self.held_bytes += size_bytes
        self._outgoing.hold(size_bytes)

    def begin_write(self, size_bytes: int, *, has_stress: bool = False) -> None:
        """Note that so much was given to gRPC."""
        if self.is_closed:
            return
        # Once for each answer to a publisher: put so that it costs little.
        held_bytes = self._write_bytes = _COPIES_IN_WRITE * size_bytes
        self.held_bytes += held_bytes
        self._outgoing.hold(held_bytes)
        self.writing_since = clock.now()
        self.stress_version = self._outgoing.version if has_stress else None
        self._outgoing.writing[self] = None

    def end_write(self) -> None:
        """Note that gRPC has taken it over, or never will."""
        outgoing = self._outgoing
        if self._write_bytes and not self.is_closed:
            self.held_bytes -= self._write_bytes
            outgoing.hold(-self._write_bytes)
        self._write_bytes = 0
        self.is_stalled = False
        outgoing.writing.pop(self, None)
        if self.stress_version is not None:
            is_outdated = self.stress_version != outgoing.version
            self.stress_version = None
            if is_outdated:
                outgoing.obeyed()

    def close(self) -> None:
        """Let go of all it holds: the stream or call has ended. A repeat changes nothing."""
        self.end_write()
        self.hold(-self.held_bytes)
        self.is_closed = True
        self._outgoing.forget(self)

    def follow(self, version: int) -> None:
        """Note a new configuration: a write under way obeys it, if all that is in it is still permitted."""
        if self.stress_version is not None and self._obeys():
            self.stress_version = version

    def give_back(self) -> None:
        """Give back what waits, and take nothing more until the write under way has ended."""
        self.is_stalled = True
        self._has_stalled()

    def has_room(self) -> None:
        """Tell whoever writes to it that there is room again."""
        self._has_room()

    def end(self, because: MessageCenterError) -> None:
        """End the stream or call, with what is under way to it."""
        self.is_ending = True
        self._end(because)


class Outgoing:
    """All outlets of this broker, with the bound they have together, and the configuration by which messages leave."""

    def __init__(self, config: OutgoingConfig | None = None) -> None:
        self.config = config or OutgoingConfig()
        self.bytes_held = 0
        self.version = 0
        """The version of the configuration by which messages leave."""
        self._obeyed_listener: Callable[[], None] = _nothing
        self.outlets: set[Outlet] = set()
        self._refused: set[Outlet] = set()
        """Outlets that found no room, and would have some if there were any."""
        self.writing: dict[Outlet, None] = {}
        """Outlets with a write under way, those that began first at the front."""
        self.ended_count = 0
        self.ended_for_room_at: float | None = None
        self._ample_bytes = self.config.bytes_max // 2

    def open(self, end: Callable[[MessageCenterError], object]) -> Outlet:
        """Return a new outlet; whoever opens it closes it. *end* ends its stream or call at once."""
        outlet = Outlet(self, end)
        self.outlets.add(outlet)
        return outlet

    @property
    def is_short(self) -> bool:
        """Whether each outlet has but its share."""
        return self.bytes_held >= self._ample_bytes

    @property
    def is_full(self) -> bool:
        """Whether all of the room is taken, so that nobody may have more."""
        return self.bytes_held >= self.config.bytes_max

    def check_room(self) -> None:
        """Raise OutgoingFullError where nobody new can be given anything."""
        if self.is_full:
            raise OutgoingFullError(self.bytes_held, self.config.bytes_max, _RETRY_AFTER_SECONDS)

    def room_bytes(self, outlet: Outlet) -> int:
        """Return how many bytes more *outlet* may hold; where nobody may have more, it will hear of room."""
        if not self.is_short:
            return self._ample_bytes
        if self.is_full:
            self._refused.add(outlet)
            return 0
        return self._ample_bytes // max(1, len(self.outlets)) - outlet.held_bytes

    def hold(self, size_bytes: int) -> None:
        """Count bytes of an outlet; less, with a negative number."""
        self.bytes_held += size_bytes
        if self._refused and not self.is_full:
            refused, self._refused = self._refused, set()
            for outlet in refused:
                outlet.has_room()

    def forget(self, outlet: Outlet) -> None:
        """Count an outlet no longer: it holds nothing any more."""
        self.outlets.discard(outlet)
        self._refused.discard(outlet)

    # --- the configuration --------------------------------------------------------------------------------------

    def follow(self, version: int) -> None:
        """Let messages leave by another configuration from now on."""
        self.version = version
        for outlet in self.writing:
            outlet.follow(version)

    def follow_nothing(self) -> None:
        """Let no stress message wait long to be written: the configuration that permits it may not be so any more."""
        self.version = 0

    def on_obeyed(self, listener: Callable[[], None]) -> None:
        """Call *listener* when a write ends that kept `obeyed_version` back."""
        self._obeyed_listener = listener

    def obeyed(self) -> None:
        """Note that a write ended that had begun by an older configuration."""
        self._obeyed_listener()

    def obeyed_version(self, version: int) -> int:
        """Return the configuration that all writes under way obey: *version*, or an older one."""
        return min((o.stress_version for o in self.writing if o.stress_version is not None), default=version)

    # --- those that do not read ---------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """See to stalled writes until *stop* is set."""
        while not stop.is_set():
            is_more = self.watch_once(clock.now())
            # Others have their turn in between.
            await pause(stop, 0 if is_more else self.config.look_seconds)

    def watch_once(self, now: float) -> bool:
        """See to some of the writes that have stalled; return whether there may be more to see to."""
        ended_before, held_bytes = self.ended_count, self.bytes_held
        is_more = self._see_to_stalled(now)
        if self.ended_count > ended_before:
            log.warning("outgoing.streams_ended", count=self.ended_count - ended_before, held_bytes=held_bytes)
        return is_more

    def _see_to_stalled(self, now: float) -> bool:
        seen_to = 0
        ending_bytes = sum(outlet.held_bytes for outlet in self.writing if outlet.is_ending)
        for outlet in list(self.writing):
            waited_seconds = now - outlet.writing_since
            if waited_seconds < self.config.stalled_seconds:
                # And so are all behind it.
                return False
            if seen_to >= self.config.outlets_per_look_max:
                return True
            if not outlet.is_stalled:
                outlet.give_back()
                seen_to += 1
            is_needed = self.bytes_held - ending_bytes >= self._ample_bytes
            if not outlet.is_ending and (is_needed or self._is_over(outlet, waited_seconds)):
                ending_bytes += outlet.held_bytes
                seen_to += 1
                self.ended_count += 1
                self.ended_for_room_at = now if is_needed else self.ended_for_room_at
                outlet.end(NotReadingError(waited_seconds))
        return False

    def _is_over(self, outlet: Outlet, waited_seconds: float) -> bool:
        """Return whether it is ended however much memory there is."""
        is_outdated = outlet.stress_version not in (None, self.version)
        return is_outdated or waited_seconds >= self.config.stalled_seconds_max
