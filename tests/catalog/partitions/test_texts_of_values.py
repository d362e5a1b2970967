"""A string is one value of a partition, wherever it comes from, or each entry refuses it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog import Catalog, NewPartition, OnInvalid
from catalog.errors import InvalidPartitionError
from catalog.statements.session import Session
from catalog.types.key_types import KeyValueError, parse_key_type
from catalog.types.literals import quoted
from tests.support.effort import effort
from tests.support.random_texts import VALUES, random_texts

TYPES = ("tinyint", "int", "bigint", "double", "decimal(9,2)", "boolean", "date", "timestamp", "char(3)", "varchar(3)")


@pytest.fixture
def session(catalog: Catalog) -> Iterator[Session]:
    with Session(catalog, database="demo") as session:
        yield session


@pytest.fixture
def tables(catalog: Catalog) -> dict[str, tuple[str, str]]:
    """Type → the names of a table without a partition index and of one with an index."""
    catalog.create_database("demo", if_not_exists=True)
    names = {}
    for number, name in enumerate(TYPES):
        names[name] = (f"demo.plain_{number}", f"demo.indexed_{number}")
        for table in names[name]:
            catalog.create_table(table, columns=[("id", "int")], partition_keys=[("k", name)])
        catalog.create_partition_index(names[name][1], "by_k", ["k"])
    return names


def test_a_value_is_found_with_and_without_an_index_or_refused(
    catalog: Catalog, tables: dict[str, tuple[str, str]]
) -> None:
    # An empty string is null.
    every = [text for text in random_texts(effort(100, 10_000), seed=44) if text.strip()]
    # Indexes of chars admit no control characters.
    printed = [text for text in every if min(text) >= " "]
    for name, both in tables.items():
        key_type, refused, texts = parse_key_type(name), [], printed if name.startswith("char") else every
        for table in both:
            result = catalog.add_partitions(
                table, map(NewPartition, [[text] for text in texts]), if_not_exists=True, on_invalid=OnInvalid.SKIP
            )
            refused.append([partition.value for partition in result.refused])
        assert refused[0] == refused[1]
        found = [list(catalog.get_partitions(table)) for table in both]
        assert {partition.values for partition in found[0]} == {partition.values for partition in found[1]}
        for partition in found[0][:: effort(10, 1)]:
            [text] = partition.values
            assert text is not None
            literal = key_type.format(key_type.parse(text))
            for table in both:
                assert [other.values for other in catalog.get_partitions(table, f"k = {literal}")] == [(text,)], name


def test_each_entry_refuses_the_same_strings(
    catalog: Catalog, session: Session, tables: dict[str, tuple[str, str]]
) -> None:
    for name, both in tables.items():
        key_type, fitting = parse_key_type(name), []
        for text in filter(str.strip, VALUES[:: effort(5, 1)]):
            try:
                key_type.parse(text)
                fitting.append(f"PARTITION (k={quoted(text)})")
            except KeyValueError:
                with pytest.raises(InvalidPartitionError):
                    catalog.add_partitions(both[0], [NewPartition([text])])
                with pytest.raises(InvalidPartitionError):
                    session.execute(f"ALTER TABLE {both[0]} ADD PARTITION (k={quoted(text)})")
        for table in both if fitting else ():
            session.execute(f"ALTER TABLE {table} ADD IF NOT EXISTS {' '.join(fitting)}")
