"""Bodies of any type that pydantic reads, where it is installed; and what is said where it is not."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Generic, Literal, NewType, Optional, TypeVar, Union
from uuid import UUID

import pytest
from pydantic import AfterValidator, BaseModel, Field, RootModel
from typing_extensions import TypedDict

from msgbroker.client import InvalidSettingError, MessageCenter, MessageCenterError
from msgbroker.client.values.bodies import decoder_for, encode_body
from msgbroker.client.values.verdicts import UnreadableBody

ThingT = TypeVar("ThingT")
Number = NewType("Number", int)
Name = NewType("Name", str)


class Order(BaseModel):
    number: int


def even(order: Order) -> Order:
    if order.number % 2:
        raise ValueError("it is odd")
    return order


class Orders(RootModel[list[Order]]):
    pass


class Page(BaseModel, Generic[ThingT]):
    things: list[ThingT]


class Colour(Enum):
    RED = "red"


@dataclass
class Line:
    product: str
    price: Decimal


@dataclass(frozen=True)
class Sale:
    number: UUID
    sold_at: datetime
    lines: list[Line]
    colour: Colour = Colour.RED


class Row(TypedDict):
    number: int


SALE = Sale(UUID(int=7), datetime(2026, 5, 1, 12, tzinfo=UTC), [Line("tea", Decimal("1.50"))])


@pytest.mark.parametrize(
    "wanted, body, value",
    [
        (list[Order], b'[{"number": 1}, {"number": "2"}]', [Order(number=1), Order(number=2)]),
        (Order | Line, b'{"product": "tea", "price": "1.5"}', Line("tea", Decimal("1.5"))),
        (Union[int, str], b'"x"', "x"),  # noqa: UP007
        (Optional[Order], b"null", None),  # noqa: UP045
        (Order | None, b'{"number": 1}', Order(number=1)),
        (Line, b'{"product": "tea", "price": 1}', Line("tea", Decimal(1))),
        (Row, b'{"number": "1"}', {"number": 1}),
        (Annotated[int, Field(gt=0)], b"3", 3),
        (Number, b'"3"', 3),
        (datetime, b'"2026-05-01T12:00:00Z"', datetime(2026, 5, 1, 12, tzinfo=UTC)),
        (int, b"3", 3),
        (bool, b"true", True),
        (Literal["a", "b"], b'"a"', "a"),
        (Page[Order], b'{"things": [{"number": 1}]}', Page[Order](things=[Order(number=1)])),
        (Orders, b'[{"number": 1}]', Orders([Order(number=1)])),
        (dict[str, int], b'{"a": "1"}', {"a": 1}),
        (tuple[int, str], b'[1, "a"]', (1, "a")),
        (Colour, b'"red"', Colour.RED),
        (Name, b"no JSON", "no JSON"),
        (Annotated[str, Field(max_length=3)], b"abc", "abc"),
    ],
    ids=repr,
)
def test_a_body_is_read_as_pydantic_reads_it(wanted: Any, body: bytes, value: object) -> None:
    assert decoder_for(wanted)(body) == value


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


@pytest.mark.parametrize(
    "wanted, body, cause",
    [
        (list[Order], b'[{"number": 1}, {}]', "1.number: Field required (the body is not of type list[Order])"),
        (dict[str, int], b'{"a": "secret"}', "a: Input should be a valid integer"),
        (Annotated[int, Field(gt=0)], b"0", "Input should be greater than 0"),
        (Literal["a"], b'"b"', "Input should be 'a'"),
        (Order, b'{"number": "secret"}', "number: Input should be a valid integer"),
        (Order, b"{", "Invalid JSON: EOF while parsing an object"),
        (int, b"[" * 10_000, "Invalid JSON: recursion limit exceeded"),
        (list[int], b'["secret", "secret", "secret", "secret", "secret", "secret", "secret"]', "; and 2 more"),
        (Annotated[Cat | Dog, Field(discriminator="kind")], b'{"kind": "secret"}', "expected tags: 'cat', 'dog'"),
        (Annotated[str, Field(max_length=3)], b"secret", "String should have at most 3 characters"),
        (Annotated[Order, AfterValidator(even)], b'{"number": 1}', "the body is not of type Annotated[Order"),
        (Name, b"\xff", "the body is not UTF-8 text"),
    ],
    ids=range(12),
)
def test_what_is_wrong_is_told_without_the_values(wanted: Any, body: bytes, cause: str) -> None:
    with pytest.raises(UnreadableBody) as unreadable:
        decoder_for(wanted)(body)
    said = unreadable.value.verdict.error
    assert cause in said
    assert "secret" not in said
    assert "\n" not in said
    assert unreadable.value.verdict.is_unreadable


@pytest.mark.parametrize(
    "wanted", [object(), 3, complex | MessageCenter, Annotated[str, Field(pattern="(")]], ids=range(4)
)
def test_what_pydantic_cannot_read_is_refused_at_declaration(wanted: Any) -> None:
    with pytest.raises(InvalidSettingError, match=r"<lambda> asks for a body of .*; or take a dict, list, str, bytes"):
        MessageCenter().subscriber(group="SG", topic="TP", body=wanted)(lambda body: None)


_PLAIN: list[Any] = [bytes, str, dict, list, dict[str, Any], list[Any], dict[str, object], list[object], Order]
_TYPED: list[Any] = [int, list[Order], dict[str, int], list[str], Order | None, Line, Name]


@pytest.mark.parametrize("wanted", _PLAIN, ids=repr)
def test_plain_bodies_and_models_need_no_pydantic_of_ours(wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    decoder_for(wanted)


@pytest.mark.parametrize("wanted", _TYPED, ids=repr)
def test_without_pydantic_it_is_said_what_to_install(wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)

    async def handle(order: Any) -> None: ...

    with pytest.raises(
        InvalidSettingError, match=r"handle asks for a body of .*: pip install pydantic; or take a dict"
    ):
        MessageCenter().subscriber(group="SG", topic="TP", body=wanted)(handle)


def test_importing_the_client_does_not_import_pydantic() -> None:
    program = "import sys, msgbroker.client, msgbroker.client.testing; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    "body, wanted",
    [
        (SALE, Sale),
        ([SALE, SALE], list[Sale]),
        ({"sale": SALE}, dict[str, Sale]),
        (Row(number=1), Row),
        (Order(number=1), Order),
        ([Order(number=1)], list[Order]),
        (Orders([Order(number=1)]), Orders),
        ({"at": SALE.sold_at}, dict[str, datetime]),
        ([{1, 2}], list[set[int]]),
    ],
    ids=range(9),
)
def test_what_is_published_is_read_back_as_what_it_was(body: Any, wanted: Any) -> None:
    assert decoder_for(wanted)(encode_body(body)) == body


@pytest.mark.parametrize("body", [3, None, Line, (1, 2), object(), [object()], {"a": 1j}], ids=range(7))
def test_what_has_no_form_is_refused(body: Any) -> None:
    with pytest.raises((TypeError, MessageCenterError), match="body"):
        encode_body(body)
