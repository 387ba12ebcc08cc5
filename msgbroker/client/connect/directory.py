"""Calls to the Directory service that any broker may answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from msgbroker.client.connect.addresses import Backoff
from msgbroker.client.connect.channel import connect, register
from msgbroker.client.connect.outages import OutageLog
from msgbroker.client.connect.unreachable import none_of
from msgbroker.client.values.config import ClientConfig
from msgbroker.client.values.log_lines import log_line
from msgbroker.client.values.registration import Registration
from msgbroker.client.values.texts import check_encodable
from msgbroker.contract.errors import MessageCenterError, UnavailableError
from msgbroker.v1 import directory_pb2


async def register_through_any(config: ClientConfig, wanted: Registration, timeout_seconds: float) -> list[str]:
    """Register through the first broker that can be reached, and return what was made."""
    request = directory_pb2.RegisterRequest(
        namespace=config.namespace,
        topic=wanted.topic,
        event_code=wanted.event_code,
        group=wanted.group,
        expression=check_encodable(wanted.expression),
        from_beginning=wanted.from_beginning,
    )
    failures: dict[str, MessageCenterError] = {}
    for address in config.addresses:
        try:
            channel = await connect(address, config)
            try:
                response = await register(channel, address, request, timeout_seconds)
            finally:
                await channel.close()
        except UnavailableError as error:
            failures[address] = error
        else:
            log_warnings(wanted, response.warnings)
            return list(response.created)
    raise none_of(failures)


def log_warnings(wanted: Registration, warnings: Iterable[str]) -> None:
    """Log the warnings of a broker: what may not be meant as it is registered."""
    keys = {"group": wanted.group, "topic": wanted.topic, "event_code": wanted.event_code}
    for warning in warnings:
        log_line(logging.WARNING, "subscription.warned_about", warning, **keys)


async def until_answered(call: Callable[[], Awaitable[object]], config: ClientConfig, outages: OutageLog) -> None:
    """Make a call that may be repeated until there is a broker that answers it, as a stream waits for one."""
    backoff = Backoff(config.backoff_initial_seconds, config.backoff_max_seconds)
    while True:
        try:
            await call()
        except UnavailableError as cause:
            outages.lost(config.addresses_text, cause)
            await asyncio.sleep(backoff.next_seconds())
        else:
            outages.back(config.addresses_text)
            return
