"""A string is one value of a partition, wherever it comes from, or each entry refuses it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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


def comparable(type_name: str, texts: Iterable[str]) -> list[str]:
    """Return the strings that tables with and without an index treat alike.

    Indexes of chars admit no control characters, which other partitions may have.
    """
    return [text for text in texts if text.strip() and (min(text) >= " " or not type_name.startswith("char"))]


def test_a_value_is_found_with_and_without_an_index_or_refused(
    catalog: Catalog, tables: dict[str, tuple[str, str]]
) -> None:
    # An empty string is null.
    every = [text for text in random_texts(effort(100, 10_000), seed=44) if text.strip()]
    for name, both in tables.items():
        key_type, refused, texts = parse_key_type(name), [], comparable(name, every)
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
        for text in comparable(name, VALUES[:: effort(5, 1)]):
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
