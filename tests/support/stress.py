"""Stress traffic for tests: what marks it, and who may get it."""

from __future__ import annotations

from confdb.services import ConfigService
from tests.support.collecting import PAID, TOPIC

STRESS = {"x-stress-test": "true"}


WHITELISTED = "SG_STRESS"


async def allow(trade: ConfigService, group: str = WHITELISTED) -> None:
    allowed = await trade.stress.allow("default", group, TOPIC, PAID)
    await trade.wait_until_active(allowed.version)


async def disallow(trade: ConfigService, group: str = WHITELISTED) -> None:
    disallowed = await trade.stress.disallow("default", group, TOPIC, PAID)
    await trade.wait_until_active(disallowed.version)
