"""`create --if-not-exists`: what is there already is as good as created, unless it is not as it was asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from confdb.services import Changed, ConfigService
from msgbroker.contract.errors import ThingAlreadyExistsError
from msgconsole.cli.printing.output import shown

ThingT = TypeVar("ThingT")


@dataclass(frozen=True, slots=True)
class Existing(Generic[ThingT]):
    """The thing that may be there already."""

    namespace: str
    kind: str
    """What the thing is called in the audit trail; with *name* it says which one."""
    name: str
    get: Callable[[ConfigService], Awaitable[ThingT]]
    wanted: Mapping[str, object] = field(default_factory=dict)
    """What was given explicitly, by its field. What was not given may be as it is."""

    @property
    def sentence(self) -> str:
        """The sentence that tells that the thing is there already."""
        kind = self.kind.replace("_", " ")
        return f"{kind[0].upper()}{kind[1:]} {self.name} exists already."


async def create_or_get(
    service: ConfigService,
    create: Callable[[ConfigService], Awaitable[Changed[ThingT]]],
    existing: Existing[ThingT] | None,
) -> tuple[Changed[ThingT], bool]:
    """Return what *create* made, or what is there and as it was asked for; and whether it was made now.

    Raises ThingAlreadyExistsError, with what is different where *existing* would do if it were not.
    """
    try:
        return await create(service), True
    except ThingAlreadyExistsError as error:
        if existing is None:
            raise
        found = await existing.get(service)
        difference = _difference(found, existing.wanted)
        if difference:
            raise ThingAlreadyExistsError(error.kind, error.name, difference) from error
    # Somebody else may have made it a moment ago: it is waited for as if it had been made here.
    version = await service.audit.version_with(existing.namespace, [(existing.kind, existing.name)])
    return Changed(found, version), False


def _difference(found: object, wanted: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {_shown(getattr(found, name))}, not {_shown(value)}"
        for name, value in wanted.items()
        if getattr(found, name) != value
    )


def _shown(value: object) -> str:
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, tuple):
        return shown([*value]) if value else "none"
    return shown(value)
