"""Calls to the Directory service that any broker may answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from msgbroker.client.connect.addresses import Backoff
from msgbroker.client.connect.channel import connect, register
from msgbroker.client.connect.outages import OutageLog
from msgbroker.client.connect.unreachable import none_of
from msgbroker.client.values.config import ClientConfig
from msgbroker.client.values.log_lines import log_line
from msgbroker.client.values.texts import check_encodable
from msgbroker.contract.errors import MessageCenterError, UnavailableError
from msgbroker.v1 import directory_pb2

REGISTER_TIMEOUT_SECONDS: Final = 15.0
"""It waits until the subscription is active on every broker."""


async def register_through_any(
    config: ClientConfig,
    *,
    topic: str,
    event_code: str,
    group: str,
    expression: str,
    from_beginning: bool,
    timeout_seconds: float = REGISTER_TIMEOUT_SECONDS,
) -> list[str]:
    """Register through the first broker that can be reached, and return what was made."""
    request = directory_pb2.RegisterRequest(
        namespace=config.namespace,
        topic=topic,
        event_code=event_code,
        group=group,
        expression=check_encodable(expression),
        from_beginning=from_beginning,
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
            log_warnings(group, topic, event_code, response.warnings)
            return list(response.created)
    raise none_of(failures)


def log_warnings(group: str, topic: str, event_code: str, warnings: Iterable[str]) -> None:
    """Log what may not be meant as it is registered."""
    for warning in warnings:
        event = "subscription.warned_about"
        log_line(logging.WARNING, event, warning, group=group, topic=topic, event_code=event_code)


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
