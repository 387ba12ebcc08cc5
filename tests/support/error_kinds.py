"""All errors of the contract, for what is to hold for each of them."""

from __future__ import annotations

from collections.abc import Iterator

from msgbroker.contract.error_families import MessageCenterError


def kinds_of(base: type[MessageCenterError]) -> Iterator[type[MessageCenterError]]:
    """Return *base* and all below it that the contract defines: of MessageCenterError, the families and the leaves."""
    if base.__module__.startswith("msgbroker.contract."):
        yield base
    for kind in base.__subclasses__():
        yield from kinds_of(kind)


def leaves_of(family: type[MessageCenterError]) -> Iterator[type[MessageCenterError]]:
    """Return the errors of the contract below *family*."""
    return (kind for kind in kinds_of(family) if kind is not family)
