"""Columns of type char(n) are read and compared as in Spark's own tables over the same files."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from catalog import Catalog
from catalog.errors import InvalidRowsError
from catalog.model import Column
from catalog.tables.schemes import scheme_from_properties
from spark_jobs.queries.query import query
from spark_jobs.reading.tables import read_table
from spark_jobs.sessions.session import configure
from spark_jobs.writing.scheme_loading import load_rows
from spark_jobs.writing.value_loading import append_rows
from tests.support.effort import effort

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

EXAMPLES = effort(24, 60)
ROWS = 120
IN_ONE_STATEMENT = 12

TEXTS = ("a", "a ", "ab", " a", "a b", "ab   ", "a!", "a\t", "a \t", "ab!", "b", "abcde", "é ", None)
KEYS = ("a", "ab", "a b", "a!", "b", "b ", " b", "abcd")
LITERALS = (*(text for text in TEXTS if text), "", "  ", "abcde  ", "abcdef", "abcde\tx", "abcd ", "b    ", "z")
PATTERNS = ("a%", "%b", "ab", "ab   ", "a_", "ab %", "%b %", "_____", "abcdef%", "%")


@dataclass(frozen=True)
class Pair:
    """A table of Calve's, and one of Spark's over the same files."""

    calve: str
    spark: str
    columns: tuple[str, ...]


@pytest.fixture
def session(spark: Any) -> Iterator[Any]:
    spark.sql("CREATE DATABASE IF NOT EXISTS plain")
    yield configure(spark)
    spark.sql("DROP DATABASE plain CASCADE")


def frame_of_texts(spark: Any, chosen: random.Random, keys: Iterable[str]) -> Any:
    known = [*keys]
    rows = [(n, *chosen.choices(TEXTS, k=3), chosen.choice(known)) for n in range(ROWS)]
    return spark.createDataFrame(rows, "id int, c string, v string, s string, k string").coalesce(1)


@pytest.fixture
def value_tables(catalog: Catalog, session: Any) -> Pair:
    """Tables with a partition for each key; the files have chars with all their blanks, with some, or without."""
    catalog.create_database("d")
    table = catalog.create_table(
        "d.t",
        columns=[("id", "int"), ("c", "char(5)"), ("v", "varchar(5)"), ("s", "string")],
        partition_keys=[("k", "char(4)")],
    )
    frame = frame_of_texts(session, random.Random(1), [key for key in KEYS if not key.endswith(" ")])
    frame.write.mode("append").partitionBy("k").parquet(table.location)
    catalog.repair_table("d.t")
    session.sql(
        "CREATE TABLE plain.t (id int, c char(5), v varchar(5), s string, k char(4)) USING parquet "
        f"PARTITIONED BY (k) LOCATION '{table.location}'"
    )
    session.sql("ALTER TABLE plain.t RECOVER PARTITIONS")
    return Pair("d.t", "plain.t", ("c", "v", "s", "k"))


@pytest.fixture
def scheme_tables(catalog: Catalog, session: Any) -> Pair:
    """Tables of ranges of a char."""
    scheme = scheme_from_properties(Column("k", "char(4)"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "a!, ab, b"})
    columns = [("id", "int"), ("c", "char(5)"), ("v", "varchar(5)"), ("s", "string"), ("k", "char(4)")]
    catalog.create_database("d")
    table = catalog.create_table("d.r", columns=columns, scheme=scheme)
    load_rows(session, catalog, "load", "d.r", frame_of_texts(session, random.Random(2), (*KEYS, "a\t")))
    session.sql(
        "CREATE TABLE plain.r (id int, c char(5), v varchar(5), s string, k char(4)) USING parquet "
        f"OPTIONS (recursiveFileLookup 'true', pathGlobFilter '*.parquet') LOCATION '{table.location}'"
    )
    return Pair("d.r", "plain.r", ("c", "v", "s", "k"))


@pytest.fixture
def tables(request: pytest.FixtureRequest) -> Pair:
    pair: Pair = request.getfixturevalue(request.param)
    return pair


def condition(chosen: random.Random, columns: tuple[str, ...]) -> str:
    """Return a filter that Spark and the catalog's language read alike."""
    column = chosen.choice([*columns, "c", "k"])
    one, other, third = (f"'{text}'" for text in chosen.choices(LITERALS, k=3))
    forms = [f"{column} {sign} {one}" for sign in ("=", "=", "<>", "<", "<=", ">", ">=")]
    forms += [f"{column} in ({one}, {other}, {third})", f"{column} between {one} and {other}"]
    forms += [f"{column} not in ({one}, {other})", f"{column} like '{chosen.choice(PATTERNS)}'"]
    return chosen.choice(forms)


def for_spark(where: str) -> str:
    """Return a filter of the catalog with its BETWEEN written out: Spark pads none of the literals of one."""
    found = re.fullmatch("(.) between ('.*') and ('.*')", where, re.DOTALL)
    return "{0} >= {1} and {0} <= {2}".format(*found.groups()) if found else where


def between_columns(chosen: random.Random, columns: tuple[str, ...], left: str = "", right: str = "") -> str:
    one, other = chosen.sample(columns, 2)
    return f"{left}{one} {chosen.choice(('=', '=', '<', '<=', '<=>'))} {right}{other}"


