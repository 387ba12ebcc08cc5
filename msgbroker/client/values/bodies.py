"""Bodies: from what applications publish to bytes, and from bytes to what a handler asks for by its annotation."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar, Final, Protocol, runtime_checkable
from uuid import UUID

from msgbroker.client.values.texts import text_of
from msgbroker.client.values.typed_bodies import name_of, typed_decoder, validating
from msgbroker.client.values.verdicts import UnreadableBody
from msgbroker.contract.errors import BodyTypeError, InvalidRequestFieldError

Decoder = Callable[[bytes], Any]


@runtime_checkable
class JsonModel(Protocol):
    """What a pydantic model's instance can do; pydantic itself is never imported."""

    def model_dump_json(self) -> str:
        """Return the model as JSON."""
        ...


class DataclassInstance(Protocol):
    """What type checkers take for an instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Body = (
    bytes
    | bytearray
    | memoryview
    | str
    | dict[str, Any]
    | list[Any]
    | Mapping[str, Any]
    | JsonModel
    | DataclassInstance
)
"""What a body may be. A TypedDict is a Mapping to type checkers, and to them alone."""


def encode_body(body: Body) -> bytes:
    """Return *body* as bytes: text as UTF-8, dict, list and dataclass as JSON, a pydantic model as its JSON.

    Raises:
        InvalidRequestFieldError: it has text that UTF-8 has no place for (a lone surrogate), or is in itself, or cannot
            be written otherwise.
        BodyTypeError: it is, or has in it, anything else.
    """
    try:
        return _encode_body(body)
    except UnicodeEncodeError as error:
        raise InvalidRequestFieldError("body", f"has text that is not UTF-8: {error}") from error
    except BodyTypeError:
        raise
    except TypeError as error:
        raise BodyTypeError(f"the body cannot be written as JSON: {error}") from error
    except (ValueError, RecursionError) as error:
        # Of what is in itself, or too deep; pydantic says so of whatever it has no form for.
        raise InvalidRequestFieldError("body", f"cannot be written as JSON: {text_of(error)}") from error


def _encode_body(body: Body) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, (dict, list)):
        return _json(body)
    if isinstance(body, (bytearray, memoryview)):
        return bytes(body)
    if isinstance(body, JsonModel):
        return body.model_dump_json().encode()
    if _is_record(body):
        return _json(body)
    raise BodyTypeError(f"a body is bytes, str, dict, list, a dataclass or a pydantic model, not {type(body).__name__}")


def _json(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode()


def _is_record(value: object) -> bool:
    return isinstance(value, Mapping) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def _plain(value: Any) -> Any:
    """Return what JSON has no form for as something that it has one for; json.dumps asks for it."""
    for kinds, form in _FORMS:
        if isinstance(value, kinds):
            return form(value)
    if _is_record(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} has no form there")


_FORMS: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (JsonModel, lambda model: json.loads(model.model_dump_json())),
    (Mapping, dict),
    ((date, time), lambda moment: moment.isoformat()),
    (timedelta, timedelta.total_seconds),
    ((UUID, Decimal), str),
    (Enum, lambda member: member.value),
    ((set, frozenset), list),
)
"""What JSON has no form for, in the form in which pydantic reads it."""


def decoder_for(wanted: object) -> Decoder:
    """Return what turns a body into *wanted*: an annotation, of any type that the client or pydantic can read.

    bytes and text are taken as they are, all else is read from JSON. The decoder raises UnreadableBody for a body that
    is not of that form.

    Raises:
        InvalidSettingError: nothing can read it.
    """
    if wanted is bytes:
        return bytes
    if wanted is str:
        return _text
    kind = _plain_kind(wanted)
    if kind is not None:
        return _json_decoder(kind)
    validate = getattr(getattr(wanted, "__origin__", wanted), "model_validate_json", None)
    # What is said of an annotated model, only pydantic knows.
    if validate is not None and typing.get_origin(wanted) is not typing.Annotated:
        return validating(name_of(wanted), validate)
    return typed_decoder(wanted, _RAW.get(_base_of(wanted)))


def _plain_kind(wanted: object) -> type | None:
    """Return dict or list where any JSON object, or any array, will do."""
    origin = typing.get_origin(wanted) or wanted
    if origin is not dict and origin is not list:
        return None
    of_what = list(typing.get_args(wanted))
    if origin is dict and of_what[:1] == [str]:
        # As all keys of JSON are.
        del of_what[0]
    return origin if all(each is Any or each is object for each in of_what) else None


def _base_of(wanted: Any) -> Any:
    """Return what Annotated and NewType are made of."""
    while True:
        if typing.get_origin(wanted) is typing.Annotated:
            wanted = typing.get_args(wanted)[0]
        elif isinstance(wanted, typing.NewType):
            wanted = wanted.__supertype__
        else:
            return wanted if isinstance(wanted, type) else None


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise UnreadableBody(f"the body is not UTF-8 text: {error}") from error


_RAW: Final[dict[Any, Decoder]] = {bytes: bytes, str: _text}


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
