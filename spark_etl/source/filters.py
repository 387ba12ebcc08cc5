"""Which of Spark's filters PostgreSQL evaluates, and what part of a table they leave. Pure.

A filter is taken only where PostgreSQL's answer is Spark's for every value, NULL included; all others go back to Spark.
Texts are compared for equality alone: which of two is less is a matter of the database's collation. Times arrive as
moments, whatever time zone the session has: Spark has put it to the literal already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from spark_etl.source.contract import Column, SourceTable
from spark_etl.source.literals import literal

_COMPARISONS: Final[Mapping[type[Filter], str]] = {
    EqualTo: "=",
    EqualNullSafe: "IS NOT DISTINCT FROM",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
_EQUALITIES: Final = (EqualTo, EqualNullSafe)
_MICROSECOND: Final = timedelta(microseconds=1)

ValueT = TypeVar("ValueT", int, datetime)


@dataclass(frozen=True, slots=True)
class Bounds(Generic[ValueT]):
    """What a column's values are within: *low* or more, less than *high*; None where nothing bounds them."""

    low: ValueT | None = None
    high: ValueT | None = None

    def within(self, other: Bounds[ValueT]) -> Bounds[ValueT]:
        """Return what is within both."""
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return Bounds(max(lows, default=None), min(highs, default=None))


@dataclass(frozen=True, slots=True)
class Pushed:
    """What PostgreSQL evaluates: the conditions by their columns, and the bounds of offsets and times among them."""

    conditions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    offsets: Bounds[int] = Bounds()
    times: Bounds[datetime] = Bounds()

    def of_columns(self, *names: str) -> tuple[str, ...]:
        """Return the conditions on these columns."""
        return tuple(condition for name in names for condition in self.conditions.get(name, ()))

    @property
    def all_conditions(self) -> tuple[str, ...]:
        """Every condition, in no order that matters."""
        return self.of_columns(*self.conditions)


def push(source: SourceTable, filters: Iterable[Filter]) -> tuple[Pushed, list[Filter]]:
    """Return what PostgreSQL evaluates of *filters*, and those that are left for Spark."""
    conditions: dict[str, tuple[str, ...]] = {}
    left: list[Filter] = []
    offsets: Bounds[int] = Bounds()
    times: Bounds[datetime] = Bounds()
    for each in filters:
        column = _column_of(source, each)
        condition = None if column is None else _condition(column, each)
        if column is None or condition is None:
            left.append(each)
            continue
        conditions[column.name] = (*conditions.get(column.name, ()), condition)
        if column.name == source.offset_column:
            offsets = offsets.within(_bounds(each, 1))
        elif column.name == source.day_column:
            times = times.within(_bounds(each, _MICROSECOND))
    return Pushed(conditions, offsets, times), left


def _column_of(source: SourceTable, given: Filter) -> Column | None:
    path: Sequence[str] = given.child.attribute if isinstance(given, Not) else given.attribute  # type: ignore[attr-defined]
    # A path of several names leads into a struct: there is none.
    return source.column(path[0]) if len(path) == 1 and path[0] in source.schema.names else None


def _condition(column: Column, given: Filter) -> str | None:
    """Return *given* as SQL, or None where it is not understood. Where it is NULL no row passes, there as here."""
    name = f"t.{column.name}"
    match given:
        case IsNull():
            return f"{name} IS NULL"
        case IsNotNull():
            return f"{name} IS NOT NULL"
        case Not():
            condition = _condition(column, given.child)
            return None if condition is None else f"NOT ({condition})"
        case In():
            written = [_written(column, value, is_equality=True) for value in given.value]
            return None if not written or None in written else f"{name} IN ({', '.join(map(str, written))})"
    operator = _COMPARISONS.get(type(given))
    if operator is None:
        return None
    written_value = _written(column, given.value, is_equality=isinstance(given, _EQUALITIES))  # type: ignore[attr-defined]
    return None if written_value is None else f"{name} {operator} {written_value}"


def _written(column: Column, value: Any, *, is_equality: bool) -> str | None:
    """Return *value* as SQL, if it is of the column's own kind."""
    if value is None:
        return "NULL"
    kind = type(value)
    if column.cast_from is not None or (kind is str and not is_equality):
        return None
    takes = (
        (kind is int and pa.types.is_integer(column.type))
        or (kind is str and pa.types.is_string(column.type) and "\0" not in value)
        or (kind is bool and pa.types.is_boolean(column.type) and is_equality)
        or (kind is datetime and pa.types.is_timestamp(column.type) and value.tzinfo is not None)
        or (kind is date and pa.types.is_date(column.type))
    )
    return literal(value) if takes else None


def _bounds(given: Filter, step: Any) -> Bounds[Any]:
    """Return what *given* bounds a column to; *step* is from one value to the next."""
    match given:
        case EqualTo(value=value) | EqualNullSafe(value=value) if value is not None:
            bounds = Bounds(value, _after(value, step))
        case In(value=values) if present := [value for value in values if value is not None]:
            bounds = Bounds(min(present), _after(max(present), step))
        case GreaterThan(value=value) if value is not None:
            bounds = Bounds(low=_after(value, step))
        case GreaterThanOrEqual(value=value) if value is not None:
            bounds = Bounds(low=value)
        case LessThan(value=value) if value is not None:
            bounds = Bounds(high=value)
        case LessThanOrEqual(value=value) if value is not None:
            bounds = Bounds(high=_after(value, step))
        case _:
            bounds = Bounds()
    return bounds


def _after(value: Any, step: Any) -> Any:
    """Return the next value, or None where there is none: no time is after the last microsecond of the year 9999."""
    try:
        return value + step
    except OverflowError:
        return None
