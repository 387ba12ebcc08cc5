"""Pings: libraries of other languages send them as they are told to; a broker must not end a connection for it."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE

from msgbroker.server.app import Broker
from tests.polyglot.node import NODE

_PINGS = 100
_PROGRAM = f"""
const session = require("node:http2").connect(`http://${{process.argv[1]}}`);
session.on("goaway", (code, _, why) => console.log(`GOAWAY ${{code}} ${{why}}`));
session.on("close", () => console.log("closed"));
const ping = (left) => session.ping(() => (left > 1 ? ping(left - 1) : (console.log("answered"), session.destroy())));
session.on("connect", () => ping({_PINGS}));
"""


async def test_a_broker_answers_any_number_of_pings_on_a_connection_without_streams(broker: Broker) -> None:
    process = await asyncio.create_subprocess_exec(NODE, "-e", _PROGRAM, broker.address, stdout=PIPE)
    async with asyncio.timeout(20):
        said, _ = await process.communicate()

    assert said.decode().split("\n") == ["answered", "closed", ""]
