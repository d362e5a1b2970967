"""A table with a partition scheme that Calve and other engines change by turns, and a model of its rows.

Engines are Iceberg's Spark runtime through the JDBC catalog, and PyIceberg; they and DuckDB read it after each change.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import ancestors_of

from catalog.errors import UnplacedFilesError
from catalog.model import Column
from catalog.rebalancing.changes import (
    AddPartitions,
    DropPartitions,
    MergePartitions,
    PartitionChange,
    PlaceFiles,
    SetPartitionCount,
    SplitPartition,
)
from catalog.schemes.hashing import HashScheme
from catalog.schemes.lists import ListScheme
from catalog.schemes.model import Scheme
from catalog.schemes.ranges import RangeScheme
from catalog.tables.schemes import scheme_from_properties
from spark_jobs.queries.query import query
from spark_jobs.reading.tables import read_table
from spark_jobs.rebalance import rebalance
from spark_jobs.writing.scheme_loading import load_rows
from tests.support import column_sequences
from tests.support.column_sequences import KEYS, TYPES, WIDER, ModelColumn, ordered
from tests.support.effort import effort
from tests.support.engine_filters import pyiceberg_condition, spark_condition
from tests.support.iceberg_tables import sql_catalog
from tests.support.scheme_values import Where, comparison, nothing

SCHEMES: Mapping[str, dict[str, str]] = {
    "range": {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20", "SORT_COLUMNS": "s"},
    "list": {"PARTITION_TYPE": "LIST", "LIST_INFO": "3, (7, 12)"},
    "hash": {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "3"},
    "interval": {"PARTITION_TYPE": "RANGE_INTERVAL", "RANGE_INFO": "10", "INTERVAL": "10"},
}
NESTED = ("array<int>", "struct<x:int,y:string>")
SPARK_TYPES = {"varchar(4)": "string", "varchar(9)": "string"}
ENGINE_TYPES = {**SPARK_TYPES, "tinyint": "int"}
MOST_RANGES = 5
STEPS = effort(5, 8)

ModelRow = dict[int, Any]


@dataclass
class OpenTable(column_sequences.Sequence):
    """A table under test.

    Attributes:
        engine: A Spark session with the Iceberg catalog `calve`, without Calve.
        duck: DuckDB with its Iceberg extension.
        method: A key of `SCHEMES`.
        states: Snapshot id → the rows and the scheme, for each snapshot that is not expired.
        next_id: The lowest partition id that no scheme of the table ever had.
    """

    engine: Any = None
    duck: duckdb.DuckDBPyConnection | None = None
    url: str = ""
    method: str = "range"
    states: dict[int, tuple[list[ModelRow], dict[str, Any]]] = field(default_factory=dict)
    next_id: int = 0

    def create(self) -> None:
        self.columns = [self.new_column(name, kind) for name, kind in (("a", "int"), ("b", "string"), ("s", "string"))]
        self.key = self.last_id = self.last_id + 1
        columns = [*((column.name, column.type) for column in self.columns), ("k", "int")]
        scheme = scheme_from_properties(Column("k", "int"), SCHEMES[self.method])
        mode = self.random.choice(["copy-on-write", "copy-on-write", "merge-on-read"])
        properties = {"write.delete.mode": mode}
        self.catalog.create_table(self.table, columns=columns, scheme=scheme, properties=properties)

    @property
    def scheme(self) -> Scheme:
        scheme = self.catalog.get_table(self.table).scheme
        assert scheme is not None
        return scheme

    @property
    def others(self) -> list[ModelColumn]:
        """The columns that may be renamed, dropped or widened."""
        return [column for column in self.columns if column.name != "s"]

    def value(self, column_type: str) -> Any:
        match column_type:
            case "date":
                return self.random.choice([None, date(1500, 2, 3), date(2024, 2, 29)])
            case "decimal(6,2)":
                return self.random.choice([None, Decimal("-12.30"), Decimal("9999.99"), Decimal("0.05")])
            case "array<int>":
                return self.random.choice([None, [], [1, None], [self.random.randrange(9)]])
            case "struct<x:int,y:string>":
                return self.random.choice([None, {"x": None, "y": "p"}, {"x": self.random.randrange(9), "y": None}])
        return super().value(column_type)

    def new_rows(self) -> list[ModelRow]:
        return [
            {column.id: self.value(column.type) for column in self.columns} | {self.key: self.new_key()}
            for _ in range(self.random.randrange(1, 6))
        ]

    def new_key(self) -> int | None:
        return None if self.random.random() < 0.1 else self.random.choice(KEYS)

    def by_name(self, rows: Sequence[ModelRow]) -> list[dict[str, Any]]:
        """Return rows by the names of the current columns."""
        names = {column.id: column.name for column in self.columns} | {self.key: "k"}
        return [{name: row.get(number) for number, name in names.items()} for row in rows]

    # --- changes of Calve -------------------------------------------------------------------------------------------

    def rename(self) -> None:
        if (name := self.free_name()) is not None and self.others:
            column = self.random.choice(self.others)
            self.catalog.alter_table(self.table, change_columns={column.name: (name, column.type)})
            column.name = name

    def drop(self) -> None:
        if self.others:
            column = self.random.choice(self.others)
            self.catalog.alter_table(self.table, drop_columns=[column.name])
            self.columns.remove(column)

    def add(self) -> None:
        if (name := self.free_name()) is not None:
            kind = self.random.choice((*TYPES, "date", "decimal(6,2)", *NESTED))
            self.catalog.alter_table(self.table, add_columns=[(name, kind)])
            self.columns.append(self.new_column(name, kind))
            # The fields inside of a column have ids, too.
            self.last_id = self.catalog.get_table(self.table).last_column_id

    def load(self) -> None:
        rows = self.new_rows()
        load_rows(self.spark, self.catalog, self.new_operation(), self.table, self.frame(self.spark, rows))
        self.rows = self.rows + rows

    def frame(self, spark: Any, rows: Sequence[ModelRow], types: Mapping[str, str] = SPARK_TYPES) -> Any:
        kinds = [(column.name, types.get(column.type, column.type)) for column in self.columns] + [("k", "int")]
        values = [tuple(row[name] for name, _ in kinds) for row in self.by_name(rows)]
        return spark.createDataFrame(values, ", ".join(f"{name} {kind}" for name, kind in kinds)).coalesce(1)

    def rebalance(self) -> None:
        change = self.new_change(self.scheme)
        if change is None:
            return
        gone: set[int] = set()
        if isinstance(change, DropPartitions) and change.with_data:
            gone = set(change.partition_ids)
        before = self.scheme
        self.steps[-1] += f" {change}"
        try:
            rebalance(self.spark, self.catalog, self.new_operation(), self.table, change)
        except UnplacedFilesError:
            assert gone
            self.place()
            rebalance(self.spark, self.catalog, f"{self.new_operation()}/placed", self.table, change)
        if gone:
            self.rows = [row for row in self.rows if before.partition_of(row[self.key]) not in gone]

    def new_change(self, scheme: Scheme) -> PartitionChange | None:
        """Return a random change that the scheme allows; None if there is none."""
        match scheme:
            case HashScheme():
                return SetPartitionCount(self.random.randrange(1, 6))
            case ListScheme():
                return self._new_list_change(scheme)
            case RangeScheme():
                return self._new_range_change(scheme)
        raise TypeError(scheme)

    def _new_list_change(self, scheme: ListScheme) -> PartitionChange | None:
        groups = dict(scheme.groups)
        listed = {value for group in groups.values() for value in group}
        free = [str(key) for key in KEYS if str(key) not in listed]
        great = [number for number, group in groups.items() if len(group) > 1]
        changes: list[PartitionChange] = []
        if free:
            changes.append(AddPartitions((self.random.choice(free),)))
        if great:
            number = self.random.choice(great)
            first, *others = groups[number]
            changes.append(SplitPartition(number, (first, f"({', '.join(others)})")))
        if len(groups) > 1:
            changes.append(MergePartitions(tuple(self.random.sample(sorted(groups), 2))))
            changes.append(DropPartitions((self.random.choice(sorted(groups)),), self.random.random() < 0.5))
        return self.random.choice(changes) if changes else None

    def _new_range_change(self, scheme: RangeScheme) -> PartitionChange | None:
        bounds = [(number, int(text)) for number, text in scheme.bounds]
        number, upper = self.random.choice(bounds)
        position = bounds.index((number, upper))
        lower = bounds[position - 1][1] if position else 0
        changes: list[PartitionChange] = []
        if len(bounds) < MOST_RANGES:
            changes.append(AddPartitions((str(bounds[-1][1] + 10),)))
            if upper - lower > 1:
                cut = self.random.randrange(lower + 1, upper)
                changes.append(SplitPartition(number, (str(cut), str(upper))))
        if len(bounds) > 1:
            first = self.random.randrange(len(bounds) - 1)
            changes.append(MergePartitions((bounds[first][0], bounds[first + 1][0])))
            changes.append(DropPartitions((number,), self.random.random() < 0.5))
        return self.random.choice(changes) if changes else None

    def place(self) -> None:
        rebalance(self.spark, self.catalog, f"{self.new_operation()}/place", self.table, PlaceFiles())

    def roll_back(self) -> None:
        """Roll back by Calve, which also knows snapshots that were rolled back from."""
        if self.states:
            snapshot_id = self.random.choice(sorted(self.states))
            self.catalog.roll_backs.to_snapshot(self.table, snapshot_id, operation_id=self.new_operation())
            self.rows = self.states[snapshot_id][0]
            self.check_scheme(snapshot_id)

    def check_scheme(self, snapshot_id: int) -> None:
        """Check that the scheme is that of a snapshot; ids that were given since are not given again."""
        table, before = self.catalog.get_table(self.table), self.states[snapshot_id][1]
        assert table.scheme is not None
        assert {**table.scheme.as_json(), "next_id": 0} == {**before, "next_id": 0}

    def expire(self) -> None:
        report = self.catalog.vacuum(self.table, grace=timedelta(0))
        assert not report.problems
        current = self.snapshot_id()
        self.states = {number: state for number, state in self.states.items() if number == current}

    # --- changes of engines -----------------------------------------------------------------------------------------

    def append_by_spark(self) -> None:
        rows = self.new_rows()
        self.frame(self.engine, rows, ENGINE_TYPES).writeTo(self.engine_name).append()
        self.rows = self.rows + rows

    def append_by_pyiceberg(self) -> None:
        rows = self.new_rows()
        with sql_catalog(self.url) as iceberg:
            table = iceberg.load_table(self.table)
            table.append(self._arrow(table, rows))
        self.rows = self.rows + rows

    def delete_by_spark(self) -> None:
        """Delete rows by copying the others, or by files of deleted positions, as the table's property says."""
        key = self.random.choice(KEYS)
        self.engine.sql(f"DELETE FROM {self.engine_name} WHERE k = {key}")
        self.rows = [row for row in self.rows if row[self.key] != key]

    def overwrite_by_pyiceberg(self) -> None:
        key, rows = self.random.choice(KEYS), self.new_rows()
        with sql_catalog(self.url) as iceberg, warnings.catch_warnings():
            # PyIceberg warns if no row matches, and if the table asks for delete files.
            warnings.simplefilter("ignore", UserWarning)
            table = iceberg.load_table(self.table)
            table.overwrite(self._arrow(table, rows), overwrite_filter=EqualTo("k", key))
        self.rows = [row for row in self.rows if row[self.key] != key] + rows

    def roll_back_by_pyiceberg(self) -> None:
        with sql_catalog(self.url) as iceberg:
            table = iceberg.load_table(self.table)
            earlier = list(ancestors_of(table.current_snapshot(), table.metadata))[1:]
            if not (known := [each.snapshot_id for each in earlier if each.snapshot_id in self.states]):
                return
            snapshot_id = self.random.choice(known)
            table.manage_snapshots().rollback_to_snapshot(snapshot_id).commit()
        self.rows = self.states[snapshot_id][0]
        read_table(self.spark, self.table, catalog=self.catalog)
        self.check_scheme(snapshot_id)

    def change_columns_by_spark(self) -> None:
        column, name = self.random.choice([*self.others, None]), self.free_name()
        kind = self.random.choice(["add", "rename", "drop", "widen"])
        if kind == "add" and name is not None:
            added = self.new_column(name, self.random.choice(["int", "string", "float", "date", "decimal(6,2)"]))
            self.alter_by_spark(f"ADD COLUMN {name} {added.type}")
            self.columns.append(added)
        elif kind == "rename" and name is not None and column is not None:
            self.alter_by_spark(f"RENAME COLUMN {column.name} TO {name}")
            column.name = name
        elif kind == "drop" and column is not None:
            self.alter_by_spark(f"DROP COLUMN {column.name}")
            self.columns.remove(column)
        elif kind == "widen" and column is not None and column.type in ("int", "float"):
            column.type = WIDER[column.type]
            self.alter_by_spark(f"ALTER COLUMN {column.name} TYPE {column.type}")

    def alter_by_spark(self, change: str) -> None:
        self.steps[-1] += f" {change}"
        self.engine.sql(f"ALTER TABLE {self.engine_name} {change}")

    def _arrow(self, table: IcebergTable, rows: Sequence[ModelRow]) -> pa.Table:
        return pa.Table.from_pylist(self.by_name(rows), schema=table.schema().as_arrow())

    @property
    def engine_name(self) -> str:
        return f"calve.{self.table}"

    # --- readers ----------------------------------------------------------------------------------------------------

    def snapshot_id(self) -> int | None:
        """Return the id of the current snapshot of the live table."""
        with sql_catalog(self.url) as iceberg:
            snapshot = iceberg.load_table(self.table).current_snapshot()
        return None if snapshot is None else snapshot.snapshot_id

    def check(self) -> None:
        """Compare what every reader returns, with and without a filter, with the model."""
        expected = self.by_name(self.rows)
        self.compare(None, expected)
        where = self.new_filter()
        self.compare(where, [row for row in expected if where.test(row)])
        scheme = self.scheme.as_json()
        next_id = scheme.get("next_id", 0)
        assert next_id >= self.next_id
        self.next_id = next_id
        if (number := self.snapshot_id()) is not None:
            self.states[number] = self.rows, scheme

    def compare(self, where: Where | None, expected: Sequence[Mapping[str, Any]]) -> None:
        rows = ordered(map(values, expected))
        wrong = {reader: found for reader, found in self.read_all(where).items() if found != rows}
        assert not wrong, f"{None if where is None else where.text}: {wrong} instead of {rows}"

    def new_filter(self) -> Where:
        """Return a condition on one column, of a value that it has, if there is any."""
        simple = [(column.id, column.name, column.type) for column in self.columns if column.type not in NESTED]
        number, name, kind = self.random.choice([*simple, (self.key, "k", "int"), (self.key, "k", "int")])
        known = [row[number] for row in self.rows if row.get(number) is not None]
        if not known or kind == "date" or self.random.random() < 0.2:
            return nothing(name, self.random.choice(["", "not "]))
        # PyIceberg 0.12 also returns nulls of files with an int, if a bigint is compared with a number outside of int.
        operators = ["="] if kind == "bigint" else ["=", "<", ">="]
        return comparison(name, kind, self.random.choice(operators), self.random.choice(known))

    def read_all(self, where: Where | None) -> dict[str, list[Any]]:
        """Return the rows that each reader returns, in the order of the model's columns."""
        names = [column.name for column in self.columns] + ["k"]
        text = None if where is None else where.text
        kinds = {column.name: SPARK_TYPES.get(column.type, column.type) for column in self.columns} | {"k": "int"}
        own = read_table(self.spark, self.table, text, catalog=self.catalog)
        suffix = "" if where is None else f" WHERE {where.text}"
        sql = query(self.spark, f"SELECT {', '.join(names)} FROM {self.table}{suffix}", catalog=self.catalog)
        others = self.engine.table(self.engine_name)
        with sql_catalog(self.url) as iceberg:
            table = iceberg.load_table(self.table)
            condition = {} if where is None else {"row_filter": pyiceberg_condition(where.tree)}
            arrow = table.scan(**condition, selected_fields=tuple(names)).to_arrow().select(names)
            location = table.metadata_location
        assert self.duck is not None
        suffix = "" if where is None else f" WHERE {where.sql}"
        duck: list[Any] = []
        # DuckDB refuses tables without a snapshot.
        if table.current_snapshot() is not None:
            statement = f"SELECT {', '.join(names)} FROM iceberg_scan('{location}'){suffix}"
            duck = self.duck.execute(statement).to_arrow_table().to_pylist()
        return {
            "calve": collected(own, names),
            "query": collected(sql, names),
            "spark": collected(others if where is None else others.where(spark_condition(where.tree, kinds)), names),
            "pyiceberg": ordered(map(values, arrow.to_pylist())),
            "duckdb": ordered(map(values, duck)),
        }

    def run(self) -> None:
        self.create()
        actions: list[Callable[[], None]] = [
            *(self.load, self.load, self.rebalance, self.rebalance, self.rebalance, self.rename, self.add, self.add),
            *(self.drop, self.widen, self.reorder, self.expire, self.place, self.roll_back, self.roll_back),
            *(self.roll_back_by_pyiceberg, self.change_columns_by_spark),
            *(self.append_by_spark, self.append_by_pyiceberg, self.delete_by_spark, self.overwrite_by_pyiceberg),
        ]
        for action in (self.load, *self.random.choices(actions, k=STEPS)):
            self.steps.append(action.__name__)
            action()
            self.check()


def values(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.values())


def collected(frame: Any, names: Sequence[str]) -> list[Any]:
    rows = [row.asDict(recursive=True) for row in frame.select(*names).collect()]
    return ordered(map(values, rows))
