"""Queries have the results of the same statement over the whole tables, and read only the partitions that they need."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog import Catalog, NewPartition
from catalog.errors import ExpressionSyntaxError, UnsupportedExpressionError
from catalog.model.partition_names import partition_path
from tests.support.effort import effort, sampled
from tests.support.random_joins import JOINED

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

COUNTRIES = ("US", "DE", "O'Hara\\%", None)
TABLES = {
    "shop.orders": (
        [("id", "bigint"), ("customer", "bigint")],
        [("country", "string"), ("n", "int"), ("day", "date")],
        [(country, str(n), f"2024-01-0{n}") for country in COUNTRIES for n in (1, 2, 3)],
    ),
    "shop.customers": (
        [("id", "bigint"), ("customer", "bigint")],
        [("country", "string"), ("tier", "char(3)")],
        [(country, tier) for country in COUNTRIES for tier in ("a ", "b", None)],
    ),
    "shop.events": (
        [("id", "bigint"), ("customer", "bigint")],
        [("at", "timestamp"), ("price", "decimal(5,2)"), ("ok", "boolean"), ("x", "double")],
        [
            *((f"2024-01-0{n} 12:00:00{'.0' * (n % 2)}", f"{n}.50", "true", str(n)) for n in (1, 2, 3, 4)),
            *((f"2024-01-0{n} 12:00:00", f"-{n}.5", "FALSE", "NaN") for n in (1, 2)),
            (None, None, None, None),
        ],
    ),
    "default.days": ([("id", "bigint")], [("day", "date")], [(f"2024-01-0{n}",) for n in (1, 2, 3, 4)]),
}


@dataclass
class Shop:
    """The tables in Calve's catalog, and tables of Spark with the same names and rows."""

    spark: SparkSession
    catalog: Catalog

    def check(self, sql: str, partitions_read: Sequence[int]) -> None:
        """Check that a query has the result of plain Spark, and reads a number of partitions for each occurrence."""
        from spark_jobs.queries.query import prune_query

        answer = prune_query(self.spark, sql, catalog=self.catalog)
        assert [table.partitions_read for table in answer.tables] == list(partitions_read), (sql, answer.tables)
        self.check_rows(sql, answer.frame)

    def check_rows(self, sql: str, frame: DataFrame) -> None:
        assert counted(frame) == counted(self.spark.sql(sql)), sql


def counted(frame: DataFrame) -> Counter[str]:
    return Counter(map(repr, frame.collect()))


