"""Joins of tables with a partition scheme have the results of DuckDB over the same files, and read what they need."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow
import pyarrow.parquet
import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog import Catalog
from catalog.datafiles.files import NewFile
from catalog.model import Column
from catalog.schemes.model import Scheme
from catalog.tables.schemes import scheme_from_properties
from tests.support.effort import effort
from tests.support.published import add_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.queries.query import PrunedQuery

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

COUNT = 400


def numbers(factor: int, *, among: int) -> list[int | None]:
    """Values of a partition column: below all bounds, above all bounds, duplicate values, and nulls."""
    return [None if n % 23 == 0 else n * factor % among - 20 for n in range(COUNT)]


def words(factor: int) -> list[str | None]:
    return [None if n is None else f"w{n}" for n in numbers(factor, among=90)]


def ranges(*bounds: int, name: str = "k") -> Scheme:
    properties = {"PARTITION_TYPE": "RANGE", "RANGE_INFO": ", ".join(map(str, bounds))}
    return scheme_from_properties(Column(name, "int"), properties)


def hashed(count: int, column_type: str = "string") -> Scheme:
    properties = {"PARTITION_TYPE": "HASH", "PARTITION_NUM": str(count)}
    return scheme_from_properties(Column("k", column_type), properties)


def listed(*groups: Sequence[str]) -> Scheme:
    texts = ", ".join(f"({', '.join(group)})" for group in groups)
    return scheme_from_properties(Column("k", "string"), {"PARTITION_TYPE": "LIST", "LIST_INFO": texts})


BOUNDS = range(0, 200, 20)
TABLES: dict[str, tuple[Scheme, Sequence[Any]]] = {
    # The second has other ids, and some empty ranges.
    "a": (ranges(*BOUNDS), numbers(7, among=230)),
    "b": (ranges(0, *BOUNDS[2:]).split(2, ["20", "40"]).scheme, numbers(11, among=170)),
    "other_name": (ranges(*BOUNDS, name="j"), numbers(13, among=230)),
    "other_bounds": (ranges(*range(20, 200, 40), 333), numbers(17, among=230)),
    "one": (ranges(1000), [n for n in numbers(3, among=230) if n is not None]),
    "hash_8": (hashed(8), words(7)),
    "hash_12": (hashed(12), words(11)),
    "hash_int": (hashed(8, "int"), numbers(7, among=230)),
    "list": (listed(*([f"w{n}", f"w{n + 1}"] for n in range(0, 60, 2))), words(13)),
    "list_too": (listed(*([f"w{n}", f"w{n + 1}"] for n in range(11, 70, 2))), words(17)),
}


@dataclass
class Lake:
    """The tables in Calve's catalog, and the same files as DuckDB's views."""

    spark: SparkSession
    catalog: Catalog
    duck: duckdb.DuckDBPyConnection

    def add(self, name: str, scheme: Scheme, values: Sequence[Any]) -> None:
        columns = [("id", "bigint"), ("x", "int"), (scheme.column, scheme.column_type)]
        table = self.catalog.create_table(f"lake.{name}", columns=columns, scheme=scheme)
        rows: dict[tuple[int, int], list[tuple[int, int, Any]]] = {}
        for number, value in enumerate(values):
            # Several files in a partition.
            rows.setdefault((scheme.partition_of(value), number % 2), []).append((number, number % 10, value))
        files = []
        kind = pyarrow.string() if scheme.column_type == "string" else pyarrow.int32()
        types = pyarrow.schema([("id", pyarrow.int64()), ("x", pyarrow.int32()), (scheme.column, kind)])
        for (partition_id, part), some in sorted(rows.items()):
            path = f"1-1/calve_partition_id={partition_id}/part-{part}.parquet"
            file = Path(table.location) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            pyarrow.parquet.write_table(pyarrow.table(list(zip(*some, strict=True)), schema=types), file)
            files.append(NewFile(partition_id, path, len(some), file.stat().st_size, {}))
        add_files(self.catalog, table.full_name, files)
        self.duck.execute(
            f"CREATE VIEW {name} AS SELECT id, x, {scheme.column} "
            f"FROM read_parquet('{table.location}/*/*/*.parquet', hive_partitioning=false)"
        )

    def check(self, sql: str) -> PrunedQuery:
        """Check the result of a statement."""
        from spark_jobs.queries.query import prune_query

        answer = prune_query(self.spark, sql, catalog=self.catalog)
        expected = self.duck.execute(for_duckdb(sql)).fetchall()
        assert counted(answer.frame.collect()) == counted(expected), sql
        return answer


def for_duckdb(sql: str) -> str:
    return sqlglot.transpile(sql.replace("lake.", ""), read="spark", write="duckdb")[0]


def counted(rows: Sequence[Any]) -> Counter[str]:
    return Counter(repr(tuple(row)) for row in rows)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("lake")
    shutil.copyfile(sqlite_template, folder / "catalog.db")
    with (
        Catalog.open(f"sqlite:///{folder}/catalog.db", warehouse=str(folder)) as catalog,
        duckdb.connect() as duck,
    ):
        catalog.create_database("lake")
        lake = Lake(spark, catalog, duck)
        for name, (scheme, values) in TABLES.items():
            lake.add(name, scheme, values)
        yield lake


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
def test_joins_have_all_rows(lake: Lake, join: str) -> None:
    lake.check(f"SELECT a.*, b.* FROM lake.a {join} lake.b ON a.k = b.k AND (a.x < b.x OR a.id % 3 = 0) AND b.k <> 50")


@pytest.mark.long
def test_semi_and_anti_joins_have_all_rows(lake: Lake) -> None:
    lake.check("SELECT * FROM lake.a WHERE k IN (SELECT k FROM lake.b WHERE x > 4) AND id > 9")
    lake.check("SELECT a.k + 1 AS more, id FROM lake.a LEFT ANTI JOIN lake.b ON b.k = a.k AND a.x < b.x")
    lake.check(
        "SELECT * FROM lake.a WHERE x = 3 OR EXISTS (SELECT 1 FROM lake.b WHERE b.k = a.k AND a.id % 10 < x AND x > 2)"
    )


def test_nulls_that_are_to_be_equal_are(lake: Lake) -> None:
    lake.check("SELECT a.id, b.id FROM lake.a FULL JOIN lake.b ON a.k <=> b.k")


def test_conditions_on_the_partition_column_prune_both_sides(lake: Lake) -> None:
    sql = "SELECT a.id, b.id FROM lake.a {} lake.b ON a.k = b.k {}"
    answer = lake.check(sql.format("JOIN", "WHERE a.k BETWEEN 5 AND 90"))
    assert [table.partitions_read for table in answer.tables] == [5, 5]
    # Only one side is pruned.
    answer = lake.check(sql.format("LEFT JOIN", "AND b.k >= 90"))
    assert [table.partitions_read for table in answer.tables] == [11, 6]


@pytest.mark.parametrize(
    ("left", "right", "condition"),
    [
        ("a", "other_name", "l.k = r.j"),
        ("a", "other_bounds", "l.k = r.k"),
        ("hash_8", "hash_12", "l.k = r.k"),
        ("hash_12", "hash_12", "l.k = r.k"),
        ("hash_int", "a", "l.k = r.k"),
        ("list", "list_too", "l.k = r.k"),
        ("list", "list", "l.k = r.k"),
        ("a", "a", "l.k = r.k"),
    ],
)
def test_tables_of_any_schemes_can_be_joined(lake: Lake, left: str, right: str, condition: str) -> None:
    lake.check(f"SELECT l.id, r.id, l.k FROM lake.{left} l FULL JOIN lake.{right} r ON {condition} AND l.x <= r.x")


@pytest.mark.long
def test_joins_of_joins_and_groups_have_all_rows(lake: Lake) -> None:
    for sql in (
        "SELECT a.id, b.id, o.id, j FROM lake.a LEFT JOIN lake.b ON a.k = b.k AND b.x > 3 "
        "FULL JOIN lake.other_name o ON o.j = b.k AND o.x < a.x",
        "WITH c AS (SELECT k AS c, x FROM lake.a WHERE id > 7) SELECT l.x, r.x FROM c l JOIN c r ON l.c = r.c",
        "SELECT 1, a.id, b.id FROM lake.a JOIN lake.b USING (k) WHERE a.x = 1 UNION ALL "
        "SELECT 2, l.id, r.id FROM lake.hash_8 l LEFT JOIN lake.hash_8 r ON l.k = r.k WHERE r.x = 2",
        "SELECT a.k, count(DISTINCT b.x) AS c, sum(a.x) FROM lake.a LEFT JOIN lake.b ON a.k = b.k GROUP BY a.k",
        "SELECT * FROM (SELECT a.k, a.id, row_number() OVER (PARTITION BY b.k ORDER BY a.id, b.id) AS r "
        "FROM lake.a JOIN lake.b ON a.k = b.k) WHERE r < 3",
        "SELECT a.id, c FROM lake.a JOIN (SELECT k, count(*) AS c FROM lake.b GROUP BY k) g ON a.k = g.k",
        "SELECT b.k, count(*) FROM lake.a FULL JOIN lake.b ON a.k = b.k GROUP BY b.k",
    ):
        lake.check(sql)


@pytest.mark.long
def test_columns_keep_their_names(lake: Lake) -> None:
    answer = lake.check(
        "SELECT Sum(j.total) AS Total, J.X, max((SELECT max(id) FROM lake.one)) AS m, count(*) AS m FROM "
        "(SELECT l.X, l.id + r.id AS total FROM lake.a AS l, lake.b AS r WHERE L.K = r.K) J "
        "WHERE X + total IN (SELECT id FROM lake.one) AND X > 1 GROUP BY x HAVING count(*) > 0 ORDER BY x LIMIT 5"
    )
    assert answer.frame.columns == ["Total", "X", "m", "m"]


CONDITIONS = st.lists(
    st.sampled_from(
        ["l.x < r.x", "l.k > 30", "r.k BETWEEN 10 AND 100", "r.k IS NULL", "l.x = 4", "l.id + r.id > 300", "r.x <> 3"]
    ),
    max_size=2,
    unique=True,
).map(lambda conditions: " AND ".join(["true", *conditions]))

JOINED = st.builds(
    "FROM lake.{} l {} JOIN lake.{} r ON l.k = r.k AND {} WHERE {}".format,
    st.sampled_from(["a", "b", "other_bounds"]),
    st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL"]),
    st.sampled_from(["a", "b", "other_bounds"]),
    CONDITIONS,
    CONDITIONS.map(lambda text: f"({text}) OR l.id = 7"),
)


@settings(max_examples=effort(1, 2), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(joins=st.lists(JOINED, min_size=4, max_size=4, unique=True))
def test_any_join_under_any_conditions_answers_as_duckdb_does(lake: Lake, joins: list[str]) -> None:
    columns = "count(*), sum(l.id), sum(r.id), sum(l.id * r.id), count(l.id), count(r.k)"
    lake.check(" UNION ALL ".join(f"SELECT {n}, {columns} {join}" for n, join in enumerate(joins)))
