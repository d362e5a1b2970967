"""The history of data files, against a model that remembers every revision."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, func, insert, select

from catalog import Catalog, Column, Table
from catalog.datafiles import history
from catalog.datafiles.files import NewFile, insert_files, relabel_files, retire_files
from catalog.schemes.model import NumberedScheme
from catalog.storage.schema import DataFileRow, FormerFileRow, RevisionRow, TableRow
from catalog.storage.upgrade import downgrade, upgrade
from catalog.tables.schemes import scheme_from_properties

State = frozenset[tuple[int, int, str]]
"""The id, the partition and the path of each file."""


def ranged(catalog: Catalog, name: str) -> Table:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20"})
    return catalog.create_table(name, columns=[("c", "int")], scheme=scheme)


def state(catalog: Catalog, table: Table) -> State:
    row = DataFileRow
    with catalog.storage.read() as connection:
        query = select(row.id, row.partition_id, row.path).where(row.table_id == table.id)
        return frozenset(tuple(found) for found in connection.execute(query))


def state_as_of(catalog: Catalog, table: Table, revision: int) -> State:
    """Return the files of a revision by its definition."""
    row, former = DataFileRow, FormerFileRow
    current = select(row.id, row.partition_id, row.path).where(row.table_id == table.id, row.revision <= revision)
    earlier = select(former.file_id, former.partition_id, former.path).where(
        former.table_id == table.id, former.revision <= revision, former.until_revision > revision
    )
    with catalog.storage.read() as connection:
        rows = [tuple(found) for query in (current, earlier) for found in connection.execute(query)]
    assert len(rows) == len(set(rows))
    return frozenset(rows)


class Past:
    """A table that is changed step by step, and the model of its revisions."""

    def __init__(self, catalog: Catalog, table: Table) -> None:
        self.catalog, self.table = catalog, table
        self.states: dict[int, State] = {}
        self.next_ids: dict[int, int] = {}
        self.made = 0

    def step(self, kind: str, numbers: list[int]) -> None:
        self.table = self.catalog.get_table(self.table.full_name)
        scheme = self.table.scheme
        assert isinstance(scheme, NumberedScheme)
        ids = sorted(file_id for file_id, *_ in state(self.catalog, self.table))
        with self.catalog.storage.write() as connection:
            chosen = sorted({ids[number % len(ids)] for number in numbers}) if ids else []
            match kind:
                case "insert":
                    files = [NewFile(number % 3, f"{self.made + at}", 1, 1, {}) for at, number in enumerate(numbers)]
                    self.made += len(files)
                    insert_files(connection, self.table, files, 1)
                case "relabel":
                    relabelled = dict.fromkeys(chosen, numbers[0] % 3)
                    assert relabel_files(connection, self.table, relabelled) == len(chosen)
                case "relabel twice and retire":
                    relabel_files(connection, self.table, dict.fromkeys(chosen, 1))
                    relabel_files(connection, self.table, dict.fromkeys(chosen, 2))
                    retire_files(connection, self.table, chosen[:1])
                case "retire":
                    assert len(retire_files(connection, self.table, chosen)) == len(chosen)
                case "split":
                    scheme = scheme.add([str(1000 + scheme.next_id)]).scheme
                    assert isinstance(scheme, NumberedScheme)
                    connection.execute(
                        TableRow.__table__.update().where(TableRow.id == self.table.id).values(scheme=scheme.as_json())
                    )
                case "restore" if self.states:
                    revision = sorted(self.states)[numbers[0] % len(self.states)]
                    before = scheme.next_id
                    restored = history.restore(connection, self.table, revision)
                    assert isinstance(restored, NumberedScheme)
                    assert restored.next_id == max(before, self.next_ids[revision])
                    scheme = restored
                    expected = self.states[revision]
            revision = history.record_revision(connection, self.table, 100 + len(self.states) % 7, scheme)
        if kind == "restore" and self.states:
            assert state(self.catalog, self.table) == expected
        assert self.catalog.get_table(self.table.full_name).scheme == scheme
        self.states[revision] = state(self.catalog, self.table)
        self.next_ids[revision] = scheme.next_id

    def check(self) -> None:
        for revision, expected in self.states.items():
            assert state_as_of(self.catalog, self.table, revision) == expected


KINDS = ["insert", "insert", "relabel", "relabel twice and retire", "retire", "split", "restore", "restore"]
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.lists(st.integers(0, 50), min_size=1, max_size=4)), min_size=3, max_size=12
)


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_each_revision_has_its_rows_whatever_follows(catalog: Catalog, steps: list[tuple[str, list[int]]]) -> None:
    for known in catalog.list_tables():
        catalog.drop_table(known.full_name, purge=True)
    past = Past(catalog, ranged(catalog, "demo.t"))
    other = Past(catalog, ranged(catalog, "demo.other"))
    other.step("insert", [1, 2, 3])
    for kind, numbers in steps:
        past.step(kind, numbers)
        past.check()
    other.check()
    assert state(catalog, other.table) == other.states[1]


def test_the_nearest_recorded_snapshot_is_found(catalog: Catalog) -> None:
    table = ranged(catalog, "demo.t")
    with catalog.storage.write() as connection:
        assert not history.has_recorded(connection, table)
        assert history.nearest_recorded(connection, table, [1, 2]) is None
        for snapshot_id in (10, 20, 10):
            history.record_revision(connection, table, snapshot_id, table.scheme)
        found = [
            history.nearest_recorded(connection, table, snapshot_ids) for snapshot_ids in ([99, 20, 10], [10], [99])
        ]
    assert [known and (known.revision, known.snapshot_id, known.is_latest) for known in found] == [
        (2, 20, False),
        (3, 10, True),
        None,
    ]


def test_former_rows_are_needed_as_long_as_a_revision_has_them(catalog: Catalog) -> None:
    past = Past(catalog, ranged(catalog, "demo.t"))
    past.step("insert", [0, 1])
    past.step("relabel", [0])
    past.step("retire", [0, 1])
    past.step("restore", [1])
    with catalog.storage.write() as connection:

        def needless(kept: list[int] | None = None) -> list[tuple[str, bool]]:
            query = history.former_files(connection, past.table.id, 1 << 60, kept)
            return [(row.path, bool(row.is_live)) for row in connection.execute(query)]

        assert needless() == []
        assert history.ended_revisions(connection, past.table, []) == [1, 2, 3]
        assert history.ended_revisions(connection, past.table, [101, 102]) == [1]
        history.forget_revisions(connection, past.table, [1])
        assert needless() == [("0", True)]
        assert {path for path, _ in needless([102])} == {"0", "1"}
        history.forget_revisions(connection, past.table, [2, 3])
        assert set(needless()) == {("0", True), ("1", True)}


# --- the schema revision ----------------------------------------------------------------------------------------------


def test_retired_files_become_former_files_and_again_retired_ones(catalog: Catalog) -> None:
    table = ranged(catalog, "demo.t")
    dropped = {"table_id": table.id + 1, "table_name": "demo.gone", "folder": "/lake/gone", "size_bytes": 7}
    kept = {"table_id": table.id, "table_name": "demo.t", "folder": table.location, "size_bytes": 5}
    rows = [
        {**kept, "path": "1-1/a.parquet", "retired_at_ms": 1},
        {**kept, "path": "b.parquet", "folder": "s3://else/where", "retired_at_ms": 2},
        {**dropped, "path": "1-1/c.parquet", "retired_at_ms": 3},
    ]
    downgrade(catalog.storage, "0022")
    with catalog.storage.write() as connection:
        retired = _reflected(connection)
        connection.execute(insert(retired), rows)
    upgrade(catalog.storage)
    former = FormerFileRow
    with catalog.storage.write() as connection:
        query = select(former.table_id, former.path, former.size_bytes, former.retired_at_ms).order_by(former.number)
        assert [tuple(row) for row in connection.execute(query)] == [
            (table.id, "1-1/a.parquet", 5, 1),
            (table.id, "s3://else/where/b.parquet", 5, 2),
            (0, "/lake/gone/1-1/c.parquet", 7, 3),
        ]
        insert_files(connection, table, [NewFile(0, path, 1, 1, {}) for path in ("live", "gone")], 1)
        history.record_revision(connection, table, 1, table.scheme)
        ids = {path: file_id for file_id, _, path in _files(connection, table)}
        relabel_files(connection, table, {ids["live"]: 1, ids["gone"]: 1})
        history.record_revision(connection, table, 2, table.scheme)
        retire_files(connection, table, [ids["gone"]])
        history.record_revision(connection, table, 3, table.scheme)
    downgrade(catalog.storage, "0022")
    with catalog.storage.write() as connection:
        retired = _reflected(connection)
        found = connection.execute(select(retired).order_by(retired.c.id)).mappings().all()
        assert connection.scalar(select(func.count()).select_from(DataFileRow.__table__)) == 1
    assert [(row["table_id"], row["table_name"], row["folder"], row["path"]) for row in found] == [
        (table.id, "demo.t", table.location, "1-1/a.parquet"),
        (table.id, "demo.t", "s3://else/where", "b.parquet"),
        (None, "", "/lake/gone/1-1", "c.parquet"),
        (table.id, "demo.t", table.location, "gone"),
    ]
    upgrade(catalog.storage)
    with catalog.storage.read() as connection:
        assert connection.scalar(select(func.count()).select_from(RevisionRow)) == 0
        assert [path for *_, path in _files(connection, table)] == ["live"]


def _reflected(connection: Any) -> Any:
    from sqlalchemy import MetaData

    tables = MetaData()
    tables.reflect(connection, only=["calve_retired_file"])
    return tables.tables["calve_retired_file"]


def _files(connection: Any, table: Table) -> list[tuple[int, int, str]]:
    row = DataFileRow
    query = select(row.id, row.partition_id, row.path).where(row.table_id == table.id)
    return [tuple(found) for found in connection.execute(query)]


@pytest.mark.smoke
def test_files_are_found_by_their_paths_and_not_among_all_of_the_table(catalog: Catalog) -> None:
    table = ranged(catalog, "demo.t")
    with catalog.storage.write() as connection:
        if catalog.storage.is_postgresql:
            # It would read a table without rows as a whole.
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        for query in (select(DataFileRow.id), delete(DataFileRow)):
            named = query.where(history.with_paths(connection, DataFileRow, table, ["a", "b"]))
            sql = named.compile(connection, compile_kwargs={"literal_binds": True, "render_postcompile": True})
            explain = "EXPLAIN" if catalog.storage.is_postgresql else "EXPLAIN QUERY PLAN"
            plan = str(connection.exec_driver_sql(f"{explain} {str(sql).replace('%', '%%')}").all())
            assert "ix_calve_data_file_path" in plan
            assert "ix_calve_data_file_table_id" not in plan
