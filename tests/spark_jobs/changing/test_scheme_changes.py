"""Changes of the rows of tables with a partition scheme, against the same changes of a list and of DuckDB's table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import Catalog
from catalog.errors import CatalogError, InvalidPartitionSpecError, InvalidRowsError, PartitionNotFoundError
from catalog.statements.session import Session
from tests.spark_jobs.writing.test_scheme_tables import TYPES, quick, rows_of
from tests.support.effort import sampled
from tests.support.published import check_published, published
from tests.support.scheme_cases import COLUMN, Case, cases
from tests.support.scheme_tables import NUMBER, SchemeTable
from tests.support.scheme_values import filters, pools

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

NOW = timedelta(0)
Row = tuple[Any, ...]
Change = Callable[[list[Row]], list[Row]]
BEFORE: list[Row] = [(number, f"n{number % 3}", None if number == 9 else number) for number in range(40)]
SCHEMES = {
    "range": "'PARTITION_TYPE'='RANGE', 'RANGE_INFO'='10, 20, 30'",
    "list": "'PARTITION_TYPE'='LIST', 'LIST_INFO'='1, (2, 3, 4), 5'",
    "hash": "'PARTITION_TYPE'='HASH', 'NUM_PARTITIONS'='3'",
    "interval": "'PARTITION_TYPE'='RANGE_INTERVAL', 'RANGE_INFO'='10', 'INTERVAL'='10'",
}


def create(session: Session, kind: str) -> None:
    session.execute(
        "CREATE TABLE logs (id int, name string) PARTITIONED BY (c int) STORED BY 'carbondata' "
        f"TBLPROPERTIES ({SCHEMES[kind]})"
    )
    values = ", ".join(f"({number}, '{name}', {'NULL' if c is None else c})" for number, name, c in BEFORE)
    session.execute(f"INSERT INTO logs VALUES {values}")


def rows(session: Session) -> list[Row]:
    return [tuple(row) for row in session.execute("SELECT id, name, c FROM logs ORDER BY id, c").rows]


def assert_consistent(session: Session, catalog: Catalog, expected: list[Row]) -> None:
    """Check that all readers agree with rows, each in the file of its partition, also after vacuum."""
    for _ in range(2):
        assert rows(session) == sorted(expected, key=lambda row: (row[0], row[2] is not None, row[2]))
        check_published(catalog, "shop.logs")
        table = catalog.get_table("shop.logs")
        assert table.scheme is not None
        seen = published(catalog, "shop.logs").scan().to_arrow().to_pylist()
        assert sorted(row["id"] for row in seen) == sorted(row[0] for row in expected)
        for file in catalog.scan_files("shop.logs").files:
            found = pq.ParquetFile(Path(table.location, file.path)).read()["c"].to_pylist()
            assert {table.scheme.partition_of(value) for value in found} == {file.partition_id}
        assert catalog.vacuum("shop.logs", grace=NOW).problems == ()


def keep(condition: Callable[[Row], bool], *added: Row) -> Change:
    return lambda rows: [*filter(condition, rows), *added]


def below(limit: int) -> Callable[[Row], bool]:
    return lambda row: row[2] is not None and row[2] < limit


CHANGES: dict[str, Change] = {
    "DELETE FROM logs WHERE c < 20": keep(lambda row: not below(20)(row)),
    "DELETE FROM logs WHERE name = 'n1' AND c >= 15": keep(lambda row: row[1] != "n1" or row[2] is None or row[2] < 15),
    "DELETE FROM logs WHERE upper(logs.name) = 'N2' -- a comment": keep(lambda row: row[1] != "n2"),
    "DELETE FROM logs WHERE c IS NULL": keep(lambda row: row[2] is not None),
    "DELETE FROM logs WHERE _partition_id = 1 AND id > 3": lambda rows: rows,
    "DELETE FROM logs WHERE name = 'nobody'": keep(lambda row: True),
    "DELETE FROM logs WHERE id IN (SELECT max(id) FROM logs GROUP BY name)": keep(lambda row: row[0] < 37),
    "DELETE FROM logs": keep(lambda row: False),
    "TRUNCATE TABLE logs": keep(lambda row: False),
    "UPDATE logs SET name = concat(name, '!') WHERE id < 5 OR c = 33": lambda rows: [
        (row[0], f"{row[1]}!", row[2]) if row[0] < 5 or row[2] == 33 else row for row in rows
    ],
    "UPDATE logs SET c = c + 5, name = (SELECT max(name) FROM logs) WHERE c % 10 = 7": lambda rows: [
        (row[0], "n2", row[2] + 5) if row[2] is not None and row[2] % 10 == 7 else row for row in rows
    ],
    "UPDATE logs SET c = 1000 DIV id WHERE id > 20": lambda rows: [
        (*row[:2], 1000 // row[0]) if row[0] > 20 else row for row in rows
    ],
    "UPDATE logs SET c = NULL WHERE c IS NOT NULL": lambda rows: [(*row[:2], None) for row in rows],
}


@pytest.mark.parametrize(
    "statement",
    sampled(
        CHANGES, ["DELETE FROM logs WHERE c < 20", "UPDATE logs SET name = concat(name, '!') WHERE id < 5 OR c = 33"]
    ),
)
@pytest.mark.parametrize("kind", ["range", pytest.param("hash", marks=pytest.mark.long)])
def test_a_change_has_the_effect_of_the_same_change_of_a_list(
    session: Session, catalog: Catalog, kind: str, statement: str
) -> None:
    create(session, kind)
    scheme = catalog.get_table("shop.logs").scheme
    assert scheme is not None
    expected = CHANGES[statement](BEFORE)
    if "_partition_id" in statement:
        expected = [row for row in BEFORE if scheme.partition_of(row[2]) != 1 or row[0] <= 3]
    answer = session.execute(statement)
    if not statement.startswith("TRUNCATE"):
        assert answer.rows[0][0] == len(set(BEFORE) - set(expected))
    assert_consistent(session, catalog, expected)


@pytest.mark.long
def test_files_that_the_filter_decides_are_deleted_without_spark(session: Session, catalog: Catalog) -> None:
    create(session, "range")
    with Session(catalog, database="shop", start=lambda _: pytest.fail("Spark was started")) as without:
        answer = without.execute("DELETE FROM logs WHERE c >= 10 AND c < 30")
        assert [list(row) for row in answer.rows] == [[20, 2, 0]]
        assert str(answer.text) == "20 row(s) deleted: 0 new file(s) in place of 2"
        without.execute("TRUNCATE TABLE logs PARTITION (_partition_id = 1)")
    assert_consistent(session, catalog, [row for row in BEFORE if row[2] is None or row[2] >= 30])
    snapshot = published(catalog, "shop.logs").current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "delete"


@pytest.mark.long
def test_only_files_with_such_rows_are_rewritten(session: Session, catalog: Catalog) -> None:
    create(session, "range")
    before = {file.path for file in catalog.scan_files("shop.logs").files}
    answer = session.execute("DELETE FROM logs WHERE id = 25")
    assert [list(row) for row in answer.rows] == [[1, 1, 1]]
    after = {file.path for file in catalog.scan_files("shop.logs").files}
    assert len(before & after) == len(before) - 1
    assert_consistent(session, catalog, [row for row in BEFORE if row[0] != 25])


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "replaced"),
    [("range", lambda row: row[2] is not None and 10 <= row[2] < 20), ("hash", lambda row: True)],
)
def test_overwriting_replaces_the_partitions_of_the_rows(
    session: Session, catalog: Catalog, kind: str, replaced: Callable[[Row], bool]
) -> None:
    create(session, kind)
    session.execute("INSERT OVERWRITE logs SELECT id + 100, name, c FROM logs WHERE c = 12")
    assert_consistent(session, catalog, [*(row for row in BEFORE if not replaced(row)), (112, "n0", 12)])


@pytest.mark.long
def test_overwriting_a_range_that_comes_replaces_rows_of_the_default_partition(
    session: Session, catalog: Catalog
) -> None:
    create(session, "interval")
    session.execute("ALTER TABLE logs DROP PARTITION (4)")
    session.execute("INSERT OVERWRITE logs VALUES (100, 'new', 31), (101, 'new', 52)")
    expected = [row for row in BEFORE if row[2] is None or row[2] < 30]
    assert_consistent(session, catalog, [*expected, (100, "new", 31), (101, "new", 52)])


def test_an_update_of_the_partition_column_creates_partitions(session: Session, catalog: Catalog) -> None:
    create(session, "interval")
    session.execute("UPDATE logs SET c = 75 WHERE id = 12")
    assert_consistent(session, catalog, [(*row[:2], 75) if row[0] == 12 else row for row in BEFORE])
    assert [part.row_count for part in catalog.scheme_partitions("shop.logs")][-1] == 1


@pytest.mark.long
@pytest.mark.parametrize("kind", ["list", "hash"])
def test_small_files_become_one_for_each_partition(session: Session, catalog: Catalog, kind: str) -> None:
    create(session, kind)
    session.execute("INSERT INTO logs VALUES (100, 'late', 1), (101, 'late', 2)")
    session.execute("INSERT INTO logs VALUES (102, 'late', 1)")
    expected = [*BEFORE, (100, "late", 1), (101, "late", 2), (102, "late", 1)]
    chosen = catalog.get_table("shop.logs").scheme
    assert chosen is not None
    first = session.execute(f"ALTER TABLE logs PARTITION (_partition_id = {chosen.partition_of(1)}) COMPACT")
    assert first.rows[0][0] == 1
    session.execute("ALTER TABLE logs COMPACT")
    assert_consistent(session, catalog, expected)
    assert {part.file_count for part in catalog.scheme_partitions("shop.logs") if part.row_count} == {1}
    assert "nothing to compact" in str(session.execute("ALTER TABLE logs COMPACT").text)
    snapshot = published(catalog, "shop.logs").current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "replace"


@pytest.mark.long
@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("UPDATE logs SET c = 'abc' WHERE id = 1", InvalidRowsError, "column c: 'abc' is no int"),
        ("UPDATE logs SET nothing = 1", InvalidRowsError, r"column nothing of shop\.logs does not exist"),
        ("TRUNCATE TABLE logs PARTITION (c = 1)", InvalidPartitionSpecError, r"PARTITION \(_partition_id = 1\)"),
        ("TRUNCATE TABLE logs PARTITION (_partition_id = 9)", PartitionNotFoundError, r"shop\.logs has no partition 9"),
        ("DELETE FROM logs WHERE 1 = 1) UNION SELECT (1", CatalogError, "Syntax error at or near"),
        ("DELETE FROM logs WHERE id IN (SELECT id FROM nowhere.t)", CatalogError, "nowhere.t"),
    ],
)
def test_wrong_changes_change_nothing(
    session: Session, catalog: Catalog, statement: str, error: type[CatalogError], message: str
) -> None:
    create(session, "range")
    with pytest.raises(error, match=message):
        session.execute(statement)
    assert_consistent(session, catalog, BEFORE)


@pytest.mark.long
@quick
@given(data=st.data())
def test_random_deletions_leave_the_rows_that_duckdb_leaves(
    spark: SparkSession, catalog: Catalog, data: st.DataObject
) -> None:
    from spark_jobs.changing.row_changes import compact_scheme_partitions, delete_rows
    from spark_jobs.reading.filters import filter_sql

    case: Case = data.draw(cases(types=TYPES))
    kinds = {"a": data.draw(st.sampled_from(TYPES)), COLUMN: case.kind}
    usual = {"a": data.draw(pools(kinds["a"], 5)), COLUMN: case.pool}
    table = SchemeTable(spark, catalog, kinds, case.model)
    table.create(case.scheme)
    table.load(data.draw(rows_of(kinds, usual, is_narrow=False)))
    table.load(data.draw(rows_of(kinds, usual, is_narrow=True)))
    for where in data.draw(st.lists(filters([(name, kinds[name], usual[name]) for name in kinds]), min_size=1)):
        gone = [number for (number,) in table.judge.execute(f"SELECT {NUMBER} FROM t WHERE {where.sql}").fetchall()]
        operation = table.new_operation()
        report = catalog.committer.delete_files(operation, table.name, where.text)
        if report is None:
            scan = catalog.scan_files(table.name, where.text)
            report = delete_rows(spark, catalog, operation, table.name, filter_sql(scan.tree, scan.table))
        assert report["rows"] == len(gone), where.text
        table.rows = {number: row for number, row in table.rows.items() if number not in gone}
        table.judge.execute(f"DELETE FROM t WHERE {where.sql}")
        table.check_catalog()
        table.check_files()
    compact_scheme_partitions(spark, catalog, table.new_operation(), table.name)
    table.check()