@pytest.fixture(scope="module")
def shop(spark: SparkSession, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    from spark_jobs.reading.tables import read_table

    folder = tmp_path_factory.mktemp("shop")
    shutil.copyfile(sqlite_template, folder / "catalog.db")
    spark.sql("CREATE DATABASE shop")
    with Catalog.open(f"sqlite:///{folder}/catalog.db", warehouse=str(folder)) as catalog:
        number = 0
        for name, (columns, keys, partitions) in TABLES.items():
            catalog.create_database(name.partition(".")[0], if_not_exists=True)
            table = catalog.create_table(name, columns=columns, partition_keys=keys)
            for values in partitions:
                path = Path(f"{table.location}/{partition_path(table.key_names, values)}")
                path.mkdir(parents=True)
                rows = pyarrow.table({"id": [number, number + 1], "customer": [number % 5, None]})
                pyarrow.parquet.write_table(rows, path / "data.parquet")
                number += 2
            catalog.add_partitions(name, [NewPartition(values, file_count=1) for values in partitions])
            read_table(spark, name, catalog=catalog).coalesce(1).write.saveAsTable(name)
        yield Shop(spark, catalog)
    spark.sql("DROP DATABASE shop CASCADE")
    spark.sql("DROP TABLE default.days")


CONDITIONS = {
    "country = 'US'": 3,
    "'US' = o.country and 2 <= n": 2,
    'country = "O\'Hara\\\\%"': 3,
    "country in ('US', 'DE') and n between 1 and 2": 4,
    "n in (1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)": 4,
    "country in ('US', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k')": 3,
    "country not in ('US', 'DE')": 3,
    "country is null": 3,
    "not (country <=> 'US')": 9,
    "country <=> 'US' or country <=> null": 6,
    "country like 'O%' or country like '%S'": 6,
    "country like '%\\\\\\\\\\\\%' and n <> 1": 2,
    "day = '2024-01-02'": 4,
    "day >= date'2024-01-01' + interval 1 day and day < timestamp'2024-01-03 00:00:00'": 4,
    "(country = 'US' and id > 1) or (n = 2 and customer is null)": 6,
    "not (country = 'US' or n = 1)": 4,
    "n > 1.5": 8,
    "n = 1 and n = 2": 0,
    "1 = 0": 0,
    # Untranslatable conditions read all partitions, except nulls, which Spark excludes.
    "upper(country) = 'US'": 9,
    "try_cast(country AS int) = 5": 9,
    "n % 2 = 1": 12,
    "n = 1 or id = 3": 12,
    "n + 0 = id": 12,
}


EVENTS = {
    "at = '2024-01-01 12:00:00'": 2,
    "at >= timestamp'2024-01-02 12:00:00' and at < date'2024-01-03'": 2,
    "at in (timestamp'2024-01-01 12:00:00', timestamp'2024-01-04 12:00:00')": 3,
    "price = 1.50BD": 1,
    "price > cast(2.5 AS decimal(5,2))": 2,
    "price < cast(-1 AS decimal(5,2)) or price = cast('4.5' AS decimal(5,2))": 3,
    "ok": 4,
    "not ok": 2,
    "ok = false or ok is null": 3,
    "x > 3": 3,
    "x = double('NaN')": 2,
    "x in (1D, 2D, 77D)": 2,
    "x <=> 2": 1,
    "hour(at) = 12": 6,
}


JOINS = {
    "SELECT * FROM shop.orders o JOIN shop.customers c ON o.country = c.country WHERE c.country = 'US'": [3, 3],
    "SELECT * FROM shop.orders o, shop.customers c WHERE o.id = c.customer AND o.n = 2 AND c.tier = 'b'": [4, 4],
    # An outer join keeps all rows of one side, regardless of ON.
    "SELECT * FROM shop.orders o LEFT JOIN shop.customers c ON o.customer = c.customer AND c.tier = 'b' AND o.n = 1": [
        12,
        4,
    ],
    "SELECT * FROM shop.orders o LEFT JOIN shop.customers c ON o.customer = c.id WHERE o.n = 1 AND c.tier IS NULL": [
        4,
        12,
    ],
    "SELECT * FROM shop.orders o LEFT JOIN shop.customers c ON o.customer = c.id WHERE c.tier = 'b'": [12, 4],
    "SELECT * FROM shop.orders o RIGHT JOIN shop.customers c ON o.id = c.id AND o.n = 1 AND c.tier = 'b'": [4, 12],
    "SELECT * FROM shop.orders o FULL JOIN shop.customers c ON o.id = c.id AND o.n = 1 AND c.tier = 'b'": [12, 12],
    "SELECT * FROM shop.orders o FULL JOIN shop.customers c ON o.id = c.id WHERE o.n = 1": [4, 12],
    "SELECT * FROM shop.orders o LEFT ANTI JOIN shop.customers c ON o.customer = c.customer AND c.tier = 'b'": [12, 4],
    "SELECT * FROM shop.orders o LEFT SEMI JOIN shop.customers c ON o.customer = c.customer AND o.n = 3": [4, 12],
    # The same table twice, pruned independently.
    "SELECT * FROM shop.orders a JOIN shop.orders b ON a.customer = b.customer WHERE a.n = 1 AND b.country = 'US'": [
        4,
        3,
    ],
    "SELECT x.id FROM shop.orders x JOIN days USING (day) WHERE day > '2024-01-02'": [4, 2],
}

SUBQUERIES = {
    "SELECT * FROM (SELECT id, country AS land, n AS country FROM shop.orders) WHERE country = 2 AND land = 'US'": [1],
    "SELECT * FROM shop.orders WHERE n = 1 AND customer IN (SELECT customer FROM shop.customers WHERE tier = 'b')": [
        4,
        4,
    ],
    "SELECT * FROM shop.orders o WHERE NOT EXISTS (SELECT 1 FROM shop.customers c WHERE c.id = o.id AND tier = 'b')": [
        12,
        4,
    ],
    "SELECT id, (SELECT max(id) FROM shop.customers WHERE country = 'DE') AS m FROM shop.orders WHERE n = 3": [3, 4],
    "SELECT * FROM shop.orders WHERE n = (SELECT min(n) FROM shop.orders WHERE country = 'US')": [12, 3],
    "SELECT * FROM (SELECT * FROM shop.orders ORDER BY id LIMIT 5) WHERE n = 2": [12],
    "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY n ORDER BY id) r FROM shop.orders) WHERE n = 2": [4],
    "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY country ORDER BY id) r FROM shop.orders) WHERE n = 2": [
        12
    ],
    "SELECT country, n, count(*) FROM shop.orders GROUP BY country, n HAVING n = 2 AND count(*) > 0": [4],
    "SELECT id FROM shop.orders WHERE n = 1 UNION ALL SELECT id FROM shop.orders WHERE country = 'US'": [4, 3],
    "SELECT id FROM shop.orders WHERE n = 1 EXCEPT SELECT id FROM shop.customers WHERE tier LIKE 'a%'": [4, 4],
    "SELECT * FROM (SELECT n, id FROM shop.orders UNION SELECT id, customer FROM shop.customers) WHERE n = 1": [4, 12],
    "SELECT * FROM shop.orders o JOIN LATERAL (SELECT * FROM shop.customers c WHERE c.id = o.customer) WHERE n = 1": [
        4,
        12,
    ],
}

NAMES = {
    # A common table expression, and an alias, with the name of a table.
    "WITH orders AS (SELECT * FROM shop.orders WHERE n = 1) SELECT * FROM orders a JOIN orders b USING (id)": [4],
    "WITH Days AS (SELECT * FROM shop.orders WHERE n = 1) SELECT * FROM days WHERE country = 'US'": [1],
    "WITH days AS (SELECT * FROM days WHERE id > 0) SELECT * FROM days WHERE day = '2024-01-03'": [1],
    "WITH x AS (SELECT * FROM shop.orders) SELECT * FROM x a JOIN x b ON a.id = b.id WHERE a.n = 1 AND b.n = 2": [8],
    "SELECT days.id FROM shop.orders AS days WHERE days.n = 1": [4],
    # Without an alias, a table is referred to by its name with or without the database.
    "SELECT shop.orders.id, orders.n FROM shop.orders WHERE shop.orders.n = 1 AND Orders.country = 'US'": [1],
    "SELECT shop.orders.* FROM shop.orders JOIN shop.customers ON orders.id = customers.id WHERE tier = 'b'": [12, 4],
    "SELECT `Orders`.`N` FROM `SHOP`.`Orders`\n  -- shop.orders in a comment\n WHERE '\n shop.orders' <> country": [9],
    "FROM days |> WHERE day = '2024-01-03' |> SELECT id": [1],
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT r.n + 1 FROM r JOIN shop.orders o ON o.n = r.n "
    "WHERE o.country = 'US' AND o.id % 2 = 0) SELECT * FROM r": [3],
    "SELECT 1": [],
}


def test_conditions_on_one_table_prune_it(shop: Shop) -> None:
    selects = [f"SELECT {n} AS number, o.* FROM shop.orders o WHERE {where}" for n, where in enumerate(CONDITIONS)]
    shop.check(" UNION ALL ".join(selects), list(CONDITIONS.values()))


@pytest.mark.long
def test_keys_of_every_type_prune(shop: Shop) -> None:
    selects = [f"SELECT {n} AS number, o.* FROM shop.events o WHERE {where}" for n, where in enumerate(EVENTS)]
    shop.check(" UNION ALL ".join(selects), list(EVENTS.values()))


def test_texts_of_timestamps_are_of_the_sessions_zone(shop: Shop) -> None:
    from spark_jobs.queries.query import prune_query

    shop.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        sql = "SELECT count(*) FROM shop.events WHERE at >= timestamp'2024-01-03 12:00:00' AND x > 1"
        answer = prune_query(shop.spark, sql, catalog=shop.catalog)
        # The instants do not determine the strings; the other keys prune.
        assert answer.tables[0].partitions_read == 5
        assert [tuple(row) for row in answer.frame.collect()] == [(4,)]
    finally:
        shop.spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize("sql", sampled(JOINS, list(JOINS)[::4]))
def test_joins_are_pruned_on_the_sides_that_may_be(shop: Shop, sql: str) -> None:
    shop.check(sql, JOINS[sql])


@pytest.mark.parametrize("sql", sampled(SUBQUERIES, list(SUBQUERIES)[::4]))
def test_subqueries_are_pruned(shop: Shop, sql: str) -> None:
    shop.check(sql, SUBQUERIES[sql])


@pytest.mark.parametrize("sql", NAMES)
def test_names_mean_what_they_mean_to_spark(shop: Shop, sql: str) -> None:
    shop.check(sql, NAMES[sql])


@pytest.mark.long
def test_blanks_at_the_end_of_a_char_do_not_count(shop: Shop) -> None:
    for literal in ("a", "a ", "a   "):
        for operator, partitions in (("=", 4), ("<>", 4), ("<", 0), (">=", 8)):
            # The optimizer pads the column, not the literal, to more than the char's length, which prevents pruning.
            count = partitions if len(literal) <= 3 else 8
            shop.check(f"SELECT * FROM shop.customers WHERE tier {operator} '{literal}'", [count])
    # The optimizer compares it with a string longer than the char, which prevents pruning.
    shop.check("SELECT * FROM shop.customers WHERE tier LIKE 'b '", [8])
    shop.check("SELECT * FROM shop.customers WHERE tier LIKE 'b  '", [4])


def test_temporary_view_comes_before_a_table(shop: Shop) -> None:
    shop.spark.sql("CREATE TEMPORARY VIEW days AS SELECT 7 AS id")
    try:
        shop.check("SELECT * FROM days", [])
        shop.check("SELECT * FROM default.days WHERE day > '2024-01-03'", [1])
    finally:
        shop.spark.catalog.dropTempView("days")


def test_sample_is_taken_of_the_whole_table(shop: Shop) -> None:
    from spark_jobs.queries.query import prune_query

    answer = prune_query(
        shop.spark,
        "SELECT orders.id FROM shop.orders TABLESAMPLE (100 PERCENT) WHERE orders.n = 1",
        catalog=shop.catalog,
    )
    assert answer.tables[0].partitions_read == 12
    assert answer.frame.count() == 8


def test_today_is_the_day_of_the_call(shop: Shop) -> None:
    from spark_jobs.queries.query import prune_query

    sql = "SELECT *, now() AS at FROM shop.orders WHERE day < current_date() - 7 AND day = current_date() - 7"
    assert prune_query(shop.spark, sql, catalog=shop.catalog).tables[0].partitions_read == 0
    sql = "SELECT *, now() AS at FROM shop.orders WHERE day < current_date() - interval 7 days AND n = 1"
    answer = prune_query(shop.spark, sql, catalog=shop.catalog)
    assert answer.tables[0].partitions_read == 4
    assert len({row.at for row in (*answer.frame.collect(), *answer.frame.collect())}) == 1


def test_answer_says_what_was_pruned_and_leaves_no_views(shop: Shop) -> None:
    from spark_jobs.queries.query import prune_query, query

    def views() -> set[str]:
        return {row.viewName for row in shop.spark.sql("SHOW VIEWS").collect()}

    before = views()
    sql = "SELECT count(*) AS c FROM shop.orders o JOIN shop.customers c ON o.id = c.id WHERE n = 1 AND tier = 'b'"
    first, second = prune_query(shop.spark, sql, catalog=shop.catalog).tables
    assert str(first) == "shop.orders: 4 partitions, 4 files"
    assert (first.where, second.where) == ("`n` = 1", "`tier` = 'b'")
    assert (second.table, second.partitions_read, second.files_read) == ("shop.customers", 4, 4)
    assert query(shop.spark, sql, catalog=shop.catalog).columns == ["c"]
    assert views() == before


def test_condition_too_long_for_the_catalog_prunes_nothing(shop: Shop) -> None:
    members = ", ".join(f"'{'x' * 300}{number}'" for number in range(300))
    shop.check(f"SELECT * FROM shop.orders WHERE n = 1 AND country IN ('US', {members})", [4])


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT * FROM shop.orders WHERE", ExpressionSyntaxError),
        ("SELECT * FROM shop.orders WHERE country = 'US", ExpressionSyntaxError),
        ("DROP TABLE shop.orders", UnsupportedExpressionError),
        ("INSERT INTO shop.orders SELECT * FROM shop.orders", UnsupportedExpressionError),
        ("CREATE TABLE x AS SELECT * FROM shop.orders", UnsupportedExpressionError),
        ("SELECT 1; SELECT 2", UnsupportedExpressionError),
        ("", UnsupportedExpressionError),
    ],
)
def test_what_is_no_select_is_refused(shop: Shop, sql: str, error: type[Exception]) -> None:
    from spark_jobs.queries.query import query

    with pytest.raises(error):
        query(shop.spark, sql, catalog=shop.catalog)


