"""Ending a call reaches into gRPC's binding: it must do what it says with the gRPC that is installed."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from msgbroker.contract.errors import NotReadingError
from msgbroker.server.edge.calls.ending import end_at_once, when_ended, write

_METHOD = "/Test/Stream"
_SMALL_WINDOW = (("grpc.http2.lookahead_bytes", 64 * 1024), ("grpc.http2.bdp_probe", 0))


class Writer:
    """A server with one method, whose handler writes until nobody reads."""

    def __init__(self) -> None:
        self.context: Any = None
        self.written = 0
        self.how_it_ended = ""
        self.ended = asyncio.Event()
        self._server = grpc.aio.server()

    async def __aenter__(self) -> str:
        handler: Any = grpc.stream_stream_rpc_method_handler(self._serve)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Test", {"Stream": handler}),))
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return f"127.0.0.1:{port}"

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(0.2)

    async def _serve(self, _: object, context: Any) -> None:
        self.context = context
        when_ended(context, self.ended.set)
        try:
            while True:
                await write(context, b"x" * 30_000)
                self.written += 1
        except BaseException as end:
            self.how_it_ended = type(end).__name__
            raise

    async def until_stuck(self) -> None:
        """Wait until a write does not end."""
        before = -1
        async with asyncio.timeout(10):
            while not self.written or before != self.written:
                before = self.written
                await asyncio.sleep(0.2)


async def _read_all(call: Any) -> None:
    while await call.read():
        pass


async def test_a_call_with_a_write_under_way_ends_at_once_with_its_reason_and_without_what_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer = Writer()
    async with writer as address, grpc.aio.insecure_channel(address, options=_SMALL_WINDOW) as channel:
        call: Any = channel.stream_stream(_METHOD)()
        await call.done_writing()
        await writer.until_stuck()
        assert end_at_once(writer.context, NotReadingError(2.0))
        async with asyncio.timeout(5):
            await writer.ended.wait()
        # The client reads what it had taken in, and hears of the end.
        with pytest.raises(grpc.aio.AioRpcError, match="NOT_READING: ended, because nothing was read") as raised:
            await _read_all(call)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert writer.how_it_ended == "CancelledError"
    assert not caplog.records


async def test_who_goes_away_with_a_write_under_way_leaves_no_error_behind(caplog: pytest.LogCaptureFixture) -> None:
    writer = Writer()
    async with writer as address:
        async with grpc.aio.insecure_channel(address, options=_SMALL_WINDOW) as channel:
            call: Any = channel.stream_stream(_METHOD)()
            await writer.until_stuck()
            call.cancel()
        async with asyncio.timeout(5):
            await writer.ended.wait()

    assert writer.how_it_ended == "CancelledError"
    assert not caplog.records
