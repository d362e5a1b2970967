"""Entries, over generated tables and partitions: what went in comes out, and every way to find partitions agrees."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from multiprocessing import get_context
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from catalog import Catalog
from catalog.doors.entries import Entries
from catalog.errors import CatalogError
from catalog.metastores.types import HiveDatabase, HivePartition, HiveSkew, HiveStorage, HiveTable
from catalog.model import Column
from catalog.model.identifiers import TableName
from catalog.model.partition_names import NULL_VALUE, partition_path
from tests.support.effort import effort
from tests.support.entries import NAME, ORDERS, PARQUET, STRANGE

NUMBERS = count()
shared = settings(
    max_examples=effort(12, 60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
words = st.text("abcXYZ_09", min_size=1, max_size=6)
parameters = st.dictionaries(
    texts.filter(lambda name: not name.lower().startswith("calve.") and name != "comment"), texts, max_size=3
)
optional = st.none() | texts
json = st.recursive(st.none() | st.booleans() | st.integers(0, 9) | texts, lambda inner: st.lists(inner, max_size=2))
types = st.sampled_from(
    ["int", "STRING", "struct<A:int,b:array<string>>", "map<string,int>", "decimal(10,2)", "odd type"]
)
columns = st.lists(st.builds(Column, words, types, optional), max_size=4, unique_by=lambda column: column.name.lower())
storages = st.builds(
    HiveStorage,
    input_format=st.sampled_from([None, PARQUET.input_format, "com.example.Input"]),
    serde=st.sampled_from([None, PARQUET.serde, "com.example.SerDe"]),
    serde_parameters=parameters,
    output_format=optional,
    serde_name=optional,
    is_compressed=st.booleans(),
    bucket_columns=st.lists(words, max_size=2).map(tuple),
    bucket_count=st.integers(-1, 4),
    sort_columns=st.lists(st.tuples(words, st.integers(0, 1)), max_size=2).map(tuple),
    parameters=parameters,
    skew=st.none() | st.builds(HiveSkew, st.lists(words, max_size=2).map(tuple), st.just((("a", "b"),))),
    is_stored_as_subdirectories=st.none() | st.booleans(),
    extra=st.dictionaries(words, json, max_size=2),
)
keys = st.sampled_from([(), ("string",), ("string", "int"), ("binary", "date", "decimal(5,1)")])


@st.composite
def tables(draw: st.DrawFn) -> HiveTable:
    own = tuple(draw(columns))
    table_type = draw(
        st.sampled_from(["MANAGED_TABLE", "EXTERNAL_TABLE", "VIRTUAL_VIEW", "MATERIALIZED_VIEW", None, "Odd"])
    )
    key_types = () if table_type == "VIRTUAL_VIEW" else draw(keys)
    names = [f"Key{number}" for number in range(len(key_types))]
    return HiveTable(
        TableName("demo", f"t{next(NUMBERS)}"),
        table_type,
        own,
        tuple(Column(name, key_type) for name, key_type in zip(names, key_types, strict=True)),
        draw(storages),
        parameters=draw(parameters),
        description=draw(optional),
        view_text=draw(optional),
        original_view_text=draw(optional),
        owner=draw(optional),
        owner_type=draw(optional),
        retention=draw(st.integers(0, 2**31 - 1)),
        created_at=draw(st.none() | st.integers(0, 2**31 - 1)),
        accessed_at=draw(st.integers(0, 2**31 - 1)),
        extra=draw(st.dictionaries(words, json, max_size=2)),
    )


@shared
@given(table=tables(), changed=tables(), cascade=st.booleans())
def test_a_table_is_what_went_in(entries: Entries, table: HiveTable, changed: HiveTable, cascade: bool) -> None:
    created = entries.create_table(table)
    expected = replace(table, location=created.location, created_at=created.created_at)
    assert created == entries.table(table.name) == expected
    assert entries.tables([table.name]) == [expected]
    assert table.created_at in (None, created.created_at)
    is_view = table.table_type == "VIRTUAL_VIEW"
    assume((changed.table_type == "VIRTUAL_VIEW") is is_view)
    altered = entries.alter_table(table.name, changed, cascade=cascade)
    assert altered == replace(changed, location=altered.location, created_at=changed.created_at or altered.created_at)
    assert entries.versions(changed.name)[1].entry == expected


@shared
@given(
    st.builds(
        HiveDatabase,
        name=st.builds(lambda: f"d{next(NUMBERS)}"),
        description=optional,
        parameters=parameters,
        owner=optional,
        owner_type=optional,
        created_at=st.none() | st.integers(0, 2**31 - 1),
        extra=st.dictionaries(words, json, max_size=2),
    )
)
def test_a_database_is_what_went_in(entries: Entries, database: HiveDatabase) -> None:
    created = entries.create_database(database)
    assert created == replace(database, location=created.location)
    assert entries.alter_database(database.name, database) == created


# --- partitions -------------------------------------------------------------------------------------------------------

countries = st.sampled_from(["DE", "US", NULL_VALUE, "a/b=c %", "'\"\\", "ü"]) | st.text(
    st.characters(min_codepoint=3, exclude_categories=["Cs"]), min_size=1, max_size=8
)
days = st.integers(-3, 9).map(str) | st.just(NULL_VALUE)
values = st.tuples(countries, days)
partition_parameters = st.dictionaries(
    st.sampled_from(["numRows", "numFiles", "totalSize", "by", "comment", ""]),
    st.sampled_from(["0", "7", "-1", "007", "9223372036854775808", "x", ""]),
    max_size=3,
)
partition_storages = st.sampled_from([PARQUET, STRANGE, HiveStorage(), replace(PARQUET, columns=(Column("o", "int"),))])
partitions = st.builds(
    HivePartition,
    values,
    partition_storages,
    partition_parameters,
    st.none(),
    st.none() | st.integers(1, 2**31 - 1),
    st.integers(0, 9),
)
batches = st.lists(partitions, max_size=6)
steps = st.lists(
    st.tuples(st.just("add"), batches)
    | st.tuples(st.just("alter"), st.lists(st.tuples(values, partitions), max_size=3))
    | st.tuples(st.just("drop"), st.lists(values, max_size=3)),
    max_size=6,
)
expressions = st.sampled_from(["country = 'DE'", "day >= 2", "day in (1, 5) and country is not null", "day is null"])


def plain(values: tuple[str, ...]) -> tuple[str | None, ...]:
    return tuple(None if value == NULL_VALUE else value for value in values)


def name_of(values: tuple[str, ...]) -> str:
    return partition_path(("country", "day"), plain(values))


class Model:
    """What a table must have after some steps, each of which is made whole or not at all."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, ...], HivePartition] = {}

    def add(self, batch: list[HivePartition]) -> bool:
        names = [partition.values for partition in batch]
        if len(set(names)) < len(names) or set(names) & self.partitions.keys():
            return False
        self.partitions |= {partition.values: partition for partition in batch}
        return True

    def alter(self, changes: list[tuple[tuple[str, ...], HivePartition]]) -> bool:
        olds = [old for old, _ in changes]
        if len(set(olds)) < len(olds) or set(olds) - self.partitions.keys():
            return False
        after = dict(self.partitions)
        for old, partition in changes:
            if partition.values != old and partition.values in after:
                return False
            del after[old]
            after[partition.values] = partition
        self.partitions = after
        return True

    def drop(self, names: list[tuple[str, ...]]) -> bool:
        if set(names) - self.partitions.keys():
            return False
        for name in set(names):
            del self.partitions[name]
        return True


