"""What applications see of centers: the same calls with the same arguments, and nothing that is the client's own."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from msgbroker.client import MessageCenter, OutgoingMessage, SyncMessageCenter

PUBLISHING = ["publish", "publish_soon", "publish_one_way"]
SHARED = [*PUBLISHING, "publish_many", "flush", "subscriber", "start", "run", "ended_groups", "register", "close"]


def names_of(kind: type) -> set[str]:
    """What an editor offers behind the dot."""
    return {name for name in dir(kind) if not name.startswith("_")}


def arguments_of(kind: type, name: str) -> list[tuple[str, object, object]]:
    """The arguments of a call: their names, kinds and defaults."""
    parameters = list(inspect.signature(getattr(kind, name)).parameters.values())[1:]
    return [(each.name, each.kind, each.default) for each in parameters]


def test_a_center_has_what_is_for_applications_and_nothing_else() -> None:
    assert names_of(SyncMessageCenter) == {*SHARED, "instance_id"}
    assert names_of(MessageCenter) == {*SHARED, "instance_id", "ready", "unanswered_count"}


@pytest.mark.parametrize("name", [name for name in SHARED if name != "ended_groups"])
def test_blocking_calls_have_the_same_arguments(name: str) -> None:
    assert arguments_of(SyncMessageCenter, name) == arguments_of(MessageCenter, name)


@pytest.mark.parametrize("name", PUBLISHING)
def test_a_message_is_described_alike_wherever_it_is_published(name: str) -> None:
    described = [(field.name, field.default) for field in dataclasses.fields(OutgoingMessage)]
    arguments = [
        (argument, dataclasses.MISSING if default is inspect.Parameter.empty else default)
        for argument, _, default in arguments_of(MessageCenter, name)
        if argument != "timeout_seconds"
    ]

    assert arguments == described
