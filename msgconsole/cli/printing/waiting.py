"""Say on standard error which brokers are waited for, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import typer

from msgbroker.contract.limits import LEASE_SECONDS_MAX

WAIT_SECONDS: Final = LEASE_SECONDS_MAX + 5.0
"""Longer than any lease: the brokers that are waited for know by then, or have none any more."""


def tell_waiting() -> Callable[[Sequence[str]], None]:
    """Return what is to be told of the brokers that are waited for."""
    told: set[str] = set()

    def tell(brokers: Sequence[str]) -> None:
        for broker in brokers:
            if broker not in told:
                told.add(broker)
                typer.echo(f"Waiting for broker {broker} ...", err=True)

    return tell


def tell_still_waiting(brokers: Sequence[str]) -> None:
    """Say that an act does not hold everywhere yet, where it does not."""
    if brokers:
        typer.echo(f"Not everywhere yet: waiting for {', '.join(brokers)}.", err=True)
