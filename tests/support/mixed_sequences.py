"""Random sequences of what Calve, Spark, DuckDB, PyIceberg and Flink do to an Iceberg table; a model of its rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from catalog import Catalog
from catalog.maintenance.findings import Depth
from catalog.schemes.model import Scheme
from catalog.settings.table_config import TableConfig
from catalog.statements.engine import Engine
from catalog.statements.loads import TableLoads
from catalog.statements.session import Session
from tests.support.equality_deletes import delete_equal
from tests.support.iceberg_tables import sql_catalog
from tests.support.published import duckdb_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "shop.t"
OF_ENGINES = "lake.shop.t"
"""The name in engines, which reach the table through the REST door."""

Row = dict[str, Any]
Condition = Callable[[Row], bool]

DAYS = (1, 2, 3, 4)
COUNTRIES = ("DE", "FR", None)
ADDED = ("added", "added too")
"""Columns that come and go, of integers."""
TYPES = {"id": pa.int32(), "note": pa.string(), "country": pa.string(), "day": pa.int32()}

_BY_TWO_KEYS = "CREATE TABLE t (id int, note string) PARTITIONED BY (country string, day int)"
KINDS: dict[str, tuple[str, ...]] = {
    "stored as Iceberg": (f"{_BY_TWO_KEYS} PARTITION INDEX by_day (day, country) STORED AS ICEBERG",),
    "range": (
        "CREATE TABLE t (id int, note string, country string) PARTITIONED BY (day int) STORED BY 'carbondata' "
        "TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='2, 3, 4')",
    ),
    "migrated": (
        f"{_BY_TWO_KEYS} STORED AS PARQUET",
        "INSERT INTO t VALUES (-1, 'a', 'DE', 1), (-2, 'b', NULL, 2), (-3, NULL, 'FR', 2)",
        "CALL iceberg.system.migrate(schema_name => 'shop', table_name => 't')",
    ),
    "of an engine": (),
}
"""Kind of table → the statements that create it."""
MIGRATED: list[Row] = [
    {"id": -1, "note": "a", "country": "DE", "day": 1},
    {"id": -2, "note": "b", "country": None, "day": 2},
    {"id": -3, "note": None, "country": "FR", "day": 2},
]
PLACED_BY = {"stored as Iceberg": ("country", "day"), "migrated": ("country", "day"), "of an engine": ("day",)}
"""Kind of table → the columns whose values make a partition, where they do."""


def literal(value: Any) -> str:
    """Return a value as SQL."""
    return "NULL" if value is None else repr(value)


@dataclass
class MixedSequence:
    """A table and the model of its rows; each method that is named in `steps` does one thing to both, and prints it.

    Attributes:
        lake: Spark as another engine.
        rows: Id → row.
        past: Snapshots, and the rows of each, which the table can be rolled back to.
    """

    session: Session
    catalog: Catalog
    start: Callable[[Catalog], Engine]
    lake: SparkSession
    address: str
    kind: str
    random: Random
    folder: Path
    rows: dict[int, Row] = field(default_factory=dict)
    past: list[tuple[int, dict[int, Row]]] = field(default_factory=list)
    _last_id: int = 0
    _has_equality_deletes: bool = False
    _is_copied_on_write: bool = False

    def __post_init__(self) -> None:
        self._duck = duckdb_at(self.address)
        self._writers = {"calve": self._calve, "spark": self._spark, "duckdb": self._duckdb}

    def create(self) -> None:
        """Create the table."""
        for text in KINDS[self.kind]:
            self._calve(text)
        if self.kind == "migrated":
            self.rows = {row["id"]: dict(row) for row in MIGRATED}
        if self.kind == "of an engine":
            columns = "id int, note string, country string, day int"
            self._spark(f"CREATE TABLE {{}} ({columns}) USING iceberg PARTITIONED BY (day)")

    def steps(self) -> list[Callable[[], None]]:
        """Return what can be done to a table of this kind; what Calve refuses for the kind is left out."""
        inserting = [name for name in self._writers if name != "duckdb" or not self._has_equality_deletes]
        # DuckDB changes rows by delete files only.
        changing = [name for name in inserting if name != "duckdb" or not self._is_copied_on_write]
        found: list[Callable[[], None]] = [
            *(partial(self.insert, writer) for writer in inserting),
            *(partial(statement, writer) for statement in (self.delete, self.update, self.move) for writer in changing),
            *(partial(self.merge, writer) for writer in ("calve", "spark")),
            *(self.compact, self.vacuum, self.remember, self.roll_back_by_spark, self.append_by_pyiceberg),
            *(self.overwrite, self.overwrite_by_spark, self.set_mode, self.expire, self.delete_equal_rows),
            *(partial(self.rewrite, what) for what in ("data_files", "position_delete_files", "manifests")),
            *(partial(statement, "spark") for statement in (self.add_column, self.rename_column, self.drop_column)),
        ]
        if self.kind in ("stored as Iceberg", "range"):
            of_calve = (self.add_column, self.rename_column, self.drop_column)
            found += [partial(statement, "calve") for statement in of_calve]
            found += [partial(self.load, mode) for mode in ("append", "replace", "merge")]
            found += [self.roll_back, self.drop_partition]
        if self.kind == "range":
            found += [self.place, self.merge_partitions]
        return found

    # --- writers ----------------------------------------------------------------------------------------------------

    def _calve(self, text: str) -> None:
        print(f"Calve: {text.format('t')}")
        self.session.execute(text.format("t"))

    def _spark(self, text: str) -> None:
        print(f"Spark: {text.format(OF_ENGINES)}")
        self.lake.sql(text.format(OF_ENGINES)).collect()

    def _duckdb(self, text: str) -> None:
        print(f"DuckDB: {text.format(OF_ENGINES)}")
        self._duck.execute(text.format(OF_ENGINES))

    # --- rows -------------------------------------------------------------------------------------------------------

    @property
    def columns(self) -> list[str]:
        """The columns, in the order that Calve has them."""
        return [name for (name,) in self.session.execute("SHOW COLUMNS IN t").rows]

    def _of_engines(self) -> list[str]:
        return [column.name for column in self.lake.table(OF_ENGINES).schema]

    def _new_rows(self, count: int) -> list[Row]:
        added = [name for name in self._of_engines() if name not in TYPES]
        rows = []
        for _ in range(count):
            self._last_id += 1
            row = {
                "id": self._last_id,
                "note": self.random.choice(("a", "b", "c", None)),
                "country": self.random.choice(COUNTRIES),
                "day": self.random.choice(DAYS),
            }
            rows.append({**row, **{name: self.random.choice((None, 5, 6)) for name in added}})
        return rows

    def _keep(self, rows: Collection[Row]) -> None:
        self.rows |= {row["id"]: row for row in rows}

    def _remove(self, condition: Condition) -> None:
        self.rows = {number: row for number, row in self.rows.items() if not condition(row)}

    def _set(self, condition: Condition, **values: Any) -> None:
        self.rows = {number: {**row, **values} if condition(row) else row for number, row in self.rows.items()}

    def _values(self, rows: Collection[Row], columns: Collection[str]) -> str:
        return ", ".join(f"({', '.join(literal(row[name]) for name in columns)})" for row in rows)

    def _condition(self) -> tuple[str, Condition]:
        note, day = self.random.choice("abc"), self.random.choice(DAYS)
        country, rest = self.random.choice(("DE", "FR")), self.random.randrange(3)
        choices: list[tuple[str, Condition]] = [
            (f"note = '{note}'", lambda row: row["note"] == note),
            (f"day = {day}", lambda row: row["day"] == day),
            (f"day >= {day} AND note = '{note}'", lambda row: row["day"] >= day and row["note"] == note),
            (f"id % 3 = {rest} AND id > 0", lambda row: row["id"] % 3 == rest and row["id"] > 0),
            ("country IS NULL", lambda row: row["country"] is None),
            (f"country = '{country}' AND day <= {day}", lambda row: row["country"] == country and row["day"] <= day),
        ]
        return self.random.choice(choices)

    def _place(self, row: Row) -> Any:
        """Return what stands for the partition of a row."""
        if self.kind in PLACED_BY:
            return tuple(row[name] for name in PLACED_BY[self.kind])
        return self._scheme().partition_of(row["day"])

    def _scheme(self) -> Scheme:
        scheme = self.catalog.get_table(NAME).scheme
        assert scheme is not None
        return scheme

    # --- statements of several writers ------------------------------------------------------------------------------

    def insert(self, writer: str) -> None:
        rows = self._new_rows(self.random.randint(1, 4))
        columns = self.columns if writer == "calve" else self._of_engines()
        self._writers[writer](f"INSERT INTO {{}} VALUES {self._values(rows, columns)}")
        self._keep(rows)

    def delete(self, writer: str) -> None:
        text, condition = self._condition()
        self._writers[writer](f"DELETE FROM {{}} WHERE {text}")
        self._remove(condition)

    def update(self, writer: str) -> None:
        text, condition = self._condition()
        self._writers[writer](f"UPDATE {{}} SET note = '{writer}' WHERE {text}")
        self._set(condition, note=writer)

    def move(self, writer: str) -> None:
        """Update the column that places rows in partitions."""
        text, condition = self._condition()
        day = self.random.choice(DAYS)
        self._writers[writer](f"UPDATE {{}} SET day = {day} WHERE {text}")
        self._set(condition, day=day)

    def merge(self, writer: str) -> None:
        known = self.random.sample(list(self.rows.values()), min(2, len(self.rows)))
        new = [{name: row[name] for name in TYPES} for row in self._new_rows(1)]
        source = self._values([*known, *new], ("id", "country", "day"))
        self._writers[writer](
            f"MERGE INTO {{}} AS t USING (SELECT * FROM (VALUES {source}) AS v (id, country, day)) AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET note = 'merged' "
            "WHEN NOT MATCHED THEN INSERT (id, note, country, day) VALUES (s.id, 'new', s.country, s.day)"
        )
        empty = dict.fromkeys(self._of_engines())
        self._keep([{**row, "note": "merged"} for row in known])
        self._keep([{**empty, **row, "note": "new"} for row in new])

    def add_column(self, writer: str) -> None:
        free = [name for name in ADDED if name not in self._of_engines()]
        if free:
            columns = f"COLUMNS (`{free[0]}` int)" if writer == "calve" else f"COLUMN `{free[0]}` int"
            self._writers[writer](f"ALTER TABLE {{}} ADD {columns}")
            self._set(lambda _: True, **{free[0]: None})
            self.past = []

    def rename_column(self, writer: str) -> None:
        names = self._of_engines()
        for column in ADDED:
            other = f"{column} renamed"
            if column in names and other not in names:
                self._writers[writer](f"ALTER TABLE {{}} RENAME COLUMN `{column}` TO `{other}`")
                for row in self.rows.values():
                    row[other] = row.pop(column)
                self.past = []
                return

    def drop_column(self, writer: str) -> None:
        added = [name for name in self._of_engines() if name not in TYPES]
        if added:
            columns = f"COLUMNS (`{added[0]}`)" if writer == "calve" else f"COLUMN `{added[0]}`"
            self._writers[writer](f"ALTER TABLE {{}} DROP {columns}")
            for row in self.rows.values():
                del row[added[0]]
            self.past = []

    # --- Calve ------------------------------------------------------------------------------------------------------

    def overwrite(self) -> None:
        rows = self._new_rows(2)
        self._calve(f"INSERT OVERWRITE {{}} VALUES {self._values(rows, self.columns)}")
        self._replace(rows)

    def _replace(self, rows: Collection[Row]) -> None:
        places = {self._place(row) for row in rows}
        self._remove(lambda row: self._place(row) in places)
        self._keep(rows)

    def load(self, mode: str) -> None:
        rows = self._new_rows(2)
        if mode == "merge" and self.rows:
            rows.append({**self.random.choice(list(self.rows.values())), "note": "loaded"})
        columns = self.columns
        lines = [",".join("" if row[name] is None else str(row[name]) for name in columns) for row in rows]
        source = self.folder / f"{self._last_id}.csv"
        source.write_text("\n".join([",".join(columns), *lines, ""]))
        by = [*PLACED_BY.get(self.kind, ("day",)), "id"]
        merge = {"keys": by} if mode == "merge" else {}
        print(f"Calve: load with mode {mode} of {rows}")
        config = TableConfig(NAME, str(source), mode=mode, null_keys="allow", merge=merge)
        list(TableLoads(self.catalog, start=self.start).load(config, [str(source)]))
        if mode == "replace":
            self._replace(rows)
        else:
            self._keep(rows)

    def compact(self) -> None:
        self._calve("ALTER TABLE {} COMPACT")

    def drop_partition(self) -> None:
        if self.kind == "range":
            # Files that are in no partition may have rows of it.
            self.place()
            scheme = self._scheme()
            dropped = self.random.choice(scheme.ids[1:])
            self._calve(f"ALTER TABLE {{}} DROP PARTITION ({dropped}) WITH DATA")
            self._remove(lambda row: scheme.partition_of(row["day"]) == dropped)
        else:
            day = self.random.choice(DAYS)
            self._calve(f"ALTER TABLE {{}} DROP IF EXISTS PARTITION (day = {day})")
            self._remove(lambda row: row["day"] == day)

    def vacuum(self) -> None:
        print("Calve: vacuum without a time of grace")
        self.catalog.vacuum(grace=timedelta(0))
        self.past = []

    def remember(self) -> None:
        """Remember the current snapshot as one that can be rolled back to."""
        found = self.lake.sql(f"SELECT snapshot_id FROM {OF_ENGINES}.refs WHERE name = 'main'").collect()
        if found:
            self.past.append((found[0][0], dict(self.rows)))

    def roll_back(self) -> None:
        if self.past:
            snapshot, rows = self.random.choice(self.past)
            self._calve(f"CALL calve.system.rollback_to_snapshot('{NAME}', {snapshot})")
            self.rows = dict(rows)

    # --- partition schemes ------------------------------------------------------------------------------------------

    def place(self) -> None:
        self._calve(f"CALL calve.system.place('{NAME}')")

    def merge_partitions(self) -> None:
        ids = [number for number in self._scheme().ids if number]
        if len(ids) > 1:
            first = self.random.randrange(len(ids) - 1)
            self._calve(f"ALTER TABLE {{}} MERGE PARTITION ({ids[first]}, {ids[first + 1]})")

    # --- engines ----------------------------------------------------------------------------------------------------

    def roll_back_by_spark(self) -> None:
        if self.past:
            snapshot, rows = self.random.choice(self.past)
            self._spark(f"CALL lake.system.set_current_snapshot(table => '{NAME}', snapshot_id => {snapshot})")
            self.rows = dict(rows)

    def set_mode(self) -> None:
        mode = self.random.choice(("merge-on-read", "copy-on-write"))
        self._is_copied_on_write = mode == "copy-on-write"
        modes = ", ".join(f"'write.{statement}.mode'='{mode}'" for statement in ("delete", "update", "merge"))
        self._spark(f"ALTER TABLE {{}} SET TBLPROPERTIES ({modes})")

    def overwrite_by_spark(self) -> None:
        """Overwrite the partitions of Iceberg's specification: all rows, where a scheme places them."""
        rows = self._new_rows(2)
        self._spark(f"INSERT OVERWRITE {{}} VALUES {self._values(rows, self._of_engines())}")
        if self.kind == "range":
            self.rows = {}
        self._replace(rows)

    def rewrite(self, what: str) -> None:
        options = "" if what == "manifests" else ", options => map('rewrite-all', 'true')"
        self._spark(f"CALL lake.system.rewrite_{what}(table => '{NAME}'{options})")

    def expire(self) -> None:
        # Calve's tables do not let engines delete files, unless somebody sets this.
        self._spark("ALTER TABLE {} SET TBLPROPERTIES ('gc.enabled' = 'true')")
        self._spark(f"CALL lake.system.expire_snapshots(table => '{NAME}', older_than => TIMESTAMP '2999-01-01')")
        self.past = []

    def delete_equal_rows(self) -> None:
        """Delete a row as Flink does."""
        if self.rows:
            row = self.random.choice(list(self.rows.values()))
            partition = {name: row[name] for name in PLACED_BY.get(self.kind, ())}
            print(f"Flink: delete of the id {row['id']}")
            delete_equal(self.lake, OF_ENGINES, "id", [row["id"]], partition or None)
            self._remove(lambda other: other["id"] == row["id"])
            self._has_equality_deletes = True

    def append_by_pyiceberg(self) -> None:
        rows, columns = self._new_rows(2), self._of_engines()
        arrays = [pa.array([row[name] for row in rows], TYPES.get(name, pa.int32())) for name in columns]
        print(f"PyIceberg: append of {rows}")
        with sql_catalog(self.catalog.storage.url.render_as_string(hide_password=False)) as iceberg:
            iceberg.load_table(NAME).append(pa.table(dict(zip(columns, arrays, strict=True))))
        self._keep(rows)

    # --- checks -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that Calve and engines read the rows of the model, and that filters find theirs."""
        columns = self.columns
        names = ", ".join(f"`{name}`" for name in columns)

        def ordered(rows: Iterable[Sequence[Any]]) -> list[str]:
            return sorted(repr(tuple(row)) for row in rows)

        def expected(condition: Condition = lambda _: True) -> list[str]:
            return ordered([row[name] for name in columns] for row in self.rows.values() if condition(row))

        assert ordered(self.session.execute(f"SELECT {names} FROM t").rows) == expected()
        assert ordered(self.lake.sql(f"SELECT {names} FROM {OF_ENGINES}").collect()) == expected()
        for _ in range(2):
            text, condition = self._condition()
            assert ordered(self.session.execute(f"SELECT {names} FROM t WHERE {text}").rows) == expected(condition)
        # DuckDB does not read equality deletes of a partition with null.
        if not self._has_equality_deletes:
            quoted = names.replace("`", '"')
            assert ordered(self._duck.execute(f"SELECT {quoted} FROM {OF_ENGINES}").fetchall()) == expected()

    def check_catalog(self) -> None:
        """Check that `calve check` finds no damage."""
        findings = self.catalog.maintenance.check(depth=Depth.ROWS).findings
        assert [finding for finding in findings if finding.kind.is_damage] == []
