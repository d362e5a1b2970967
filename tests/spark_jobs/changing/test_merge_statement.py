"""MERGE into tables with a scheme and with partition keys, against DuckDB's MERGE on the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import Catalog
from catalog.errors import AmbiguousMergeError, CatalogError, InvalidRowsError
from catalog.statements.session import Session
from tests.spark_jobs.writing.test_scheme_tables import quick
from tests.support.effort import sampled
from tests.support.published import check_published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

NOW = timedelta(0)
Row = tuple[Any, ...]
COLUMNS = "id int, name string, c int"
KINDS = {
    "range": "PARTITIONED BY (c int) STORED BY 'carbondata' "
    "TBLPROPERTIES ('PARTITION_TYPE'='RANGE_INTERVAL', 'RANGE_INFO'='3', 'INTERVAL'='3')",
    "hash": "PARTITIONED BY (c int) STORED BY 'carbondata' "
    "TBLPROPERTIES ('PARTITION_TYPE'='HASH', 'NUM_PARTITIONS'='2')",
    "hive": "PARTITIONED BY (c int)",
    "iceberg": "PARTITIONED BY (c int) STORED AS ICEBERG",
}
TARGET: list[Row] = [(1, "a", 1), (2, "b", 1), (3, "c", 4), (4, None, 5), (5, "e", 9)]
SOURCE: list[Row] = [(2, "B", 1), (3, "gone", 4), (4, "D", 8), (7, "new", 2), (8, "skip", 2), (9, None, 20)]


@pytest.fixture
def session(spark: SparkSession, catalog: Catalog) -> Iterator[Session]:
    from spark_jobs.sessions.session import configure
    from spark_jobs.statement_engine import SparkEngine

    catalog.create_database("shop", if_not_exists=True)
    with Session(catalog, database="shop", start=lambda opened: SparkEngine(opened, configure(spark))) as opened:
        yield opened


def values(rows: Sequence[Row]) -> str:
    def text(value: Any) -> str:
        return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)

    return ", ".join(f"({', '.join(map(text, row))})" for row in rows)


def create(session: Session, kind: str, rows: Sequence[Row] = TARGET) -> None:
    session.execute("DROP TABLE IF EXISTS t PURGE")
    session.execute(f"CREATE TABLE t (id int, name string) {KINDS[kind]}")
    if rows:
        session.execute(f"INSERT INTO t VALUES {values(rows)}")


def source(rows: Sequence[Row] = SOURCE) -> str:
    return f"(SELECT * FROM (VALUES {values(rows)}) AS v (id, name, c))"


def rows_of(session: Session) -> list[Row]:
    return [tuple(row) for row in session.execute("SELECT id, name, c FROM t ORDER BY id, c, name").rows]


def by_duckdb(merge: str, target: Sequence[Row] = TARGET) -> list[Row]:
    with duckdb.connect() as judge:
        judge.execute(f"CREATE TABLE t ({COLUMNS.replace('string', 'text')})")
        if target:
            judge.execute(f"INSERT INTO t VALUES {values(target)}")
        judge.execute(merge)
        return judge.execute("SELECT * FROM t ORDER BY id NULLS FIRST, c NULLS FIRST, name NULLS FIRST").fetchall()


MERGE = """MERGE INTO t USING {} AS s ON t.id = s.id
WHEN MATCHED AND s.name = 'gone' THEN DELETE
WHEN MATCHED THEN UPDATE SET name = concat(s.name, CASE WHEN t.name IS NULL THEN '?' ELSE '!' END), c = s.c
WHEN NOT MATCHED AND s.name = 'skip' THEN INSERT (id, c) VALUES (s.id + 100, s.c)
WHEN NOT MATCHED THEN INSERT (c, name, id) VALUES (s.c, s.name, s.id)
WHEN NOT MATCHED BY SOURCE AND t.c > 5 THEN DELETE
WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = 'alone'"""


@pytest.mark.parametrize("kind", sampled(KINDS, ["range", "hive"]))
def test_a_merge_makes_of_the_rows_what_duckdb_makes_of_them(session: Session, catalog: Catalog, kind: str) -> None:
    create(session, kind)
    answer = session.execute(MERGE.format(source()))
    expected = by_duckdb(MERGE.format(source()))
    assert rows_of(session) == expected
    if kind in ("range", "hash"):
        assert [list(row) for row in answer.rows] == [[3, 3, 2]]
        check_published(catalog, "shop.t")
    assert catalog.vacuum("shop.t", grace=NOW).problems == ()
    assert rows_of(session) == expected


@pytest.mark.long
def test_a_merge_of_a_table_with_stars_writes_only_the_files_with_such_rows(session: Session, catalog: Catalog) -> None:
    create(session, "range")
    create_source = "CREATE TABLE s (id int, c int, name string, more int) PARTITIONED BY (day date)"
    session.execute(create_source)
    session.execute("INSERT INTO s VALUES (3, 4, 'C', 0, '2026-01-01'), (6, 4, 'F', 0, '2026-01-02')")
    before = {file.path for file in catalog.scan_files("shop.t").files}
    session.execute("CREATE VIEW v AS SELECT * FROM s WHERE id < 6 OR name = 'F'")
    session.execute(
        "MERGE INTO shop.t USING v ON t.id = v.id -- a comment\n"
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    after = {file.path for file in catalog.scan_files("shop.t").files}
    assert len(before & after) == len(before) - 1
    assert rows_of(session) == sorted([*TARGET[:2], (3, "C", 4), *TARGET[3:], (6, "F", 4)])


@pytest.mark.long
def test_a_merge_into_an_empty_table_inserts(session: Session) -> None:
    create(session, "hive", [])
    session.execute(
        f"MERGE INTO t USING {source()} s ON t.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (id, name, s.c)"
    )
    assert rows_of(session) == sorted(SOURCE)


@pytest.mark.long
def test_a_merge_reads_only_files_that_may_have_such_rows(
    session: Session, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(session, "range")
    read: list[str | None] = []
    scan_files = catalog.scan_files

    def scan(table: str, expression: str | None = None, **rest: Any) -> Any:
        read.append(expression)
        return scan_files(table, expression, **rest)

    monkeypatch.setattr(catalog, "scan_files", scan)
    merge = f"MERGE INTO t USING {source(SOURCE[:2])} AS s ON s.c = t.c AND t.id = s.id WHEN MATCHED THEN DELETE"
    session.execute(merge)
    assert read[0] == "`c` >= 1 and `c` <= 4"
    assert rows_of(session) == by_duckdb(merge)


@pytest.mark.parametrize("kind", ["hash", "hive"])
def test_a_row_that_two_rows_match_is_named(session: Session, kind: str) -> None:
    create(session, kind)
    merge = f"MERGE INTO t USING {source([(3, 'x', 1), (3, 'y', 1)])} s ON t.id = s.id WHEN MATCHED THEN DELETE"
    with pytest.raises(AmbiguousMergeError, match=r"2 rows of the source match the row \{3, c, 4\} of table shop\.t"):
        session.execute(merge)
    assert rows_of(session) == TARGET


WRONG = [
    ("WHEN MATCHED THEN UPDATE SET c = s.name", InvalidRowsError, r"column c: '\w+' is no int"),
    ("WHEN MATCHED THEN UPDATE SET d = 1", InvalidRowsError, r"column d of shop\.t does not exist"),
    ("WHEN NOT MATCHED THEN INSERT VALUES (1)", InvalidRowsError, "INSERT has 1 values for the 3 columns"),
    ("WHEN MATCHED AND java_method('a', 'b') = 1 THEN DELETE", CatalogError, "the function java_method"),
    ("WHEN MATCHED AND rand() < 0.5 THEN DELETE", CatalogError, "the function rand differs from run to run"),
    ("WHEN MATCHED AND s.nothing = 1 THEN DELETE", CatalogError, "nothing"),
    ("WHEN MATCHED AND true) UNION SELECT (1 THEN DELETE", CatalogError, "MERGE has no THEN"),
]


@pytest.mark.long
def test_wrong_merges_change_nothing(session: Session) -> None:
    create(session, "range")
    for clause, error, message in WRONG:
        with pytest.raises(error, match=message):
            session.execute(f"MERGE INTO t USING {source()} AS s ON t.id = s.id {clause}")
    assert rows_of(session) == TARGET


CLAUSES = {
    "MATCHED": ["DELETE", "UPDATE SET name = s.name", "UPDATE SET c = s.c + 1, name = 'x'"],
    "NOT MATCHED": ["INSERT (id, name, c) VALUES (s.id, s.name, s.c)", "INSERT (id) VALUES (s.id)"],
    "NOT MATCHED BY SOURCE": ["DELETE", "UPDATE SET c = NULL"],
}


@st.composite
def merges(draw: st.DrawFn) -> tuple[list[Row], str]:
    """Rows of a target, and a MERGE into it."""
    row = st.tuples(st.integers(0, 6), st.sampled_from(["a", "b", None]), st.integers(0, 9) | st.none())
    target = draw(st.lists(row, max_size=8))
    rows = draw(st.lists(row, min_size=1, max_size=6, unique_by=lambda own: own[0]))
    clauses = []
    for case, actions in CLAUSES.items():
        tested = "t.c" if case == "NOT MATCHED BY SOURCE" else "s.c"
        count = draw(st.integers(0, 2))
        for number in range(count):
            last = [""] if number == count - 1 else []
            condition = draw(st.sampled_from([*last, f" AND {tested} > 4", f" AND {tested} IS NULL"]))
            clauses.append(f"WHEN {case}{condition} THEN {draw(st.sampled_from(actions))}")
    clauses = clauses or ["WHEN MATCHED THEN DELETE"]
    on = draw(
        st.sampled_from(
            ["t.id = s.id", "s.id = t.id AND t.c = s.c", "t.id = s.id AND t.c < 7", "s.id = t.id AND t.name = s.name"]
        )
    )
    return target, f"MERGE INTO t USING {source(rows)} AS s ON {on} {' '.join(clauses)}"


@pytest.mark.long
@quick
@given(merge=merges(), kind=st.sampled_from(["range", "hash", "hive"]))
def test_random_merges_do_what_duckdb_does(session: Session, merge: tuple[list[Row], str], kind: str) -> None:
    target, text = merge
    create(session, kind, target)
    session.execute(text)
    assert rows_of(session) == by_duckdb(text, target), text
