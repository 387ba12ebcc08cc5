"""A program that forks, in one of the ways in which centers meet that; `test_forks` runs it and looks at what it says.

python -m tests.support.forking WAY ADDRESS
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from msgbroker.client import ForkedError, Message, MessageCenter, SyncMessageCenter
from msgbroker.client.testing import SyncInMemoryCenter
from tests.support.collecting import GROUP, PAID, TOPIC
from tests.support.eventually import eventually_blocking

CHILD_SECONDS = 30.0

Center = SyncMessageCenter | MessageCenter
Said = dict[str, Any]


def in_child(act: Callable[[], Any]) -> Any:
    """Fork, and return what *act* returns in the child, or the name of what it raises."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = act()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            said = type(error).__name__
        os.write(writing, json.dumps(said).encode())
        os._exit(0)
    os.close(writing)
    until = time.monotonic() + CHILD_SECONDS
    status = 0
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            break
        time.sleep(0.01)
    said = b"".join(iter(lambda: os.read(reading, 65_536), b""))
    os.close(reading)
    return json.loads(said) if said else f"nothing: {status}"


def publish(center: SyncMessageCenter, body: str) -> list[str]:
    """Return the body, and the id under which it is stored."""
    return [body, str(center.publish(TOPIC, PAID, body, timeout_seconds=20).message_id)]


def publish_in_loop(center: MessageCenter, body: str) -> list[str]:
    async def run() -> list[str]:
        async with center:
            return [body, str((await center.publish(TOPIC, PAID, body, timeout_seconds=20)).message_id)]

    return asyncio.run(run())


def made(address: str) -> Said:
    """Fork with a center that was never used."""
    center = SyncMessageCenter(address)
    child = in_child(lambda: [publish(center, "child"), center.instance_id])
    return {"stored": [child[0], publish(center, "parent")], "instances": [child[1], center.instance_id]}


def published(address: str) -> Said:
    """Fork, again and again, with a center that has published, before and between."""
    center = SyncMessageCenter(address)
    stored = [publish(center, "first")]
    for n in range(2):
        stored += [in_child(partial(publish, center, f"child {n}")), publish(center, f"parent {n}")]
    stored.append(in_child(lambda: in_child(lambda: publish(center, "grandchild"))))
    return {"stored": stored}


def closed(address: str) -> Said:
    """Fork with a center that was used and closed."""
    with SyncMessageCenter(address) as center:
        stored = [publish(center, "parent")]
    stored.append(in_child(lambda: publish(SyncMessageCenter(address), "child")))
    return {"stored": stored, "closed": in_child(lambda: publish(center, "closed"))}


def forgotten(address: str) -> Said:
    """Fork with a center that nobody has closed in its loop, which has ended."""
    center = MessageCenter(address)

    async def run() -> list[str]:
        return ["parent", str((await center.publish(TOPIC, PAID, "parent", timeout_seconds=20)).message_id)]

    return {"stored": [asyncio.run(run()), in_child(lambda: publish(SyncMessageCenter(address), "child"))]}


def publishing(address: str) -> Said:
    """Fork while other threads publish."""
    center = SyncMessageCenter(address)
    stored: list[list[str]] = []
    is_over = threading.Event()

    def publish_on(thread: int) -> None:
        n = 0
        while not is_over.is_set():
            n += 1
            stored.append(publish(center, f"{thread}-{n}"))

    threads = [threading.Thread(target=publish_on, args=(thread,)) for thread in range(3)]
    for thread in threads:
        thread.start()
    children = [in_child(partial(publish, center, f"child {n}")) for n in range(5)]
    is_over.set()
    for thread in threads:
        thread.join(CHILD_SECONDS)
    return {"stored": stored + children}


