"""Statements on a small table, commits of other engines beside them, and what both make of its rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import EqualTo
from pyiceberg.types import LongType, StringType
from sqlalchemy.exc import OperationalError

from catalog import Catalog
from catalog.engine_tables.model import NewTable
from catalog.engine_tables.names import Identifier, Namespace
from catalog.settings.table_config import TableConfig
from catalog.statements.engine import Engine
from catalog.statements.loads import TableLoads
from catalog.statements.session import Session
from tests.support.iceberg_tables import sql_catalog
from tests.support.published import duckdb_at
from tests.support.rest_server import rest_server

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

NAME = "demo.orders"
Row = tuple[int, str | None, int]
Change = Callable[[set[Row]], set[Row]]
Commit = Callable[["IcebergTable"], None]

_LARGE = 5_000_000_000
"""A value that an `int` does not have."""
TAKE_BACK = "take deletes back"
"""The commit by which rows are live again that a delete file had deleted."""
ROWS: set[Row] = {(1, "a", 1), (2, "b", 1), (3, "a", 2), (4, "b", 2), (5, "a", 3)}


def _without(*ids: int) -> Change:
    return lambda rows: {row for row in rows if row[0] not in ids}


def with_rows(*more: Row) -> Change:
    """Return the change of rows that adds some."""
    return lambda rows: rows | set(more)


def merged(rows: set[Row]) -> set[Row]:
    """Return the rows after a merge of the rows 1 and 6 of the day 1, with the note `new`, by their ids."""
    known = {number for number, _, _ in rows}
    noted = {(number, "new" if number in (1, 6) else note, day) for number, note, day in rows}
    return noted | {(number, "new", 1) for number in (1, 6) if number not in known}


def _without_day_1(rows: set[Row]) -> set[Row]:
    return {row for row in rows if row[2] != 1}


STATEMENTS: dict[str, tuple[str, Change]] = {
    "delete": ("DELETE FROM orders WHERE note = 'a'", lambda rows: {row for row in rows if row[1] != "a"}),
    "delete in a partition": ("DELETE FROM orders WHERE day = 1 AND id < 100", _without_day_1),
    "update": (
        "UPDATE orders SET note = 'new' WHERE note = 'b'",
        lambda rows: {(number, "new" if note == "b" else note, day) for number, note, day in rows},
    ),
    "move": (
        "UPDATE orders SET day = 2 WHERE id = 1",
        lambda rows: {(number, note, 2 if number == 1 else day) for number, note, day in rows},
    ),
    "merge": (
        "MERGE INTO orders AS t USING (SELECT * FROM (VALUES (1, 1), (6, 1)) AS v (id, day)) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET note = 'new' "
        "WHEN NOT MATCHED THEN INSERT (id, note, day) VALUES (s.id, 'new', s.day)",
        merged,
    ),
    "compact": ("ALTER TABLE orders COMPACT", lambda rows: rows),
    "overwrite": (
        "INSERT OVERWRITE orders (id, note, day) VALUES (7, 'o', 1)",
        lambda rows: _without_day_1(rows) | {(7, "o", 1)},
    ),
    "overwrite by itself": (
        "INSERT OVERWRITE orders (id, note, day) SELECT id, upper(note), day FROM orders",
        lambda rows: {(number, note and note.upper(), day) for number, note, day in rows},
    ),
    "insert": (
        "INSERT INTO orders (id, note, day) VALUES (7, 'i', 1), (9, 'i', 8)",
        with_rows((7, "i", 1), (9, "i", 8)),
    ),
}

_LOADED: set[Row] = {(1, "new", 1), (6, "new", 1)}

LOADS: dict[str, Change] = {
    "load append": with_rows(*_LOADED),
    "load replace": lambda rows: _without_day_1(rows) | _LOADED,
    "load merge": lambda rows: {row for row in rows if row[2] != 1 or row[0] not in (1, 6)} | _LOADED,
}
"""Load, with its mode → what it makes of the rows of the table; a merge goes by the keys `day` and `id`."""

CHANGES = {**{name: change for name, (_, change) in STATEMENTS.items()}, **LOADS}
"""Statement or load → what it makes of the rows of the table."""


def append(*rows: Row) -> Commit:
    """Return a commit that appends rows."""

    def run(table: IcebergTable) -> None:
        types = [pa.int32(), pa.string(), pa.int32()]
        arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
        table.append(pa.table(dict(zip(("id", "note", "day"), arrays, strict=True))))

    return run


def _change_columns(table: IcebergTable) -> None:
    """Replace a column by another one of the same name, widen one, add one, and append a row with values in them."""
    with table.update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("note")
    with table.update_schema() as schema:
        schema.add_column("note", StringType()).add_column("more", StringType()).update_column("id", LongType())
    table.append(pa.table({"id": [_LARGE], "note": ["a"], "more": ["z"], "day": pa.array([1], pa.int32())}))


def _then_expire(commit: Commit) -> Commit:
    def run(table: IcebergTable) -> None:
        commit(table)
        current = table.current_snapshot()
        assert current is not None
        older = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != current.snapshot_id]
        table.maintenance.expire_snapshots().by_ids(older).commit()

    return run


def _take_deletes_back(table: IcebergTable) -> None:
    """Roll back to the last snapshot without delete files."""
    for snapshot in sorted(table.snapshots(), key=lambda one: one.sequence_number or 0, reverse=True):
        if snapshot.summary is not None and snapshot.summary["total-delete-files"] in (None, "0"):
            table.manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()
            return


_DELETE_A_ROW: Commit = lambda table: table.delete(EqualTo("id", 2))  # noqa: E731

COMMITS: dict[str, tuple[Commit, Change]] = {
    "append": (append((6, "a", 1), (8, "b", 1)), with_rows((6, "a", 1), (8, "b", 1))),
    "append to a new partition": (append((6, "a", 9)), with_rows((6, "a", 9))),
    "delete a row": (_DELETE_A_ROW, _without(2)),
    "delete a partition": (lambda table: table.delete(EqualTo("day", 1)), _without_day_1),
    "overwrite a row": (
        lambda table: table.overwrite(
            pa.table({"id": pa.array([1], pa.int32()), "note": ["b"], "day": pa.array([2], pa.int32())}),
            EqualTo("id", 1),
        ),
        lambda rows: {row for row in rows if row[0] != 1} | {(1, "b", 2)},
    ),
    "change columns": (
        _change_columns,
        lambda rows: {(number, None, day) for number, _, day in rows} | {(_LARGE, "a", 1)},
    ),
    "rewrite": (lambda table: table.overwrite(table.scan().to_arrow()), lambda rows: rows),
    "expire": (_then_expire(lambda _: None), lambda rows: rows),
    "append and expire": (_then_expire(append((6, "a", 1))), with_rows((6, "a", 1))),
    "delete a row and expire": (_then_expire(_DELETE_A_ROW), _without(2)),
    TAKE_BACK: (_take_deletes_back, lambda _: ROWS),
}
"""Commits by PyIceberg, which deletes no files of the snapshots that it expires."""

BETWEEN = [commit for commit in COMMITS if "expire" not in commit and commit != "rewrite"]
"""The commits that are tried with each statement and each kind of table."""

# Calve's tables do not let engines delete files, unless somebody sets this.
_COLLECTED = "ALTER TABLE lake.demo.orders SET TBLPROPERTIES ('gc.enabled' = 'true')"
_EXPIRED = "CALL lake.system.expire_snapshots(table => 'demo.orders', older_than => TIMESTAMP '2999-01-01')"
_REWRITTEN = "CALL lake.system.rewrite_data_files(table => 'demo.orders', options => map('rewrite-all', 'true'))"

SPARK_COMMITS: dict[str, tuple[tuple[str, ...], Change]] = {
    "append": (("INSERT INTO lake.demo.orders VALUES (6, 'a', 1), (8, 'b', 1)",), COMMITS["append"][1]),
    "delete a row": (("DELETE FROM lake.demo.orders WHERE id = 2",), _without(2)),
    "delete a row by a delete file": (
        (
            "ALTER TABLE lake.demo.orders SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')",
            "DELETE FROM lake.demo.orders WHERE id = 2",
        ),
        _without(2),
    ),
    "rewrite and expire": ((_REWRITTEN, _COLLECTED, _EXPIRED), lambda rows: rows),
    "delete a row and expire": (("DELETE FROM lake.demo.orders WHERE id = 2", _COLLECTED, _EXPIRED), _without(2)),
}
"""Commits by Spark, as SQL; it deletes the files of the snapshots that it expires."""

CREATE = "CREATE TABLE orders (id int, note string) PARTITIONED BY (day int)"
KINDS = {
    "stored as Iceberg": (f"{CREATE} STORED AS ICEBERG",),
    "range": (f"{CREATE} STORED BY 'carbondata' TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='2, 3')",),
    "migrated": (
        f"{CREATE} STORED AS PARQUET",
        "CALL iceberg.system.migrate(schema_name => 'demo', table_name => 'orders')",
    ),
}
"""Kind of table → the statements that create it."""
OF_ENGINE = "of an engine"
"""The kind of a table that an engine creates through the REST door."""


class Orders:
    """A session with the table, and an engine that commits while statements run."""

    def __init__(
        self, catalog: Catalog, start: Callable[[Catalog], Engine], source: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.session = Session(catalog, database="demo", start=start)
        self._catalog, self._start, self._source, self._monkeypatch = catalog, start, source, monkeypatch
        source.write_text("id,note,day\n1,new,1\n6,new,1\n")

    def create(self, kind: str) -> None:
        """Create the table with `ROWS`, in two files for two of the days."""
        for text in KINDS.get(kind, ()):
            self.session.execute(text)
        if kind == OF_ENGINE:
            types = {"id": "int", "note": "string", "day": "int"}
            fields = [
                {"id": number, "name": name, "type": type_name, "required": False}
                for number, (name, type_name) in enumerate(types.items(), 1)
            ]
            by_day = {"fields": [{"source-id": 3, "name": "day", "transform": "identity"}]}
            table = NewTable({"type": "struct", "fields": fields}, spec=by_day)
            self._catalog.iceberg.create(Identifier.of(Namespace.of(["demo"]), "orders"), table)
        for rows in (sorted(ROWS)[::2], sorted(ROWS)[1::2]):
            self.session.execute(f"INSERT INTO orders VALUES {', '.join(map(repr, rows))}")

    def prepare(self, commit: str) -> None:
        """Have DuckDB delete a row by a delete file, if a commit is to take that back."""
        if commit == TAKE_BACK:
            with rest_server(self._catalog) as address, duckdb_at(address) as connection:
                connection.execute(f"DELETE FROM lake.{NAME} WHERE id = 2")

    def change(self, name: str) -> None:
        """Run one of `STATEMENTS`, or a load of the mode of one of `LOADS`."""
        if name in STATEMENTS:
            self.session.execute(STATEMENTS[name][0])
            return
        mode = name.removeprefix("load ")
        merge = {"keys": ["day", "id"]} if mode == "merge" else {}
        config = TableConfig(NAME, str(self._source), mode=mode, merge=merge)
        list(TableLoads(self._catalog, start=self._start).load(config, [str(self._source)]))

    def commit(self, commit: Commit) -> None:
        """Have PyIceberg commit; again, if another commit comes first or conflicts with it, or locks the database."""
        for _ in range(20):
            with sql_catalog(self._catalog.storage.url.render_as_string(hide_password=False)) as iceberg:
                try:
                    return commit(iceberg.load_table(NAME))
                except (CommitFailedException, ValidationException, OperationalError) as error:
                    last = error
        raise last

    def commit_between(self, commit: Commit, times: int) -> None:
        """Have PyIceberg commit before each of the next publications."""
        self.at_publication(lambda: self.commit(commit), times)

    def at_publication(self, act: Callable[[], object], times: int = 1, *, is_before: bool = True) -> None:
        """Have something done before or after each of the next publications."""
        left = iter(range(times))
        for owner, name in (
            (self._catalog.loading, "publish"),
            (self._catalog.committer, "commit"),
            (self._catalog.committer, "commit_metadata"),
        ):
            self._monkeypatch.setattr(owner, name, _beside(getattr(owner, name), act, left, is_before=is_before))

    def at_transaction(self, number: int, act: Callable[[], Any]) -> Transactions:
        """Have something done once, before this thread begins its n-th transaction from now on, counted from 1."""
        found = Transactions(number, act)
        for name in ("read", "write"):
            self._monkeypatch.setattr(self._catalog.storage, name, found.counted(getattr(self._catalog.storage, name)))
        return found

    def rows(self) -> list[Row]:
        """Return the rows as Calve reads them."""
        return [tuple(row) for row in self.session.execute("SELECT id, note, day FROM orders").rows]


def _beside(
    publish: Callable[..., Any], act: Callable[[], object], left: Iterator[int], *, is_before: bool
) -> Callable[..., Any]:
    def published(*arguments: Any, **options: Any) -> Any:
        is_now = next(left, None) is not None
        if is_now and is_before:
            act()
        report = publish(*arguments, **options)
        if is_now and not is_before:
            act()
        return report

    return published


class Transactions:
    """The transactions that a thread begins, apart from those within others; something is done before one of them.

    Attributes:
        count: The number of them.
    """

    def __init__(self, number: int, act: Callable[[], Any]) -> None:
        self.count, self._number, self._act = 0, number, act
        self._thread, self._depth = threading.get_ident(), 0

    def counted(self, begin: Callable[..., AbstractContextManager[Any]]) -> Callable[..., AbstractContextManager[Any]]:
        """Return a function that begins transactions, and counts them."""

        @contextmanager
        def begun(**options: Any) -> Iterator[Any]:
            if threading.get_ident() != self._thread:
                with begin(**options) as connection:
                    yield connection
                return
            if self._depth == 0:
                self.count += 1
            self._depth += 1
            try:
                if self._depth == 1 and self.count == self._number:
                    self._act()
                with begin(**options) as connection:
                    yield connection
            finally:
                self._depth -= 1

        return begun

    def finish(self) -> None:
        """Do now what was to be done at a later transaction than those that there were."""
        if self.count < self._number:
            self._number = 0
            self._act()
