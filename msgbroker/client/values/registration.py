"""What is registered through a broker: for development, as elsewhere operators do it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REGISTER_TIMEOUT_SECONDS: Final = 15.0
"""How long registering may take, unless it is said: it waits until the subscription is active on every broker."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A topic and an event code and, with a group, its subscription to them."""

    topic: str
    event_code: str
    group: str = ""
    expression: str = ""
    from_beginning: bool = False
