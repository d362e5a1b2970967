"""Joins on partition columns are partition-wise where that is faster, and have the results of Spark's joins."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from catalog.errors import VerificationFailedError
from catalog.model import Column
from catalog.schemes.model import Scheme
from catalog.tables.schemes import scheme_from_properties
from tests.support.effort import effort
from tests.support.published import add_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.queries.query import PrunedQuery

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
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
    "uneven": (ranges(500, 600, 700), [*numbers(3, among=230)] * 10),
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

    def pruned(self, sql: str, **options: bool) -> PrunedQuery:
        from spark_jobs.queries.query import prune_query

        return prune_query(self.spark, sql, catalog=self.catalog, **options)

    def check(self, sql: str, joins: int = 1) -> PrunedQuery:
        """Check the number of partition-wise joins, that they need no exchange, and the result."""
        answer = self.pruned(sql)
        assert len(answer.joins) == joins, (sql, answer.joins)
        below = below_the_unions(answer)
        assert "Coalesce" in below
        assert "Exchange" not in below, (sql, below)
        assert counted(answer.frame.collect()) == counted(self.duck.execute(for_duckdb(sql)).fetchall()), sql
        return answer


def plan_of(answer: PrunedQuery) -> str:
    return str(answer.frame._jdf.queryExecution().executedPlan())


def below_the_unions(answer: PrunedQuery) -> str:
    found, depth = [], 10_000
    for line in plan_of(answer).splitlines():
        indent = len(line) - len(line.lstrip(" :+-"))
        if line[indent:].startswith("Union"):
            depth = min(depth, indent)
        elif indent > depth:
            found.append(line)
        else:
            depth = 10_000
    return "\n".join(found)


def for_duckdb(sql: str) -> str:
    return sqlglot.transpile(sql.replace("lake.", ""), read="spark", write="duckdb")[0]


def counted(rows: Sequence[Any]) -> Counter[str]:
    return Counter(repr(tuple(row)) for row in rows)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = str(spark.conf.get(name))
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    from spark_jobs.queries import joining

    folder = tmp_path_factory.mktemp("lake")
    shutil.copyfile(sqlite_template, folder / "catalog.db")
    with (
        Catalog.open(f"sqlite:///{folder}/catalog.db", warehouse=str(folder)) as catalog,
        duckdb.connect() as duck,
        # These tables are so small that Spark would broadcast them.
        setting(spark, BROADCAST, "-1"),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(joining, "LEAST_BYTES", 1)
        # Each task adds planning time.
        patch.setattr(joining, "LEAST_TASKS", 4)
        patch.setattr(joining, "TASKS_A_CORE", 2)
        catalog.create_database("lake")
        lake = Lake(spark, catalog, duck)
        for name, (scheme, values) in TABLES.items():
            lake.add(name, scheme, values)
        yield lake


@pytest.mark.first_case
@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
def test_joins_answer_as_spark_does(lake: Lake, join: str) -> None:
    sql = f"SELECT a.*, b.* FROM lake.a {join} lake.b ON a.k = b.k AND (a.x < b.x OR a.id % 3 = 0) AND b.k <> 50"
    answer = lake.check(sql)
    assert answer.joins == ("lake.a and lake.b are joined partition by partition on k, 11 partitions in 4 tasks",)
    assert answer.frame.rdd.getNumPartitions() == 4
    assert "Exchange" not in plan_of(answer)
    without = lake.pruned(sql, partition_wise=False)
    assert without.joins == ()
    assert counted(without.frame.collect()) == counted(lake.duck.execute(for_duckdb(sql)).fetchall())


def test_semi_and_anti_joins_answer_as_spark_does(lake: Lake) -> None:
    lake.check("SELECT * FROM lake.a WHERE k IN (SELECT k FROM lake.b WHERE x > 4) AND id > 9")
    lake.check("SELECT a.k + 1 AS more, id FROM lake.a LEFT ANTI JOIN lake.b ON b.k = a.k AND a.x < b.x")
    lake.check(
        "SELECT * FROM lake.a WHERE x = 3 OR EXISTS (SELECT 1 FROM lake.b WHERE b.k = a.k AND a.id % 10 < x AND x > 2)"
    )


def test_nulls_that_are_to_be_equal_are(lake: Lake) -> None:
    lake.check("SELECT a.id, b.id FROM lake.a FULL JOIN lake.b ON a.k <=> b.k")
    # The first join adds nulls that come from any place.
    answer = lake.pruned(
        "SELECT * FROM lake.a FULL JOIN lake.b ON a.k = b.k JOIN lake.other_name o ON b.k <=> o.j", partition_wise=True
    )
    assert [line.split(" are ")[0] for line in answer.joins] == ["lake.a and lake.b"]


def test_conditions_on_the_partition_column_prune_too(lake: Lake) -> None:
    sql = "SELECT a.id, b.id FROM lake.a {} lake.b ON a.k = b.k {}"
    answer = lake.check(sql.format("JOIN", "WHERE a.k BETWEEN 5 AND 90"))
    assert answer.joins[0].endswith("on k, 5 partitions in 4 tasks")
    assert [table.partitions_read for table in answer.tables] == [5, 5]
    # Only one side is pruned.
    answer = lake.check(sql.format("LEFT JOIN", "AND b.k >= 90"))
    assert [table.partitions_read for table in answer.tables] == [11, 6]


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("left", "right", "condition", "partitions"),
    [
        ("a", "other_name", "l.k = r.j", "on k = j, 11 partitions"),
        ("a", "other_bounds", "l.k = r.k", "on k, 6 partitions"),
        ("hash_8", "hash_12", "l.k = r.k", "on k, 4 partitions"),
        ("hash_12", "hash_12", "l.k = r.k", "on k, 12 partitions"),
        ("list", "list_too", "l.k = r.k", "on k, 2 partitions"),
        ("list", "list", "l.k = r.k", "on k, 31 partitions"),
        ("a", "a", "l.k = r.k", "on k, 11 partitions"),
    ],
)
def test_tables_need_only_places_in_common(lake: Lake, left: str, right: str, condition: str, partitions: str) -> None:
    sql = f"SELECT l.id, r.id, l.k FROM lake.{left} l FULL JOIN lake.{right} r ON {condition} AND l.x <= r.x"
    if partitions == "on k, 2 partitions":
        # One partition has nearly all rows.
        assert lake.pruned(sql).joins == ()
    else:
        assert f"{partitions} in " in lake.check(sql).joins[0]


@pytest.mark.long
def test_joins_of_joins_go_together(lake: Lake) -> None:
    [words_] = lake.check(
        "SELECT a.id, b.id, o.id, j FROM lake.a LEFT JOIN lake.b ON a.k = b.k AND b.x > 3 "
        "FULL JOIN lake.other_name o ON o.j = b.k AND o.x < a.x"
    ).joins
    assert words_.startswith("lake.a, lake.b and lake.other_name are joined partition by partition on k = j, 11 ")
    lake.check("WITH c AS (SELECT k AS c, x FROM lake.a WHERE id > 7) SELECT l.x, r.x FROM c l JOIN c r ON l.c = r.c")
    lake.check(
        "SELECT 1, a.id, b.id FROM lake.a JOIN lake.b USING (k) WHERE a.x = 1 UNION ALL "
        "SELECT 2, l.id, r.id FROM lake.hash_8 l LEFT JOIN lake.hash_8 r ON l.k = r.k WHERE r.x = 2",
        joins=2,
    )


@pytest.mark.long
def test_rows_are_grouped_partition_by_partition_too(lake: Lake) -> None:
    for sql in (
        "SELECT a.k, count(DISTINCT b.x) AS c, sum(a.x) FROM lake.a LEFT JOIN lake.b ON a.k = b.k GROUP BY a.k",
        "SELECT * FROM (SELECT a.k, a.id, row_number() OVER (PARTITION BY b.k ORDER BY a.id, b.id) AS r "
        "FROM lake.a JOIN lake.b ON a.k = b.k) WHERE r < 3",
        "SELECT a.id, c FROM lake.a JOIN (SELECT k, count(*) AS c FROM lake.b GROUP BY k) g ON a.k = g.k",
    ):
        assert "Exchange" not in plan_of(lake.check(sql)), sql
    # A null that an outer join added may come from any place.
    answer = lake.check("SELECT b.k, count(*) FROM lake.a FULL JOIN lake.b ON a.k = b.k GROUP BY b.k")
    assert "Exchange" in plan_of(answer)


def test_what_stands_around_a_join_stays(lake: Lake) -> None:
    answer = lake.check(
        "SELECT Sum(j.total) AS Total, J.X, max((SELECT max(id) FROM lake.one)) AS m, count(*) AS m FROM "
        "(SELECT l.X, l.id + r.id AS total FROM lake.a AS l, lake.b AS r WHERE L.K = r.K) J "
        "WHERE X + total IN (SELECT id FROM lake.one) AND X > 1 GROUP BY x HAVING count(*) > 0 ORDER BY x LIMIT 5"
    )
    assert answer.frame.columns == ["Total", "X", "m", "m"]
    assert answer.frame.rdd.getNumPartitions() == 1


def test_small_tables_in_between_are_sent_to_all_tasks(lake: Lake) -> None:
    sql = (
        "SELECT l.id, s.y, r.id FROM lake.a l JOIN (VALUES (1, 7), (1, 8), (3, 9), (7, NULL)) AS s(x, y) ON l.x = s.x "
        "LEFT JOIN (SELECT * FROM lake.b WHERE x IN (SELECT * FROM VALUES (3), (4), (8) AS t(x))) r ON r.k = l.k"
    )
    with setting(lake.spark, BROADCAST, "200"):
        answer = lake.pruned(sql)
    assert len(answer.joins) == 1
    assert "Exchange hash" not in plan_of(answer)
    assert counted(answer.frame.collect()) == counted(lake.duck.execute(for_duckdb(sql)).fetchall())


NOT_JOINED_SO = [
    "lake.a l JOIN lake.b r ON l.x = r.x",
    "lake.a l JOIN lake.b r ON l.k < r.k AND l.id = r.id",
    "lake.a l JOIN lake.b r ON l.k = r.k OR l.id = r.id",
    "lake.a l JOIN lake.b r ON l.k * 2 = r.k * 2",
    "lake.a l JOIN lake.b r ON cast(l.k AS bigint) = cast(r.k AS bigint)",
    "lake.a l JOIN lake.hash_int r ON l.k = r.k",
    "lake.a l JOIN lake.hash_8 r ON l.k = r.k",
    "lake.uneven l JOIN lake.uneven r ON l.k = r.k",
    "lake.one l JOIN lake.one r ON l.k = r.k",
    "lake.a l JOIN (SELECT * FROM lake.b LIMIT 100) r ON l.k = r.k",
    "lake.a l JOIN (SELECT *, rand() AS n FROM lake.b) r ON l.k = r.k AND n < 2",
    "lake.a l JOIN (SELECT *, monotonically_increasing_id() AS n FROM lake.b) r ON l.k = r.k AND n >= 0",
    "lake.a TABLESAMPLE (50 PERCENT) l JOIN lake.b r ON l.k = r.k",
    "lake.a l LEFT ANTI JOIN lake.b r ON l.k = r.k OR r.k IS NULL",
    "lake.a l JOIN lake.b r ON l.k = r.k WHERE false",
]


def test_other_joins_are_sparks(lake: Lake) -> None:
    assert lake.pruned(" UNION ALL ".join(f"SELECT l.x FROM {join}" for join in NOT_JOINED_SO)).joins == ()
    for hint in ("BROADCAST(r)", "SHUFFLE_HASH(l)"):
        sql = f"SELECT /*+ {hint} */ l.x FROM lake.a l JOIN lake.b r ON l.k = r.k"
        assert lake.pruned(sql).joins == (), hint
    # Nulls on both sides may match.
    assert lake.pruned("SELECT * FROM lake.a WHERE k NOT IN (SELECT k FROM lake.b)").joins == ()


def test_small_tables_are_sent_to_all_tasks(lake: Lake) -> None:
    # Spark estimates the left side, with one column of three, at half the size of its files.
    sql = "SELECT * FROM (SELECT k FROM lake.a) l {} lake.b r ON l.k = r.k"
    size = min(sum(file.size_bytes for file in lake.catalog.scan_files(f"lake.{name}").files) for name in "ab")
    with setting(lake.spark, BROADCAST, str(size * 3 // 4)):
        assert [len(lake.pruned(sql.format(f"{kind} JOIN")).joins) for kind in ("", "RIGHT", "LEFT", "FULL")] == [
            0,
            0,
            1,
            1,
        ]
    with setting(lake.spark, BROADCAST, "1MB"):
        assert lake.pruned(sql.format("FULL JOIN")).joins == ()


def test_joins_of_less_than_the_limit_are_planned_by_spark(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_jobs.queries import joining

    sizes = [sum(file.size_bytes for file in lake.catalog.scan_files(f"lake.{name}").files) for name in "ab"]
    sql = "SELECT a.id, b.id FROM lake.a JOIN lake.b ON a.k = b.k"
    monkeypatch.setattr(joining, "LEAST_BYTES", sum(sizes))
    assert len(lake.pruned(sql).joins) == 1
    monkeypatch.setattr(joining, "LEAST_BYTES", sum(sizes) + 1)
    ours, sparks = lake.pruned(sql), lake.pruned(sql, partition_wise=False)
    assert ours.joins == ()
    assert without_ids(plan_of(ours)) == without_ids(plan_of(sparks))
    # Other tables of the statement do not count, nor do the partitions that it does not read.
    assert lake.pruned(f"{sql} CROSS JOIN (SELECT max(id) FROM lake.uneven)").joins == ()
    monkeypatch.setattr(joining, "LEAST_BYTES", sum(sizes))
    assert lake.pruned(f"{sql} WHERE a.k > 90").joins == ()


def without_ids(plan: str) -> str:
    return re.sub(r"#\d+L?|plan_id=\d+", "", plan)


def test_settings_of_the_session_stay_as_they_are(lake: Lake) -> None:
    from spark_jobs.queries.joining import _ADDED_LAST

    before = [lake.spark.conf.get(name) for name in _ADDED_LAST]
    lake.pruned("SELECT * FROM lake.a JOIN lake.b USING (k)")
    assert [lake.spark.conf.get(name) for name in _ADDED_LAST] == before


def test_file_that_is_gone_is_an_error(lake: Lake) -> None:
    lake.add("gone", *TABLES["a"])
    from spark_jobs.queries.join_regions import Source
    from spark_jobs.queries.joining import join_partition_wise
    from spark_jobs.reading.tables import read_scan

    scan = lake.catalog.scan_files("lake.gone")
    frame = read_scan(lake.spark, scan)
    joined = frame.alias("l").join(frame.alias("r"), on="k")
    (Path(scan.table.location) / scan.files[3].path).unlink()
    with pytest.raises(VerificationFailedError, match=r"lake\.gone: 1 of \d+ data files no longer exist"):
        join_partition_wise(joined, [Source(frame, scan)])


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
    sql = " UNION ALL ".join(f"SELECT {n}, {columns} {join}" for n, join in enumerate(joins))
    rows = lake.pruned(sql).frame.collect()
    expected = lake.duck.execute(for_duckdb(sql)).fetchall()
    assert sorted(map(tuple, rows)) == sorted(expected), sql


SIZES = st.dictionaries(st.integers(0, 200), st.integers(1, 1000), max_size=80)


@settings(deadline=None)
@given(sizes=SIZES, cores=st.integers(1, 40))
def test_each_place_is_in_one_group_and_no_core_has_much_more(sizes: dict[int, int], cores: int) -> None:
    from spark_jobs.queries.joining import packed

    groups = packed(sizes, cores)
    if groups is None:
        return
    assert sorted(place for group in groups for place in group) == sorted(sizes)
    assert cores <= len(groups) <= 64
    assert all(groups)
    largest = max(sum(sizes[place] for place in group) for group in groups)
    assert largest * cores <= 1.5 * sum(sizes.values())


def test_places_are_packed_when_they_keep_all_cores_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_jobs.queries import joining

    monkeypatch.setattr(joining, "LEAST_TASKS", 8)
    monkeypatch.setattr(joining, "TASKS_A_CORE", 4)
    packed = joining.packed
    groups = packed(dict.fromkeys(range(24), 100), 2)
    assert groups is not None
    assert [len(group) for group in groups] == [3] * 8
    assert packed({0: 300, 1: 200, 2: 100}, 2) == [[0], [1], [2]]
    assert packed(dict.fromkeys(range(7), 100), 8) is None
    assert packed({0: 300, 1: 10, 2: 10}, 2) is None
    assert packed({}, 2) is None
