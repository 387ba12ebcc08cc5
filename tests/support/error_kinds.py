"""All errors of the contract, for what is to hold for each of them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from typing import Any

from msgbroker.contract.errors import BrokerUnavailableError, MessageCenterError, UnavailableCause


def kinds_of(base: type[MessageCenterError]) -> Iterator[type[MessageCenterError]]:
    """Return *base* and all below it that the contract defines: of MessageCenterError, the families and the leaves."""
    if base.__module__.startswith("msgbroker.contract."):
        yield base
    for kind in base.__subclasses__():
        yield from kinds_of(kind)


def leaves_of(family: type[MessageCenterError]) -> Iterator[type[MessageCenterError]]:
    """Return the errors of the contract below *family*."""
    return (kind for kind in kinds_of(family) if kind is not family)


_EXAMPLES: dict[object, Any] = {
    str: "name",
    int: 3,
    float: 1.5,
    bool: True,
    str | None: "other name",
    int | None: 7,
    UnavailableCause | None: UnavailableCause.REFUSED,
    MessageCenterError | None: BrokerUnavailableError("refused", cause=UnavailableCause.REFUSED),
}


def example_of(kind: type[MessageCenterError]) -> MessageCenterError:
    """Make an error of that kind, by whatever its constructor takes."""
    hints = typing.get_type_hints(kind.__init__)
    given: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        value = _EXAMPLES.get(hints[parameter.name], ["a", "b"])
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = value
        else:
            given.append(value)
    return kind(*given, **named)
