"""What errors say in their facts: declared once, typed, and the same whether they were raised here or at the broker."""

from __future__ import annotations

import copy
import pickle

import pytest

from msgbroker.client import BodyTooLargeError, BrokerUnavailableError, MessageCenterError, StoreUnavailableError
from msgbroker.client.publish.given_up import given_up
from msgbroker.contract.error_families import FAMILIES
from msgbroker.contract.errors import (
    BrokerBusyError,
    FrameForgottenError,
    InvalidExpressionError,
    PublishTimeoutError,
    SequenceGapError,
    UnavailableCause,
    UnfinishedError,
    from_wire,
)
from msgbroker.contract.facts import declared_facts
from tests.support.error_kinds import example_of, kinds_of

LEAVES = [kind for kind in kinds_of(MessageCenterError) if kind is not MessageCenterError and kind not in FAMILIES]


def over_the_wire(error: MessageCenterError) -> MessageCenterError:
    """Return the error that the other side makes of it."""
    return from_wire(error.reason, error.status, error.message, error.facts_text)


def attributes_of(error: MessageCenterError) -> dict[str, object]:
    """Return what the error's declared facts are, as its attributes say."""
    return {name: getattr(error, name) for name in declared_facts(type(error))}


@pytest.mark.parametrize("leaf", LEAVES)
def test_an_error_says_the_facts_that_it_declares_and_no_others(leaf: type[MessageCenterError]) -> None:
    error = example_of(leaf)
    common = {name for family in FAMILIES for name in declared_facts(family)}

    assert error.facts.keys() - common == declared_facts(leaf).keys() - common
    assert {name: type(value) for name, value in error.facts.items()} == {
        name: type(getattr(error, name)) for name in error.facts
    }
    assert not declared_facts(leaf).keys() & (vars(error).keys() | set(dir(Exception)))


@pytest.mark.parametrize("leaf", LEAVES)
def test_facts_keep_their_values_and_types_over_the_wire(leaf: type[MessageCenterError]) -> None:
    error = example_of(leaf)

    told = over_the_wire(error)

    # What has the reason of another one is that one to who hears of it.
    assert isinstance(error, type(told))
    assert (told.reason, told.facts) == (leaf.reason, error.facts)
    assert {name: (value, type(value)) for name, value in attributes_of(told).items()} == {
        name: (value, type(value)) for name, value in attributes_of(error).items()
    }
    for same in (copy.copy(told), pickle.loads(pickle.dumps(told)), told.again()):  # noqa: S301
        assert attributes_of(same) == attributes_of(error)


def test_facts_have_their_types() -> None:
    too_large = BodyTooLargeError("TP", 9_000, 8_192)
    gap = over_the_wire(SequenceGapError(7, 3))
    busy = over_the_wire(BrokerBusyError(5, 4, 1))

    assert (too_large.topic, too_large.body_bytes, too_large.body_bytes_max) == ("TP", 9_000, 8_192)
    assert isinstance(gap, SequenceGapError)
    assert gap.expected + 1 == 4
    assert isinstance(busy, BrokerBusyError)
    assert busy.retry_after_seconds == 1.0
    assert StoreUnavailableError("gone").retry_after_seconds is None
    assert (InvalidExpressionError("no").line, InvalidExpressionError("no", 3, 4).line) == (None, 3)


def test_every_error_says_whether_the_message_may_be_stored() -> None:
    assert StoreUnavailableError("gone").may_be_stored is False
    assert given_up(StoreUnavailableError("gone"), may_be_stored=True).may_be_stored is True
    assert given_up(StoreUnavailableError("gone"), may_be_stored=False).facts == {"may_be_stored": False}
    assert over_the_wire(PublishTimeoutError(3, may_be_stored=True)).may_be_stored is True
    assert PublishTimeoutError(3, may_be_stored=False).may_be_stored is False
    # What became of it is not known any more, but it was stored.
    assert from_wire("FRAME_FORGOTTEN", "FAILED_PRECONDITION", "it was", {}).may_be_stored is True
    assert FrameForgottenError(3, 5).may_be_stored is True


@pytest.mark.parametrize(
    "facts", [{}, {"expected": "soon", "sequence": ""}, {"expected": "9" * 9_999, "may_be_stored": "perhaps"}]
)
def test_facts_that_are_missing_or_make_no_sense_do_not_hide_the_error(facts: dict[str, str]) -> None:
    error = from_wire("SEQUENCE_GAP", "FAILED_PRECONDITION", "frame 7 cannot be stored", facts)

    assert isinstance(error, SequenceGapError)
    assert (error.message, error.expected, error.sequence, error.may_be_stored) == (
        "frame 7 cannot be stored",
        0,
        0,
        False,
    )
    assert error.facts_text == facts


def test_a_hint_that_is_no_number_is_none() -> None:
    for hint in ("nan", "inf", "soon"):
        busy = from_wire("BROKER_BUSY", "RESOURCE_EXHAUSTED", "busy", {"retry_after_seconds": hint})
        assert isinstance(busy, BrokerBusyError)
        assert busy.retry_after_seconds is None


def test_the_facts_of_an_error_that_this_version_does_not_know_stay_text() -> None:
    error = from_wire("MOON_PHASE", "UNAVAILABLE", "no moon", {"phase": "3", "retry_after_seconds": "2"})

    assert error.facts == {"phase": "3", "retry_after_seconds": 2.0}


def test_a_cause_is_one_of_a_list_of_words() -> None:
    error = BrokerUnavailableError("nobody there", address="b:1", cause=UnavailableCause.REFUSED)

    assert (error.cause, error.address) == (UnavailableCause.REFUSED, "b:1")
    assert error.facts_text == {"address": "b:1", "cause": "REFUSED"}
    unknown = from_wire("BROKER_UNAVAILABLE", "UNAVAILABLE", "eclipse", {"cause": "ECLIPSE"})
    assert isinstance(unknown, BrokerUnavailableError)
    assert (unknown.cause, unknown.facts) == (None, {"cause": "ECLIPSE"})


def test_numbers_are_plain_on_the_wire() -> None:
    assert PublishTimeoutError(30, may_be_stored=False).facts_text == {
        "timeout_seconds": "30",
        "may_be_stored": "False",
        "address": "",
    }
    assert UnfinishedError("a frame", 2.04999).facts_text["waited_seconds"] == "2"