def beside_each_other(address: str) -> Said:
    """Fork in several threads at once, each of which has just published."""
    center = SyncMessageCenter(address)
    stored: list[list[str]] = []

    def fork_on(thread: int) -> None:
        for n in range(3):
            stored.append(publish(center, f"{thread}-{n}"))
            stored.append(in_child(partial(publish, center, f"child {thread}-{n}")))

    threads = [threading.Thread(target=fork_on, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"stored": stored}


def soon(address: str) -> Said:
    """Fork while receipts are waited for: they are the parent's."""
    center = SyncMessageCenter(address)
    publish(center, "warm")
    heard: list[int] = []
    # From here on no other thread has a turn before the fork waits for one: not all are answered by then.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(CHILD_SECONDS)
    futures = [center.publish_soon(TOPIC, PAID, f"soon {n}") for n in range(500)]
    for future in futures:
        future.add_done_callback(lambda _: heard.append(os.getpid()))

    def look() -> list[Any]:
        parents = len(heard)
        said = {"receipt" if future.exception(20) is None else type(future.exception()).__name__ for future in futures}
        return [sorted(said), len(heard) - parents]

    child = in_child(look)
    sys.setswitchinterval(interval)
    stored = [[f"soon {n}", str(future.result(20).message_id)] for n, future in enumerate(futures)]
    return {"stored": stored, "child": child}


@contextmanager
def held(lock: Any) -> Iterator[None]:
    """Have another thread hold a lock."""
    has_taken, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            has_taken.set()
            may_go.wait(CHILD_SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    has_taken.wait(CHILD_SECONDS)
    yield
    may_go.set()
    thread.join()


def locked(address: str) -> Said:
    """Fork while other threads hold what publishing needs."""
    center = SyncMessageCenter(address)
    stored = [publish(center, "parent")]
    thread, handover = center._background._thread, center._background._handover
    assert thread is not None
    assert handover is not None
    for n, lock in enumerate([center._background._lock, handover._shared, thread._beginning]):
        with held(lock):
            stored.append(in_child(partial(publish, center, f"child {n}")))
    return {"stored": stored}


def handling(address: str) -> Said:
    """Fork while handlers have nothing to do: they are the parent's, until the child starts its own."""
    center = SyncMessageCenter(address)
    handled: list[list[Any]] = []
    is_enough = threading.Event()

    @center.subscriber(group=GROUP, topic=TOPIC)
    def handle(message: Message) -> None:
        handled.append([message.text(), message.attempt])
        if message.text().startswith("last"):
            is_enough.set()

    center.start()
    child = in_child(lambda: [publish(center, "child"), len(handled)])
    stored = [child[0], publish(center, "last of the parent")]
    is_enough.wait(CHILD_SECONDS)
    (handlers,) = center._core._subscribers._handlers.values()
    eventually_blocking(lambda: handlers.is_at_rest)

    def start() -> list[Any]:
        is_enough.clear()
        handled.clear()
        center.start()
        stored = [publish(center, f"last {n}") for n in range(20)]
        is_enough.wait(CHILD_SECONDS)
        center.close()
        return stored

    stored += in_child(start)
    center.close()
    return {"stored": stored, "handled_in_child": child[1], "handled": handled}


def at_work(address: str) -> Said:
    """Fork while a handler is at work: it goes on, and the child hears what is wrong."""
    center = SyncMessageCenter(address)
    has_begun, may_end, has_ended = threading.Event(), threading.Event(), threading.Event()
    attempts: list[int] = []

    @center.subscriber(group=GROUP, topic=TOPIC)
    def handle(message: Message) -> None:
        attempts.append(message.attempt)
        has_begun.set()
        may_end.wait(CHILD_SECONDS)
        has_ended.set()

    center.start()
    stored = [publish(center, "work")]
    has_begun.wait(CHILD_SECONDS)
    errors = [
        in_child(lambda: publish(center, "refused")),
        in_child(lambda: publish(SyncMessageCenter(address), "refused")),
        in_child(lambda: publish_in_loop(MessageCenter(address), "refused")),
        in_child(center.start),
        in_child(lambda: in_child(lambda: publish(center, "refused"))),
    ]
    may_end.set()
    has_ended.wait(CHILD_SECONDS)
    center.close()
    return {"stored": stored, "errors": errors, "attempts": attempts}


def in_loop(address: str) -> Said:
    """Fork in the loop that a center lives on, and in a thread beside it."""

    async def run() -> Said:
        async with MessageCenter(address) as center:
            stored: list[Any] = [in_child(lambda: publish_in_loop(center, "child of an unused one"))]
            stored.append(["first", str((await center.publish(TOPIC, PAID, "first")).message_id)])
            answer = center.publish_soon(TOPIC, PAID, "unanswered")
            error = in_child(lambda: publish_in_loop(center, "refused"))
            stored.append(["unanswered", str((await answer).message_id)])
            stored.append(await asyncio.to_thread(in_child, lambda: publish_in_loop(center, "child of a thread")))
            stored.append(["last", str((await center.publish(TOPIC, PAID, "last")).message_id)])
            return {"stored": stored, "error": error}

    return asyncio.run(run())


pool_center: SyncMessageCenter


def publish_in_pool(body: str) -> list[str]:
    return publish(pool_center, body)


def pool(address: str) -> Said:
    """Have a pool of processes publish by the center of the parent."""
    global pool_center  # noqa: PLW0603 - what processes of a pool inherit
    pool_center = SyncMessageCenter(address)
    stored = [publish(pool_center, "first")]
    with multiprocessing.get_context("fork").Pool(3) as processes:
        stored += processes.map(publish_in_pool, [f"pool {n}" for n in range(20)], chunksize=1)
        stored.append(publish(pool_center, "last"))
    return {"stored": stored}


def in_memory(_: str) -> Said:
    """Fork with a center in memory: each process has a memory of its own."""
    with SyncInMemoryCenter() as center:
        center.publish(TOPIC, PAID, "parent")

        def publish_too() -> list[str]:
            center.publish(TOPIC, PAID, "child")
            return [message.text() for message in center.published]

        return {"child": in_child(publish_too), "parent": [message.text() for message in center.published]}


WAYS = [
    made,
    published,
    closed,
    forgotten,
    publishing,
    beside_each_other,
    soon,
    locked,
    handling,
    at_work,
    in_loop,
    pool,
    in_memory,
]
FORKED = ForkedError.__name__


if __name__ == "__main__":
    way, address = sys.argv[1:]
    sys.stdout.write(json.dumps({each.__name__: each for each in WAYS}[way](address)))
