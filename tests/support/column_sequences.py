"""A table whose columns change, with loads, rebalances and reads, and a model of what each row has in each column."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import duckdb

from catalog import Catalog
from catalog.files.filesystem import Folder
from catalog.model import Column
from catalog.rebalancing.changes import AddPartitions, MergePartitions, SplitPartition
from catalog.tables.schemes import scheme_from_properties
from spark_jobs.queries.query import query
from spark_jobs.reading.tables import read_table
from spark_jobs.rebalance import rebalance
from spark_jobs.writing.scheme_loading import load_rows
from spark_jobs.writing.value_loading import append_rows

STEPS = 9
STEPS_BETWEEN_READS = 3
NAMES = ("a", "b", "c", "d")
"""Few names, so that columns reuse those of renamed or dropped ones."""

WIDER = {"tinyint": "int", "int": "bigint", "float": "double", "varchar(4)": "varchar(9)"}
TYPES = ("string", *WIDER)
KEYS = (3, 7, 12, 15, 25)


@dataclass
class ModelColumn:
    id: int
    name: str
    type: str


@dataclass
class Sequence:
    """A table under test and its model: rows are values by column id; the key is named k."""

    spark: Any
    catalog: Catalog
    table: str
    has_scheme: bool
    random: random.Random
    columns: list[ModelColumn] = field(default_factory=list)
    rows: list[dict[int, Any]] = field(default_factory=list)
    key: int = 0
    last_id: int = 0
    steps: list[str] = field(default_factory=list)

    def create(self) -> None:
        self.columns = [self.new_column("a", "int"), self.new_column("b", "string")]
        self.key = self.last_id = self.last_id + 1
        given = [(column.name, column.type) for column in self.columns]
        if self.has_scheme:
            scheme = scheme_from_properties(Column("k", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20"})
            self.catalog.create_table(self.table, columns=[*given, ("k", "int")], scheme=scheme)
        else:
            self.catalog.create_table(self.table, columns=given, partition_keys=[("k", "int")])

    def new_column(self, name: str, column_type: str) -> ModelColumn:
        self.last_id += 1
        return ModelColumn(self.last_id, name, column_type)

    def new_operation(self) -> str:
        return f"{self.table}/{len(self.steps)}"

    def free_name(self) -> str | None:
        used = {column.name for column in self.columns}
        free = [name for name in NAMES if name not in used]
        return self.random.choice(free) if free else None

    # --- changes of columns -----------------------------------------------------------------------------------------

    def rename(self) -> None:
        if (name := self.free_name()) is not None:
            column = self.random.choice(self.columns)
            self.catalog.alter_table(self.table, change_columns={column.name: (name, column.type)})
            column.name = name

    def exchange(self) -> None:
        if len(self.columns) > 1:
            one, other = self.random.sample(self.columns, 2)
            changes = {one.name: (other.name, one.type), other.name: (one.name, other.type)}
            self.catalog.alter_table(self.table, change_columns=changes)
            one.name, other.name = other.name, one.name

    def add(self) -> None:
        if (name := self.free_name()) is not None:
            column = self.new_column(name, self.random.choice(TYPES))
            self.catalog.alter_table(self.table, add_columns=[(name, column.type)])
            self.columns.append(column)

    def drop(self) -> None:
        if len(self.columns) > 1:
            column = self.random.choice(self.columns)
            self.catalog.alter_table(self.table, drop_columns=[column.name])
            self.columns.remove(column)
            for row in self.rows:
                row.pop(column.id, None)

    def reorder(self) -> None:
        self.random.shuffle(self.columns)
        order = [column.name for column in self.columns] + ["k"] * self.has_scheme
        self.catalog.alter_table(self.table, column_order=order)

    def widen(self) -> None:
        if some := [column for column in self.columns if column.type in WIDER]:
            column = self.random.choice(some)
            column.type = WIDER[column.type]
            self.catalog.alter_table(self.table, change_columns={column.name: (column.name, column.type)})

    # --- rows -------------------------------------------------------------------------------------------------------

    def value(self, column_type: str) -> Any:
        if self.random.random() < 0.2:
            return None
        numbers = {"tinyint": 1 << 6, "int": 1 << 30, "bigint": 1 << 50}
        if column_type in numbers:
            return self.random.randrange(-numbers[column_type], numbers[column_type])
        if column_type in ("float", "double"):
            return self.random.randrange(-100, 100) / 8
        return "".join(self.random.choices("xyzé", k=self.random.randrange(1, 5)))

    def load(self) -> None:
        rows = [
            {column.id: self.value(column.type) for column in self.columns} | {self.key: self.random.choice(KEYS)}
            for _ in range(self.random.randrange(1, 4))
        ]
        types = [(column.id, column.name, column.type) for column in self.columns]
        types.append((self.key, "k", "int"))
        self.random.shuffle(types)
        schema = ", ".join(f"{name} {'string' if 'char' in kind else kind}" for _, name, kind in types)
        frame = self.spark.createDataFrame([tuple(row[number] for number, *_ in types) for row in rows], schema)
        loading = load_rows if self.has_scheme else append_rows
        loading(self.spark, self.catalog, self.new_operation(), self.table, frame.coalesce(1))
        self.rows += rows

    def rebalance(self) -> None:
        if not self.has_scheme:
            return
        scheme = self.catalog.get_table(self.table).scheme
        bounds: list[tuple[int, str]] = list(scheme.bounds)  # type: ignore[union-attr]
        if len(bounds) > 3:
            change: Any = MergePartitions((bounds[0][0], bounds[1][0]))
        elif int(bounds[0][1]) > 5:
            change = SplitPartition(bounds[0][0], ("5", bounds[0][1]))
        else:
            change = AddPartitions((str(int(bounds[-1][1]) + 10),))
        rebalance(self.spark, self.catalog, self.new_operation(), self.table, change)

    # --- readers ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        names = [column.name for column in self.columns] + ["k"]
        table = self.catalog.get_table(self.table)
        every = table.columns if self.has_scheme else (*table.columns, *table.partition_keys)
        assert [column.name for column in every] == names
        ids = [column.id for column in self.columns] + [self.key]
        assert [column.id for column in every] == ids
        expected = ordered(tuple(row.get(number) for number in ids) for row in self.rows)
        frame = read_table(self.spark, self.table, catalog=self.catalog)
        assert frame.columns == names
        assert ordered(map(tuple, frame.collect())) == expected
        assert ordered(self.read_by_field_ids(ids)) == expected

    def filter(self) -> None:
        """Read the rows with one of a column's values, by `read_table` and in SQL."""
        column = self.random.choice(self.columns)
        values = [row[column.id] for row in self.rows if row.get(column.id) is not None]
        if not values:
            return
        value = self.random.choice(values)
        ids = [each.id for each in self.columns] + [self.key]
        expected = ordered(tuple(row.get(n) for n in ids) for row in self.rows if row.get(column.id) == value)
        where = f"{column.name} = {value!r}"
        if self.has_scheme:
            frame = read_table(self.spark, self.table, where, catalog=self.catalog)
            assert ordered(map(tuple, frame.collect())) == expected
        answer = query(self.spark, f"SELECT * FROM {self.table} WHERE {where}", catalog=self.catalog)
        assert ordered(map(tuple, answer.collect())) == expected

    def read_by_field_ids(self, ids: list[int]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows that DuckDB reads from the table's files by field ids."""
        with duckdb.connect() as connection:
            for path, key in self.files():
                footer = connection.execute(
                    "SELECT field_id, name FROM parquet_schema(?) WHERE field_id IS NOT NULL", [path]
                ).fetchall()
                names = {number: f'"{name}"' for number, name in footer}
                if key is not None:
                    assert self.key not in names
                    names[self.key] = key
                parts = ", ".join(names.get(number, "NULL") for number in ids)
                # The key is only in the folder's name.
                yield from connection.execute(
                    f"SELECT {parts} FROM read_parquet(?, hive_partitioning = false)", [path]
                ).fetchall()

    def files(self) -> Iterator[tuple[str, str | None]]:
        """Yield the path of each file, and the key's value if its folder has it."""
        if self.has_scheme:
            location = self.catalog.get_table(self.table).location
            for file in self.catalog.scan_files(self.table).files:
                yield f"{location}/{file.path}", None
            return
        for partition in self.catalog.get_partitions(self.table):
            for file in Folder(partition.location).files():
                yield file.path, partition.values[0]

    def run(self) -> None:
        self.create()
        actions: list[Callable[[], None]] = [self.load, self.load, self.load, self.rename, self.rename, self.exchange]
        actions += [self.add, self.add, self.drop, self.reorder, self.widen, self.rebalance, self.rebalance]
        self.steps.append("load")
        self.load()
        for number in range(1, STEPS + 1):
            action = self.random.choice(actions)
            self.steps.append(action.__name__)
            action()
            if number % STEPS_BETWEEN_READS == 0:
                self.steps.append("read")
                self.check()
                self.filter()


def ordered(rows: Any) -> list[tuple[Any, ...]]:
    """Return rows in a defined order, including nulls."""
    return sorted(rows, key=lambda row: [(value is None, str(value)) for value in row])
