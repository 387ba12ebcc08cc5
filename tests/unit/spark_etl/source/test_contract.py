"""What the data source knows of the store's tables."""

from __future__ import annotations

import pytest

from msgdb import tables
from spark_etl.source.contract import LEFT_OUT, SOURCES, SourceTable, spark_schema


def test_each_table_of_the_store_can_be_read_or_is_left_out_by_name() -> None:
    assert sorted([*SOURCES, *LEFT_OUT]) == sorted(table.name for table in tables.metadata.sorted_tables)


@pytest.mark.parametrize("source", SOURCES.values(), ids=list(SOURCES))
def test_each_column_of_a_table_that_can_be_read_is_read(source: SourceTable) -> None:
    table = tables.metadata.tables[source.name]

    assert source.schema.names == [column.name for column in table.columns]


@pytest.mark.parametrize("source", SOURCES.values(), ids=list(SOURCES))
def test_rows_are_read_in_the_order_of_the_primary_key(source: SourceTable) -> None:
    primary_key = [column.name for column in tables.metadata.tables[source.name].primary_key]

    assert list(source.key) == primary_key[: len(source.key)]


@pytest.mark.parametrize("source", SOURCES.values(), ids=list(SOURCES))
def test_spark_knows_the_same_columns(source: SourceTable) -> None:
    assert spark_schema(source).fieldNames() == source.schema.names


def test_a_column_that_is_not_in_the_contract_cannot_be_read() -> None:
    with pytest.raises(KeyError):
        SOURCES["message"].select_of(["queue_id", "password"])
