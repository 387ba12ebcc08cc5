"""Bodies read by annotation: lists of models, unions, dataclasses, whatever pydantic reads, where it is installed.

The client itself needs no pydantic: it is imported when a handler is declared that asks for such a body.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgbroker.client.values.texts import text_of
from msgbroker.client.values.verdicts import UnreadableBody
from msgbroker.contract.errors import InvalidSettingError

_CAUSES_SHOWN_MAX: Final = 5
_MODULES: Final = re.compile(r"(?:[^\W\d]\w*\.|<locals>\.)+(?=[^\W\d])")
_INSTEAD: Final = "take a dict, list, str, bytes or the Message"


def typed_decoder(wanted: Any, read: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    """Return what turns a body into *wanted*: from JSON, or from what *read* makes of it.

    The decoder raises UnreadableBody.

    Raises:
        InvalidSettingError: pydantic is not installed, or cannot read it either.
    """
    name = name_of(wanted)
    try:
        from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter
        from pydantic_core import SchemaError
    except ImportError as error:
        raise InvalidSettingError(
            "handler", f"asks for a body of {name}, which needs pydantic 2: pip install pydantic; or {_INSTEAD}"
        ) from error
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(wanted)
    except (PydanticUserError, PydanticUndefinedAnnotation, SchemaError, TypeError, ValueError) as error:
        problem = text_of(error).partition("\n")[0]
        raise InvalidSettingError("handler", f"asks for a body of {name}: {problem}; or {_INSTEAD}") from error
    if read is None:
        return validating(name, adapter.validate_json)
    return validating(name, lambda body: adapter.validate_python(read(body)))


def validating(name: str, validate: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return *validate* as a decoder: its ValueError says that the body is none of those."""

    def decode(body: bytes) -> Any:
        try:
            return validate(body)
        except ValueError as error:
            # The cause first: lists of dead letters cut what is long, and types may be.
            raise UnreadableBody(f"{_cause_of(error)} (the body is not of type {name})") from error

    return decode


def name_of(wanted: object) -> str:
    """Return a type as one writes it, without the modules that its parts are from."""
    return _MODULES.sub("", inspect.formatannotation(wanted))


def _cause_of(error: ValueError) -> str:
    """Return what is wrong with a body, place by place, and without the values: they are not for the log."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not isinstance(error, pydantic.ValidationError):
        return text_of(error)
    causes = error.errors(include_url=False, include_input=False)
    shown = [
        ": ".join(filter(None, [".".join(map(str, cause["loc"])), _words_of(cause)]))
        for cause in causes[:_CAUSES_SHOWN_MAX]
    ]
    more = len(causes) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def _words_of(cause: Mapping[str, Any]) -> str:
    if cause["type"] == "union_tag_invalid":
        # Pydantic's own words have the tag in them.
        return f"Input tag does not match any of the expected tags: {cause['ctx']['expected_tags']}"
    return str(cause["msg"])
