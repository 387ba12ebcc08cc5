"""Say on standard error which brokers are waited for, each once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import typer

from msgbroker.contract.limits import LEASE_SECONDS_MAX

WAIT_SECONDS: Final = LEASE_SECONDS_MAX + 5.0
"""Longer than any lease: the brokers that are waited for know by then, or have none any more."""


def tell_waiting(*, is_done: bool) -> Callable[[Sequence[str]], None]:
    """Return what is to be told of the brokers that are waited for.

    *is_done*: the act stands by then, whoever ends the waiting. That is said.
    """
    told: set[str] = set()
    stands = "It is done, and stands. " if is_done else ""

    def tell(brokers: Sequence[str]) -> None:
        for broker in brokers:
            if broker not in told:
                told.add(broker)
                typer.echo(f"{stands}Waiting for broker {broker} ...", err=True)

    return tell


@contextmanager
def stands_though_ended(what: str) -> Iterator[Callable[[], None]]:
    """Carry out a change and wait for it; give what is to be called in between. Should it be ended, say what stands.

    *what*: the thing that is registered, as the beginning of a sentence.
    """
    made: list[bool] = []
    try:
        yield lambda: made.append(True)
    except asyncio.CancelledError:
        # A commit that was not answered may have been made.
        stands = "is registered; perhaps not everywhere yet" if made else "may be registered: that was not waited for"
        typer.echo(f"{what} {stands}.", err=True)
        raise


def tell_still_waiting(brokers: Sequence[str]) -> None:
    """Say that an act does not hold everywhere yet, where it does not."""
    if brokers:
        typer.echo(f"Not everywhere yet: waiting for {', '.join(brokers)}.", err=True)