STATEMENTS = [
    " UNION ALL ".join(f"SELECT {n} AS c, o.* FROM shop.orders o WHERE {where}" for n, where in enumerate(CONDITIONS)),
    " UNION ALL ".join(f"SELECT {n} AS c, e.* FROM shop.events e WHERE {where}" for n, where in enumerate(EVENTS)),
    *JOINS,
    *SUBQUERIES,
    *NAMES,
]


@pytest.mark.long
@pytest.mark.parametrize("sql", sampled(STATEMENTS, [STATEMENTS[0], *STATEMENTS[2::9]]))
def test_unknown_release_of_spark_reads_all_partitions_with_the_same_result(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, sql: str
) -> None:
    from spark_jobs.queries import catalyst
    from spark_jobs.queries.query import prune_query

    monkeypatch.setattr(catalyst, "KNOWN_RELEASES", ("3.5", "5.0"))
    answer = prune_query(shop.spark, sql, catalog=shop.catalog)
    totals = [len(list(shop.catalog.get_partitions(table.table))) for table in answer.tables]
    assert [table.partitions_read for table in answer.tables] == totals
    shop.check_rows(sql, answer.frame)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == bool(answer.tables)
    for table in answer.tables:
        assert f"All partitions of {table.table}" in warnings[0] or f", {table.table}" in warnings[0]
        assert "Calve knows the plans of Spark 3.5, 5.0, and this is Spark 4.1." in warnings[0]


