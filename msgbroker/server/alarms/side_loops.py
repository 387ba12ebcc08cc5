"""The loops that storing and delivering can do without for a while: what ends one of them does not end the broker.

Their work is telling and hearing sooner what is found out anyway, counting, watching and tidying up. One that fails for
an unknown reason is an alarm, and is started again, later each time. Any other loop of a broker ends it with itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from msgbroker.server.alarms.board import AlarmBoard
from msgbroker.server.alarms.set_aside import SetAside
from msgbroker.server.loops import pause
from msgdb.reports.alarms import Alarm, AlarmKind

Loop = Callable[[asyncio.Event], Awaitable[None]]

_WORKS_AFTER_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.5


class SideLoops:
    """Keeps such loops running: one that fails is set aside, with an alarm, until it is time to start it again."""

    def __init__(self, board: AlarmBoard) -> None:
        self._aside: SetAside[str] = SetAside(
            board, lambda name: Alarm(AlarmKind.PART_SET_ASIDE, f"the broker's {name}", "")
        )

    def kept_running(self, name: str, run: Loop) -> Loop:
        """Return a loop that runs *run*, and runs it again when it fails."""
        return partial(self._keep_running, name, run)

    async def _keep_running(self, name: str, run: Loop, stop: asyncio.Event) -> None:
        while not stop.is_set():
            is_over = False
            works = asyncio.get_running_loop().call_later(_WORKS_AFTER_SECONDS, self._aside.worked, name)
            try:
                with self._aside.contained(name):
                    await run(stop)
                    is_over = True
            finally:
                works.cancel()
            if is_over:
                return
            while self._aside.is_waiting(name) and not stop.is_set():
                await pause(stop, _LOOK_SECONDS)