@shared
@given(steps=steps, expression=expressions)
def test_partitions_are_what_went_in_and_all_ways_to_them_agree(entries: Entries, steps: Any, expression: str) -> None:
    table = replace(ORDERS, name=TableName("demo", f"p{next(NUMBERS)}"))
    location = str(entries.create_table(table).location)
    entries.catalog.create_partition_index(str(table.name), "by_day", ["day", "country"])
    model = Model()
    calls = {"add": entries.add_partitions, "alter": entries.alter_partitions, "drop": entries.drop_partitions}
    for kind, given_batch in steps:
        is_made = getattr(model, kind)(given_batch)
        with nullcontext() if is_made else pytest.raises(CatalogError):
            calls[kind](table.name, given_batch)
    found = {partition.values: partition for partition in entries.partitions(table.name)}
    assert found == {
        key: given_partition._replace(
            location=f"{location}/{name_of(key)}",
            created_at=given_partition.created_at or found[key].created_at,
        )
        for key, given_partition in model.partitions.items()
    }
    assert all(os.path.isdir(str(partition.location)) for partition in found.values())
    assert entries.partition_names(table.name) == sorted(map(name_of, found))
    assert entries.partitions_by_values(table.name, found) == list(found.values())
    matching = {partition.values: partition for partition in entries.partitions(table.name, expression)}
    unindexed = entries.catalog.get_partitions(str(table.name), expression, use_indexes=False)
    assert {plain(key) for key in matching} == {partition.values for partition in unindexed}
    assert all(found[key] == partition for key, partition in matching.items())
    assert entries.partition_names(table.name, expression) == sorted(map(name_of, matching))
    assert entries.catalog.verify_partition_index(str(table.name), "by_day").is_exact


# --- several processes ------------------------------------------------------------------------------------------------

PROCESSES, BATCHES, SIZE = 3, 4, 25


def numbered(worker: int, batch: int) -> Iterator[HivePartition]:
    storage = STRANGE if batch % 2 else PARQUET
    for number in range(SIZE):
        yield HivePartition((f"c{worker}", str(batch * SIZE + number)), storage, {"by": str(worker)})


def add(url: str, worker: int, results: Any) -> None:
    with Catalog.open(url, warehouse="/tmp") as catalog:
        entries = Entries(catalog)
        for batch in range(BATCHES):
            # Those of the worker, and one that all workers add.
            entries.add_partitions(NAME, numbered(worker, batch))
            both = HivePartition(("all", str(batch)), STRANGE)
            results.put(entries.add_partitions(NAME, [both], if_not_exists=True).added)


@pytest.mark.long
def test_processes_that_add_at_once_lose_nothing(entries: Entries, catalog_url: str) -> None:
    entries.create_table(ORDERS)
    entries.catalog.create_partition_index("demo.orders", "by_day", ["day"])
    context = get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=add, args=(catalog_url, number, results)) for number in range(PROCESSES)]
    for process in workers:
        process.start()
    added = [results.get(timeout=120) for _ in range(PROCESSES * BATCHES)]
    for process in workers:
        process.join(60)
    assert sum(added) == BATCHES
    expected = {
        partition.values
        for worker in range(PROCESSES)
        for batch in range(BATCHES)
        for partition in numbered(worker, batch)
    }
    found = {partition.values: partition for partition in entries.partitions(NAME)}
    assert found.keys() == expected | {("all", str(batch)) for batch in range(BATCHES)}
    assert all(found[partition.values].storage == partition.storage for partition in numbered(1, 1))
    assert all(os.path.isdir(str(partition.location)) for partition in found.values())
    assert entries.catalog.verify_partition_index("demo.orders", "by_day").is_exact
