"""Bodies: from what applications publish to bytes, and from bytes to what a handler asks for by its annotation."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from msgbroker.client.verdicts import UnreadableBody
from msgbroker.contract.errors import InvalidRequestFieldError, InvalidSettingError

Decoder = Callable[[bytes], Any]


@runtime_checkable
class JsonModel(Protocol):
    """What a pydantic model's instance can do; pydantic itself is never imported."""

    def model_dump_json(self) -> str:
        """Return the model as JSON."""
        ...


Body = bytes | bytearray | memoryview | str | dict[str, Any] | list[Any] | JsonModel


def encode_body(body: Body) -> bytes:
    """Return *body* as bytes: text as UTF-8, dict and list as JSON, a pydantic model as its JSON.

    Raises:
        InvalidRequestFieldError: it has text that UTF-8 has no place for (a lone surrogate).
        TypeError: for anything else.
    """
    try:
        return _encode_body(body)
    except UnicodeEncodeError as error:
        raise InvalidRequestFieldError("body", f"has text that is not UTF-8: {error}") from error


def _encode_body(body: Body) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, (dict, list)):
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    if isinstance(body, (bytearray, memoryview)):
        return bytes(body)
    if isinstance(body, JsonModel):
        return body.model_dump_json().encode()
    raise TypeError(f"a body is bytes, str, dict, list or a pydantic model, not {type(body).__name__}")


def decoder_for(wanted: object) -> Decoder:
    """Return what turns a body into *wanted* (bytes, str, dict, list or a pydantic model class).

    The decoder raises UnreadableBody for a body that is not of that form: a second attempt would read the same bytes.
    """
    origin = getattr(wanted, "__origin__", wanted)
    if origin is bytes:
        return bytes
    if origin is str:
        return _text
    if origin in {dict, list}:
        return _json_decoder(origin)
    validate = getattr(origin, "model_validate_json", None)
    if validate is not None:
        return _model_decoder(str(getattr(origin, "__name__", origin)), validate)
    raise InvalidSettingError(
        "handler", f"asks for a body of {wanted!r}; Message, bytes, str, dict, list or a pydantic model"
    )


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise UnreadableBody(f"the body is not UTF-8 text: {error}") from error


def _json_decoder(kind: type) -> Decoder:
    def decode(body: bytes) -> Any:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise UnreadableBody(f"the body is not JSON: {error}") from error
        if not isinstance(value, kind):
            raise UnreadableBody(f"the body is a JSON {type(value).__name__}; the handler takes a {kind.__name__}")
        return value

    return decode


def _model_decoder(name: str, validate: Callable[[bytes], Any]) -> Decoder:
    def decode(body: bytes) -> Any:
        try:
            return validate(body)
        except ValueError as error:
            # pydantic's ValidationError is a ValueError.
            raise UnreadableBody(f"the body is not a {name}: {error}") from error

    return decode
