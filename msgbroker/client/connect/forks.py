"""What a `fork` means for the centers of a process, which may have been used before it.

Of all threads only the one that forks goes on in the child: not the loops behind blocking centers, nor the thread that
grpc.aio polls in. gRPC can be used in the child where grpc.aio was shut down at the moment of the fork, and only there:
it hangs otherwise, or ends the process; where something is connected it may do so without being used. So before each
fork the connections of this process are given up, as for another broker: what is unanswered goes out again by the next
one, under the same numbers, and is stored once. Both processes connect again when they need to. In the child each
center begins anew, as one that was never used, under ids of its own.

Where that cannot be (a handler goes on with its work; the loop itself is what forks; grpc.aio has other users here) the
fork is not held up. Whoever opens something in the child gets a ForkedError then.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from collections.abc import Iterable
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

from msgbroker.client.connect import grpc_core
from msgbroker.client.connect.handler_thread import is_handler_thread
from msgbroker.contract.errors import ForkedError

_REST_SECONDS: Final = 0.05
"""How long a fork waits for handlers that are at work."""
_DISCONNECT_SECONDS: Final = 5.0
"""How long a fork waits for connections to be given up."""
_BREAK_OFF_SECONDS: Final = 0.01
"""How long gRPC has to close what is broken off: it needs its threads for that."""
_LOOK_SECONDS: Final = 0.001

Watched = TypeVar("Watched")

_BROKEN: Final = (
    "this process was forked while gRPC was at work in its parent, and cannot use gRPC therefore: use a MessageCenter "
    "after the fork only (with gunicorn from post_fork on, with multiprocessing in the new process), or close those of "
    "the parent before it, or start processes by spawn or forkserver"
)


class Connection(Protocol):
    """A connection to a broker that a fork makes give up, and that connects again when it must."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the connection lives on."""

    @property
    def is_connected(self) -> bool:
        """Whether it is connected, or about to be: true before `passed` is waited for."""

    def can_disconnect(self, here: asyncio.AbstractEventLoop | None) -> bool:
        """Whether to give it up would disturb nobody; on the loop that runs *here* by `break_off`."""

    async def disconnect(self) -> None:
        """Give it up, until `passed` returns; return once it is closed."""

    def break_off(self) -> None:
        """Close it, without waiting for what it says to that."""


class Center(Protocol):
    """A center that begins anew in a forked child, as if it had never been used."""

    def begin_anew(self) -> None:
        """Forget what belongs to the parent. Its threads are gone, and may have held any lock."""


_connections: WeakValueDictionary[int, Connection] = WeakValueDictionary()
"""The connections of this process by their ids: other threads add some, and only what is read in one go is safe."""
_centers: WeakValueDictionary[int, Center] = WeakValueDictionary()
_under_way: dict[int, bool] = {}
"""The forks under way, by the thread that forks, and whether gRPC is at rest for each."""
_never_freed: list[Any] = []
"""What belongs to the parent, in a child: to take it apart would need threads that are not there."""


class _Process:
    has_connected = False
    """Whether something was connected since a fork last saw to it that nothing of gRPC was left."""
    one_at_a_time = threading.RLock()
    """Held by a fork: several threads may fork beside each other, and a finalizer may fork inside of a fork."""
    has_forked_core = False
    """Whether gRPC was at work in the process that this one was forked from."""


def watch_connection(connection: Connection) -> None:
    """Let forks give *connection* up, from now on."""
    _connections[id(connection)] = connection


def watch_center(center: Center) -> None:
    """Let *center* begin anew in processes that are forked from now on."""
    _centers[id(center)] = center


def never_free(*of_parent: Any) -> None:
    """See that what a center had in the parent is never taken apart in this process, its child."""
    _never_freed.extend(of_parent)


def check() -> None:
    """Raise ForkedError where gRPC cannot be used in this process."""
    if _Process.has_forked_core:
        raise ForkedError(_BROKEN)


async def passed() -> None:
    """Wait, before connecting, until no fork is under way: it would be part of it."""
    while _under_way:  # noqa: ASYNC110 - it takes milliseconds, is rare, and any number of loops may wait for it
        await asyncio.sleep(_LOOK_SECONDS)
    _Process.has_connected = True


def _before() -> None:
    me = threading.get_ident()
    _under_way[me] = False
    with _Process.one_at_a_time:
        if _Process.has_connected and _disconnect_all():
            _Process.has_connected = False
            grpc_core.wait_for_rest(_loop_elsewhere)
    _under_way[me] = grpc_core.is_at_rest()


def _after_in_parent() -> None:
    _under_way.pop(threading.get_ident(), None)


def _after_in_child() -> None:
    is_at_rest = _under_way.pop(threading.get_ident(), False)
    _under_way.clear()
    _Process.one_at_a_time = threading.RLock()
    _Process.has_forked_core |= not is_at_rest
    never_free(*_all(_connections))
    _connections.clear()
    for center in _all(_centers):
        center.begin_anew()


def _all(watched: WeakValueDictionary[int, Watched]) -> list[Watched]:
    return [each for reference in watched.valuerefs() if (each := reference()) is not None]


def _disconnect_all() -> bool:
    """Have all connections given up; return whether they are wholly. None is, where one cannot be."""
    connections = [each for each in _all(_connections) if each.is_connected]
    here = _loop_of_caller()
    if not _wait_for_rest(connections, here):
        return False
    elsewhere = [each for each in connections if each.loop is not here]
    disconnecting = [asyncio.run_coroutine_threadsafe(each.disconnect(), each.loop) for each in elsewhere]
    of_here = [each for each in connections if each.loop is here]
    for each in of_here:
        each.break_off()
    if of_here:
        time.sleep(_BREAK_OFF_SECONDS)
    return not concurrent.futures.wait(disconnecting, _DISCONNECT_SECONDS).not_done and not of_here


def _wait_for_rest(connections: Iterable[Connection], here: asyncio.AbstractEventLoop | None) -> bool:
    """Return whether all can be given up, now or in a moment: many handlers are soon done."""
    until = time.monotonic() + _REST_SECONDS
    while busy := [each for each in connections if not each.can_disconnect(here)]:
        is_caller_busy = any(each.loop is here for each in busy) or is_handler_thread()
        if is_caller_busy or time.monotonic() > until:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _loop_elsewhere() -> asyncio.AbstractEventLoop | None:
    """Return a loop of ours that runs in another thread than the caller's, if there is one."""
    here = _loop_of_caller()
    loops = (each.loop for each in _all(_connections))
    return next((loop for loop in loops if loop is not here and loop.is_running()), None)


def _loop_of_caller() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# When this is imported, and not with the first center: one that a child makes must know of gRPC's other users before.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
