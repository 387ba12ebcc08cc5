"""Subscribers in processes of their own, whose handlers end them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support.processes import LoggedProcess, start_program

_PROGRAM = """
import asyncio, os, signal, sys

from msgbroker.client import InstanceReplacedError, Message, MessageCenter

address, group, topic, instance_id, handled_file, how, poison_seconds, seconds = sys.argv[1:]
handled = os.open(handled_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def die() -> None:
    if how == "exit":
        os._exit(1)
    os.kill(os.getpid(), signal.SIGKILL)


async def main() -> None:
    async with MessageCenter(address, instance_id=instance_id or None) as center:

        @center.subscriber(group=group, topic=topic)
        async def handle(message: Message) -> None:
            if message.body == b"poison":
                os.write(handled, b"poison %d\\n" % message.attempt)
                if float(poison_seconds):
                    await asyncio.sleep(float(poison_seconds))
                die()
            if float(seconds):
                await asyncio.sleep(float(seconds))
            os.write(handled, b"%s\\n" % message.body)

        await center.start()
        print("READY", flush=True)
        await center.run()


try:
    asyncio.run(main())
except InstanceReplacedError as error:
    print("REPLACED", error, flush=True)
    sys.exit(3)
"""


@dataclass(slots=True)
class SubscriberProcess(LoggedProcess):
    """One instance of a group; its handler ends it at a message whose body is `poison`."""

    @classmethod
    def start(
        cls,
        address: str,
        group: str,
        topic: str,
        directory: Path,
        *,
        name: str = "subscriber",
        instance_id: str = "",
        how: str = "exit",
        poison_seconds: float = 0.0,
        handler_seconds: float = 0.0,
    ) -> Self:
        """Start it. What it has handled is appended to `handled` in *directory*."""
        log_file = directory / f"{name}.log"
        handled = directory / "handled"
        arguments = [address, group, topic, instance_id, str(handled), how, str(poison_seconds), str(handler_seconds)]
        return cls(start_program(_PROGRAM, log_file, *arguments), log_file)

    @property
    def is_ready(self) -> bool:
        """Whether its group is attached."""
        return "READY" in self.log

    @property
    def has_ended(self) -> bool:
        """Whether it runs no more."""
        return self.process.poll() is not None


def handled_in(directory: Path) -> list[str]:
    """Return what subscribers with that directory have handled, line by line."""
    handled = directory / "handled"
    return handled.read_text().splitlines() if handled.exists() else []
