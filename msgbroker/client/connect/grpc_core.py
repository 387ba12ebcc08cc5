"""gRPC's own threads, as a fork must find them: whether gRPC is at rest, and waiting until it is.

gRPC tells nobody whether it is at work. So it is read off what the process has: the thread that grpc.aio polls in, and
the threads of gRPC's core, by the names that the system knows them by. `forks` says what a fork needs of them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc

_SHUT_DOWN_SECONDS: Final = 2.0
"""How long a fork waits for grpc.aio to end once nothing of ours uses it; others may."""
_CORE_SECONDS: Final = 2.0
"""How long a fork then waits for gRPC's core to end, unless others use it: a fork in the middle of that may harm the
child."""
_LOOK_SECONDS: Final = 0.001
_CORE_LOOK_SECONDS: Final = 0.005
_THREADS: Final = Path("/proc/self/task")
_THREADS_OF_CORE: Final = frozenset({"event_engine", "grpc_global_tim", "grpc_shutdown", "lifeguard"})
_CORE_SEES_TO_ITSELF: Final = os.environ.get("GRPC_ENABLE_FORK_SUPPORT", "1").lower() in {"1", "true", "yes", "y", "t"}
"""Whether the core stops its threads for a fork, and starts them again: by default, and unless grpc.aio polls."""
_OTHER_USERS: Final = frozenset({grpc.Channel, grpc.Server})
"""What other code has that uses gRPC without asyncio."""
_POLLER: Final = "(_poll_wrapper)"
"""What the name of the thread ends with that grpc.aio polls in."""


def is_at_rest() -> bool:
    """Return whether a child that is forked now can use gRPC."""
    return not _has_poller() and (_CORE_SEES_TO_ITSELF or not _has_core_threads())


def wait_for_rest(polled_by: Callable[[], asyncio.AbstractEventLoop | None]) -> None:
    """Wait, for some seconds at most, until gRPC has ended, unless others in this process use it.

    *polled_by* returns a running loop of another thread that gRPC looks for events on, if there is one.
    """
    until = time.monotonic() + _SHUT_DOWN_SECONDS
    while _has_poller() and time.monotonic() < until:
        # What has ended lies about in cycles of tracebacks and frames, and gRPC's objects with it. Or still ends.
        _collect_garbage(polled_by())
        time.sleep(_LOOK_SECONDS)
    until = time.monotonic() + _CORE_SECONDS
    while _has_core_threads() and time.monotonic() < until and not _has_other_users():
        time.sleep(_CORE_LOOK_SECONDS)


def _collect_garbage(polled_by: asyncio.AbstractEventLoop | None) -> None:
    """Collect garbage, on the loop that gRPC looks for events on: that would go on meanwhile, and miss some of them."""
    if polled_by is None:
        gc.collect()
        return

    async def collect() -> None:
        gc.collect()

    concurrent.futures.wait([asyncio.run_coroutine_threadsafe(collect(), polled_by)], _SHUT_DOWN_SECONDS)


def _has_other_users() -> bool:
    """Return whether the core is used otherwise, and does not end therefore."""
    return any(not _OTHER_USERS.isdisjoint(type(each).__mro__) for each in gc.get_objects())


def _has_poller() -> bool:
    return any(thread.name.endswith(_POLLER) for thread in threading.enumerate())


def _has_core_threads() -> bool:
    return any(_name_of(thread) in _THREADS_OF_CORE for thread in _THREADS.glob("*/comm"))


def _name_of(comm: Path) -> str:
    try:
        return comm.read_text().strip()
    except OSError:  # it has ended
        return ""
