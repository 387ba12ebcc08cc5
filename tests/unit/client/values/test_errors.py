"""Errors, as objects: they are copied, they cross processes, and they are raised again and again."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pytest

from msgbroker.client import BodyTooLargeError, Reject, Release, RetryAfter
from msgbroker.client.publish.wire import MessageEncoder
from msgbroker.client.values.verdicts import HandlerVerdict
from msgbroker.contract.errors import MessageCenterError, PublishTimeoutError
from tests.support.error_kinds import example_of, kinds_of

Way = Callable[[Exception], Exception]

WAYS: list[Way] = [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]  # noqa: S301
WAY_NAMES = ["copied", "copied deeply", "pickled"]


@pytest.mark.parametrize("way", WAYS, ids=WAY_NAMES)
@pytest.mark.parametrize("kind", list(kinds_of(MessageCenterError)))
def test_an_error_of_any_kind_is_the_same_when_it_has_been(kind: type[MessageCenterError], way: Way) -> None:
    error = example_of(kind)
    error.add_note("said by whoever saw it")

    again = way(error)

    assert type(again) is kind
    assert vars(again) == vars(error)
    assert (str(again), again.args) == (str(error), error.args)


class _TooLate(Reject):
    """A verdict of an application's own."""

    def __init__(self, order: int, minutes: float) -> None:
        super().__init__(f"order {order} came {minutes} minutes late")
        self.order = order


@pytest.mark.parametrize("way", WAYS, ids=WAY_NAMES)
@pytest.mark.parametrize(
    "verdict",
    [Reject("no"), RetryAfter(5), Release(2, "busy"), _TooLate(7, 1.5)],
    ids=["reject", "retry", "give", "own"],
)
def test_a_verdict_is_the_same_when_it_has_been(verdict: HandlerVerdict, way: Way) -> None:
    again = way(verdict)

    assert type(again) is type(verdict)
    assert vars(again) == vars(verdict)
    assert str(again) == str(verdict)


def test_the_error_of_a_worker_process_reaches_the_process_that_waits_for_it() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        encoding = pool.submit(MessageEncoder().encode, "TP", "EC", bytes(5_000_000))
        with pytest.raises(BodyTooLargeError, match="5000000 bytes") as raised:
            encoding.result(60)

    assert (raised.value.topic, raised.value.body_bytes) == ("TP", 5_000_000)


def test_an_error_raised_again_has_gathered_nothing_of_the_last_time() -> None:
    error = PublishTimeoutError(3, may_be_stored=True, address="a:1")
    with pytest.raises(PublishTimeoutError):
        raise error

    again = error.again()

    assert error.__traceback__ is not None
    assert (type(again), vars(again), again.__traceback__) == (type(error), vars(error), None)
