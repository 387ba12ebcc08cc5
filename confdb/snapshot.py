"""Keep the snapshot a broker routes by up to date.

The version, polled, is the truth; a NOTIFY, listened for on a connection of its own, only shortens the wait. While
confdb is out of reach, or does not give what it should, the last snapshot stays, and `healthy` says that it may be old.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final

import structlog

from confdb.loading import SnapshotLoader, load_snapshot, read_version
from confdb.models import CONFIG_CHANNEL
from confdb.routes import Snapshot
from confdb.store import ConfigStore, as_outage, translated
from msgbroker.contract.errors import ConfigUnavailableError

__all__ = ["SnapshotFeed", "load_snapshot", "read_version"]

log = structlog.get_logger(__name__)

POLL_SECONDS: Final = 0.5
LISTEN_RETRY_SECONDS: Final = 2.0
STALLED_SECONDS: Final = 3.0
"""A round that takes longer is a failing one: giving up on a database that answers nothing takes far longer."""


class SnapshotFeed:
    """Keeps the newest snapshot of the configuration, and tells whoever wants to hear of the next one."""

    def __init__(
        self,
        store: ConfigStore,
        *,
        poll_seconds: float = POLL_SECONDS,
        listen: bool = True,
        understood: frozenset[str] | None = None,
    ) -> None:
        """Make a feed of *store*, for who understands these features (by default: those of this version).

        `listen` off: a transaction pooler in between cannot carry LISTEN.
        """
        self._store = store
        self._loader = SnapshotLoader(store, understood)
        self.understood = self._loader.understood
        self._poll_seconds = poll_seconds
        self._listen = listen
        self._callbacks: list[Callable[[Snapshot], None]] = []
        self._hint = asyncio.Event()
        self.current = Snapshot(version=0)
        """The newest snapshot; empty, of version 0, before the first load."""
        self._failing_since: float | None = None
        self._round_since: float | None = None
        self.checked_at = -math.inf
        """The time.monotonic() at which the last round began that found or made `current` that of confdb."""

    @property
    def failing_since(self) -> float | None:
        """Since when it cannot be loaded, by time.monotonic(); None while all is well."""
        if self._failing_since is None and self._round_since is not None:
            return self._round_since if time.monotonic() - self._round_since > STALLED_SECONDS else None
        return self._failing_since

    def get(self) -> Snapshot:
        """Return the current snapshot: for those that ask each time."""
        return self.current

    @property
    def healthy(self) -> bool:
        """Whether the last round reached confdb, that is, whether `current` is known to be current."""
        return self.failing_since is None

    def on_change(self, callback: Callable[[Snapshot], None]) -> None:
        """Call *callback* with each new snapshot, after `current` has become it."""
        self._callbacks.append(callback)

    async def load_once(self) -> bool:
        """Load the snapshot if there is a new version, and return whether there was.

        Raises ConfigUnavailableError or NotMigratedError, with `current` as it was.
        """
        began_at = self._round_since = time.monotonic()
        try:
            snapshot = await self._load_if_changed()
        except Exception:
            self._failing_since = self._failing_since or self._round_since
            raise
        finally:
            self._round_since = None
        self._failing_since = None
        if snapshot is not None:
            self.current = snapshot
            for callback in self._callbacks:
                callback(snapshot)
        self.checked_at = began_at
        return snapshot is not None

    async def run(self, stop: asyncio.Event) -> None:
        """Keep `current` up to date until *stop* is set."""
        async with asyncio.TaskGroup() as tasks:
            listener = tasks.create_task(self._listen_until_cancelled(), name="confdb-listen")
            while not stop.is_set():
                try:
                    with as_outage():
                        changed = await self.load_once()
                except ConfigUnavailableError as error:
                    # What is routed by stays: the next round loads what was missed, whole.
                    log.warning("snapshot.config_unavailable", version=self.current.version, problem=error.message)
                else:
                    if changed:
                        log.info("snapshot.loaded", version=self.current.version)
                await self._pause(stop)
            listener.cancel()

    async def _load_if_changed(self) -> Snapshot | None:
        # Not "newer": confdb may have been restored from a backup.
        if await read_version(self._store) == self.current.version:
            return None
        return await self._loader.load()

    async def _pause(self, stop: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(self._hint.wait())]
        try:
            await asyncio.wait(waits, timeout=self._poll_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._hint.clear()

    async def _listen_until_cancelled(self) -> None:
        while self._listen:
            try:
                with as_outage():
                    await self._listen_once()
            except ConfigUnavailableError as error:
                log.info("snapshot.listening_stopped", problem=error.message)
            await asyncio.sleep(LISTEN_RETRY_SECONDS)

    async def _listen_once(self) -> None:
        async with await self._store.connect_dedicated() as connection:
            with translated():
                await connection.execute(f"LISTEN {CONFIG_CHANNEL}")
                # What was notified while nobody listened.
                self._hint.set()
                async for _ in connection.notifies():
                    self._hint.set()