def test_spark_itself_prunes_partitions_if_its_release_is_unknown(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_jobs.queries import catalyst
    from spark_jobs.queries.query import query

    monkeypatch.setattr(catalyst, "KNOWN_RELEASES", ())
    frame = query(shop.spark, "SELECT id FROM shop.orders WHERE n = 1", catalog=shop.catalog)
    assert len(frame.inputFiles()) == 12
    scans = frame._jdf.queryExecution().executedPlan().toString()
    assert re.search(r"PartitionFilters: \[isnotnull\(n#\d+\), \(n#\d+ = 1\)\]", scans)


def test_missing_class_of_spark_reads_all_partitions(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from spark_jobs.queries import catalyst
    from spark_jobs.queries.query import prune_query
    from spark_jobs.sessions.java_classes import java_class

    def moved(context: SparkContext, name: str) -> Any:
        return java_class(context, name.replace("spark.sql", "spark.moved"))

    monkeypatch.setattr(catalyst, "java_class", moved)
    sql = "SELECT id, n, day < current_date() FROM shop.orders WHERE n = 1"
    answer = prune_query(shop.spark, sql, catalog=shop.catalog)
    assert answer.tables[0].partitions_read == 12
    shop.check_rows(sql, answer.frame)
    assert "All partitions of shop.orders are read" in caplog.text
    assert "'JavaPackage' object is not callable" in caplog.text


@pytest.mark.long
def test_session_of_spark_connect_has_the_same_results(shop: Shop, tmp_path: Path) -> None:
    # In a process of its own, because PySpark has either classic sessions or those of Spark Connect.
    statements = [
        "SELECT o.id, tier, '{x}' AS braces FROM shop.orders o JOIN shop.customers USING (country) WHERE o.n = 2",
        "SELECT shop.events.*, current_date() > at AS is_past FROM shop.events WHERE x > 1",
    ]
    (tmp_path / "statements.json").write_text(json.dumps(statements))
    url = shop.catalog.storage.url.render_as_string(hide_password=False)
    command = [sys.executable, "-c", OVER_SPARK_CONNECT, url, str(tmp_path / "statements.json")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": ":".join(sys.path)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = [Counter(rows) for rows in json.loads(done.stdout.splitlines()[-1])]
    assert answers == [counted(shop.spark.sql(sql)) for sql in statements]
    assert done.stderr.count("this is a session of Spark Connect") == len(statements)


OVER_SPARK_CONNECT = """
import json, logging, sys
from pathlib import Path
from pyspark.sql import SparkSession
from catalog import Catalog
from catalog.errors import RefusedStatementError
from spark_jobs.queries.query import prune_query, query

logging.basicConfig(level=logging.WARNING)
spark = SparkSession.builder.remote("local[1]").getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "UTC")
url, path = sys.argv[1:]
with Catalog.open(url) as catalog:
    answers = [query(spark, sql, catalog=catalog).collect() for sql in json.loads(Path(path).read_text())]
    try:
        prune_query(spark, "SELECT 1", catalog=catalog, untrusted="SELECT 1")
    except RefusedStatementError as error:
        assert "cannot be checked" in str(error)
    else:
        raise AssertionError("an unchecked statement ran")
spark.stop()
print()
print(json.dumps([[repr(row) for row in rows] for rows in answers]))
"""


def test_braces_in_a_statement_are_text(shop: Shop) -> None:
    shop.check("SELECT '{o}' AS `{0}`, '}{{' AS b, id /* { */ FROM shop.orders o WHERE n = 1 AND country <> '}'", [3])
    shop.check("SELECT '{x}' AS b", [])


@pytest.mark.long
@settings(max_examples=effort(1, 3), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(joins=st.lists(JOINED, min_size=5, max_size=5, unique=True))
def test_any_join_under_any_conditions_answers_as_the_whole_tables_do(shop: Shop, joins: list[str]) -> None:
    from spark_jobs.queries.query import query

    columns = "count(*), sum(l.id), sum(r.id), sum(l.id * r.id), count(l.id), count(r.id)"
    # One statement for several joins, because each statement takes time.
    sql = " UNION ALL ".join(f"SELECT {n} AS number, {columns} {join}" for n, join in enumerate(joins))
    shop.check_rows(sql, query(shop.spark, sql, catalog=shop.catalog))
