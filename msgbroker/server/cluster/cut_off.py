"""Whether this broker may go on by its configuration while it is cut off from confdb.

Whoever reports that a change is active waits for the brokers that are live in the registry, and for those that hold
lanes. A broker that cannot beat is struck off after some seconds; so before that the change is noted in msgdb, as the
mark (`msgdb.log.config_mark`). A broker that beats need not heed it: it is waited for. One that has not beaten for
CONTACT_SECONDS takes messages in for READING_SECONDS after each reading of the mark, and serves a lane only if the mark
was read after its claim. A mark beyond what it knows means that it is *behind*: it gives its lanes up and serves nobody
until it has read the new configuration. While the mark cannot be read, its leases run out by themselves.

After it was struck off, a beat alone does not put a broker right: the configuration must have been looked at since.

A mark that confdb itself has not come to is of a configuration that was replaced (a backup was restored). A broker
knows it by having looked at confdb after the mark was read, and does not heed it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final

import structlog

from confdb.brokers import LIVE_SECONDS
from confdb.snapshot import SnapshotFeed
from msgbroker.contract.errors import ConfigOutdatedError, StoreUnavailableError
from msgbroker.server import clock
from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.loops import PatientCall, pause
from msgdb.log.config_mark import ConfigMark, read_mark
from msgdb.reports.alarms import Alarm, AlarmKind
from msgdb.store import MessageStore

log = structlog.get_logger(__name__)

CONTACT_SECONDS: Final = LIVE_SECONDS - 1.0
"""A broker that was heard of so lately is waited for by whoever reports a change as active."""
READING_SECONDS: Final = 3.0
"""How long a broker that is cut off takes messages in after a reading of the mark: so late it may notice a change."""
_LOOK_SECONDS: Final = 1.0
_ANSWER_SECONDS_MAX: Final = 2.0
_ALARM: Final = "the configuration"


class CutOff:
    """Knows whether a change of the configuration may have been reported active that this broker has not heard of.

    Whoever takes messages in, or instances, or lanes, asks it before.
    """

    def __init__(self, *, store: MessageStore, feed: SnapshotFeed, board: AlarmBoard) -> None:
        self.is_behind = False
        """Whether it is certain that a change that this broker does not know may have been reported active."""
        self._callbacks_behind: list[Callable[[ConfigOutdatedError], None]] = []
        self._callbacks_current: list[Callable[[], None]] = []
        self._store = store
        self._feed = feed
        self._board = board
        self._patient_look = PatientCall(self._look, _ANSWER_SECONDS_MAX)
        self._beaten_at = -math.inf
        """When the last beat was sent that was answered."""
        self._joined_at = math.inf
        """When the first beat was answered after a time in which none may have been; by time.monotonic()."""
        self._current_until = -math.inf
        """Until when messages are taken in without asking again."""
        self._asked_at = -math.inf
        """The time at which the mark was asked for that was seen last."""
        self._seen: ConfigMark | None = None
        """The mark as it was read last."""
        self._seen_at = math.inf
        """When it had been read; by time.monotonic()."""
        self._explained: ConfigMark | None = None
        """The last mark after which confdb was looked at: what is known here is as new, or it is of what is lost."""

    # --- who asks ---------------------------------------------------------------------------------------------------

    def check_current(self) -> None:
        """Raise ConfigOutdatedError or StoreUnavailableError where messages may not be taken in.

        Asked once for each frame.
        """
        if clock.now() >= self._current_until:
            self._check_contact()

    def check_not_behind(self) -> None:
        """Raise ConfigOutdatedError if nobody can be served here."""
        if self.is_behind:
            raise ConfigOutdatedError(self._feed.current.version)

    async def is_current(self) -> bool:
        """Return whether no change that was reported active before this call is unknown here."""
        if self.is_behind or not self.is_in_contact:
            try:
                # A reading of its own: one that is under way may have begun before what the caller did last.
                await self._look()
            except StoreUnavailableError:
                return False
        return not self.is_behind

    @property
    def is_in_contact(self) -> bool:
        """Whether whoever reports a change as active waits for this broker, and did so since it knows what it does."""
        return clock.now() < self._beaten_at + CONTACT_SECONDS and self._feed.checked_at > self._joined_at

    def _check_contact(self) -> None:
        self.check_not_behind()
        if not self.is_in_contact:
            raise StoreUnavailableError(
                "this broker is cut off from the configuration, and cannot ask whether it changed"
            )
        self._current_until = self._beaten_at + CONTACT_SECONDS

    # --- who is told ------------------------------------------------------------------------------------------------

    def on_behind(self, callback: Callable[[ConfigOutdatedError], None]) -> None:
        """Call *callback* when this broker turns out to be behind, with what is said to those who are refused."""
        self._callbacks_behind.append(callback)

    def on_current(self, callback: Callable[[], None]) -> None:
        """Call *callback* when this broker is behind no longer."""
        self._callbacks_current.append(callback)

    # --- what is found out ------------------------------------------------------------------------------------------

    def beaten(self, asked_at: float) -> None:
        """Note that a beat was answered that was sent at *asked_at*."""
        if clock.now() - self._beaten_at >= LIVE_SECONDS:
            # It may have been struck off in between, and not have been waited for.
            self._joined_at = time.monotonic()
        self._beaten_at = asked_at

    async def run(self, stop: asyncio.Event) -> None:
        """Look at the mark until *stop* is set."""
        while not stop.is_set():
            try:
                await self.look_once()
            except (StoreUnavailableError, TimeoutError) as error:
                log.warning("cut_off.store_unavailable", is_in_contact=self.is_in_contact, problem=str(error))
            await pause(stop, _LOOK_SECONDS)

    async def look_once(self) -> None:
        """Read the mark, and do what follows from it. Raises StoreUnavailableError, or TimeoutError."""
        await self._patient_look()

    async def _look(self) -> None:
        asked_at = clock.now()
        async with self._store.connection() as connection:
            mark = await read_mark(connection)
        if asked_at < self._asked_at:
            # Another one, asked later, has answered already.
            return
        self._asked_at = asked_at
        if self._feed.checked_at > self._seen_at:
            self._explained = self._seen
        self._seen, self._seen_at = mark, time.monotonic()
        is_beyond = self._is_beyond(mark)
        is_behind = is_beyond and not self.is_in_contact
        if is_behind:
            self._current_until = -math.inf
        elif not is_beyond:
            self._current_until = max(self._current_until, asked_at + READING_SECONDS)
        if is_behind is not self.is_behind:
            self.is_behind = is_behind
            self._tell(mark)

    def _is_beyond(self, mark: ConfigMark) -> bool:
        """Return whether something may have been reported active that is not known here."""
        known = self._explained
        version = self._feed.current.version
        if known is None:
            return mark.version > version
        return mark.era != known.era or mark.version > max(version, known.version)

    def _tell(self, mark: ConfigMark) -> None:
        version = self._feed.current.version
        if not self.is_behind:
            log.warning("cut_off.current_again", version=version)
            self._board.clear(AlarmKind.CONFIG_OUTDATED, _ALARM)
            for callback in self._callbacks_current:
                callback()
            return
        log.error("cut_off.behind", version=version, mark=mark.version)
        detail = f"this broker is cut off from confdb and knows version {version}, where {mark.version} may be active"
        self._board.raise_alarm(
            Alarm(AlarmKind.CONFIG_OUTDATED, _ALARM, f"{detail}: it serves nobody until it has read it")
        )
        for callback_behind in self._callbacks_behind:
            callback_behind(ConfigOutdatedError(version))
