"""Who does not send in time is told so; who has sent is not, however busy the broker was."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from msgbroker.contract import limits
from msgbroker.contract.errors import UnfinishedError
from msgbroker.server.edge.calls.sending_in_time import Sending, sent_in_time

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS_MAX", 0.2)


async def test_who_sends_nothing_in_time_is_told_what_was_missing() -> None:
    began_at = time.monotonic()
    with pytest.raises(UnfinishedError, match="the hello"):
        async with sent_in_time("the hello"):
            await asyncio.Event().wait()

    assert time.monotonic() - began_at > 0.19


async def test_a_large_frame_has_time_by_its_size() -> None:
    began_at = time.monotonic()
    with pytest.raises(UnfinishedError):
        async with sent_in_time("a frame", limits.GRPC_MESSAGE_BYTES_MAX + 1):
            await asyncio.Event().wait()

    assert time.monotonic() - began_at > 0.39


async def test_what_came_while_the_broker_was_too_busy_to_look_is_in_time() -> None:
    theirs, ours = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)

    def be_busy() -> None:
        theirs.send(b"x")
        # All of the time, and the whole event loop.
        time.sleep(0.5)

    with theirs:
        async with sent_in_time("the hello"):
            asyncio.get_running_loop().call_soon(be_busy)
            assert await reader.read(1) == b"x"
        writer.close()


async def test_a_busy_broker_ends_who_sends_nothing_all_the_same() -> None:
    is_over = False

    def be_busy() -> None:
        time.sleep(0.03)
        if not is_over:
            asyncio.get_running_loop().call_soon(be_busy)

    be_busy()
    with pytest.raises(UnfinishedError):
        async with asyncio.timeout(20), sent_in_time("the hello"):
            await asyncio.Event().wait()
    is_over = True


async def test_what_is_given_up_as_its_time_passes_is_given_up_once() -> None:
    again: list[Sending] = []

    def give_up(sending: Sending) -> None:
        sending.give_up()
        again.append(sending)

    async def wait() -> None:
        async with sent_in_time("the call") as sending:
            sending.give_up()
            # The loop's next turn tells this task of it; others have that turn as well.
            asyncio.get_running_loop().call_soon(give_up, sending)
            await asyncio.Event().wait()

    with pytest.raises(UnfinishedError):
        await wait()
    assert again