def answers(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=repr)


BOTH = pytest.mark.parametrize("tables", ["value_tables", "scheme_tables"], indirect=True)


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_statements_compare_chars_as_with_tables_of_spark(catalog: Catalog, session: Any, tables: Pair) -> None:
    chosen = random.Random(tables.calve)
    assert answers(read_table(session, tables.calve, catalog=catalog)) == answers(session.table(tables.spark))
    for _ in range(0, effort(12, EXAMPLES), IN_ONE_STATEMENT):
        filters = [condition(chosen, tables.columns) for _ in range(IN_ONE_STATEMENT)]
        filters += [between_columns(chosen, tables.columns) for _ in range(2)]
        parts = [f"SELECT {n} AS n, * FROM {{table}} WHERE {where}" for n, where in enumerate(filters)]
        joined = between_columns(chosen, tables.columns, "a.", "b.")
        parts.append(
            "SELECT 99 AS n, a.id, concat(a.c, a.k), b.c, string(count(*)), b.k "
            f"FROM {{table}} a JOIN {{table}} b ON {joined} GROUP BY a.id, a.c, a.k, b.c, b.k"
        )
        statement = " UNION ALL ".join(parts)
        answer = query(session, statement.format(table=tables.calve), catalog=catalog)
        assert answers(answer) == answers(session.sql(statement.format(table=tables.spark))), (filters, joined)


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_frames_compare_chars_as_with_tables_of_spark(catalog: Catalog, session: Any, tables: Pair) -> None:
    chosen = random.Random(tables.calve)
    ours, plain = read_table(session, tables.calve, catalog=catalog), session.table(tables.spark)
    filters = [condition(chosen, tables.columns) for _ in range(EXAMPLES // 2)]
    filters += [between_columns(chosen, tables.columns) for _ in range(EXAMPLES // 6)]
    counted = ", ".join(f"count_if({where}) AS `{n}`" for n, where in enumerate(filters))
    ours.createOrReplaceTempView("ours")
    assert (
        session.sql(f"SELECT {counted} FROM ours").collect()
        == plain.selectExpr(*(f"count_if({where}) AS `{n}`" for n, where in enumerate(filters))).collect()
    ), filters


@pytest.mark.long
@BOTH
def test_filters_of_the_catalog_compare_chars_as_spark_does(catalog: Catalog, session: Any, tables: Pair) -> None:
    chosen = random.Random(tables.calve)
    columns = tables.columns if tables.calve == "d.r" else ("k",)
    filters = [where for _ in range(EXAMPLES // 4) if (where := condition(chosen, columns))[:1] in columns]
    counts = ", ".join(f"count_if({for_spark(where)})" for where in filters)
    expected = list(session.sql(f"SELECT {counts} FROM {tables.spark}").first())
    found = [read_table(session, tables.calve, where, catalog=catalog).count() for where in filters]
    assert dict(zip(filters, found, strict=True)) == dict(zip(filters, expected, strict=True))


@pytest.mark.long
def test_partitions_are_found_by_chars_as_spark_finds_them(catalog: Catalog, session: Any, value_tables: Pair) -> None:
    chosen = random.Random(3)
    filters = [condition(chosen, ("k",)) for _ in range(EXAMPLES)]
    filters = [where for where in filters if where.startswith("k")]
    parts = [f"SELECT DISTINCT {n}, rtrim(k) FROM plain.t WHERE {for_spark(where)}" for n, where in enumerate(filters)]
    expected = {(n, key) for n, key in session.sql(" UNION ALL ".join(parts)).collect()}

    def found() -> set[tuple[int, str | None]]:
        return {(n, p.values[0]) for n, where in enumerate(filters) for p in catalog.get_partitions("d.t", where)}

    assert found() == expected
    catalog.create_partition_index("d.t", "by_k", ["k"])
    catalog.build_partition_index("d.t", "by_k")
    assert found() == expected


@pytest.mark.long
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_char_fits_a_shorter_varchar_without_its_blanks(catalog: Catalog, session: Any, value_tables: Pair) -> None:
    catalog.create_table("d.short", columns=[("id", "int"), ("v", "varchar(3)")], partition_keys=[("k", "varchar(2)")])
    session.sql("CREATE TABLE plain.short (id int, v varchar(3), k varchar(2)) USING parquet")
    session.sql(
        "INSERT INTO plain.short SELECT id, c, k FROM plain.t WHERE length(rtrim(c)) <= 3 AND length(rtrim(k)) <= 2"
    )
    every = read_table(session, "d.t", catalog=catalog).selectExpr("id", "c AS v", "k")
    append_rows(session, catalog, "fits", "d.short", every.where("length(rtrim(v)) <= 3 AND length(rtrim(k)) <= 2"))
    assert answers(read_table(session, "d.short", catalog=catalog)) == answers(session.table("plain.short"))
    with pytest.raises(InvalidRowsError, match=r"column v: 'abcde' is no varchar\(3\)"):
        append_rows(session, catalog, "too long", "d.short", every.where("k = 'ab' AND v = 'abcde'"))
