"""A signal that comes in the middle of a step waits for the step's end."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from msgdb.embedded.signals import signals_held_back


class _InterruptedError(Exception):
    pass


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """Let SIGTERM raise while a test runs."""

    def interrupt(*_: object) -> None:
        raise _InterruptedError

    before = signal.signal(signal.SIGTERM, interrupt)
    yield
    signal.signal(signal.SIGTERM, before)


def test_what_was_held_back_does_afterwards_what_it_would_have_done() -> None:
    steps = []

    def step() -> None:
        with signals_held_back():
            with signals_held_back():
                signal.raise_signal(signal.SIGTERM)
            steps.append("started and noted")
        steps.append("never reached")

    with pytest.raises(_InterruptedError):
        step()
    assert steps == ["started and noted"]


def test_what_is_ignored_stays_ignored_meanwhile() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with signals_held_back():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        signal.raise_signal(signal.SIGTERM)
