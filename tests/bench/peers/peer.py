"""What the comparison needs of a system."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """Times a publisher or a consumer."""

    async def begin(self) -> None:
        """Say that it is connected; returns when the time starts."""

    def end(self) -> None:
        """Say that all is done, where closing takes time that does not count. Default: when the function returns."""


class PeerMissingError(Exception):
    """The system is not installed here; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one measurement does."""

    queue: str
    messages: int
    body_bytes: int


class Peer(Protocol):
    """A system that takes messages and delivers them."""

    @property
    def name(self) -> str:
        """What it is."""

    @property
    def note(self) -> str:
        """How it is used, and what it promises."""

    @property
    def messages(self) -> int:
        """So many take it some seconds."""

    def serving(self, directory: Path) -> AbstractContextManager[str]:
        """Run its server, with its data in *directory*, and give its URL. Raises PeerMissingError."""

    async def prepare(self, url: str, work: Work) -> None:
        """Make the queue."""

    async def publish(self, url: str, work: Work, clock: Clock) -> None:
        """Publish all messages, and return when the server has confirmed them."""

    async def consume(self, url: str, work: Work, clock: Clock) -> None:
        """Take and acknowledge all messages."""
