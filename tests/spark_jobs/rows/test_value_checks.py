"""All ways of writing rows refuse a value that is invalid for its column, and load nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from catalog import Catalog
from catalog.errors import CatalogError, InvalidRowsError, SourceFileError
from catalog.model import Column
from catalog.schemes.model import Scheme
from catalog.statements.session import Session
from catalog.tables.schemes import scheme_from_properties
from tests.support.effort import sampled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark_jobs.conftest import Loader

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

FITS = [
    ("int", "2147483647L"),
    ("int", "'12'"),
    ("int", "3.0D"),
    ("int", "null"),
    ("bigint", "5"),
    ("tinyint", "-128"),
    ("decimal(5,2)", "1.10"),
    ("decimal(5,2)", "0.1D"),
    ("decimal(5,2)", "'123.450'"),
    ("decimal(38,0)", "repeat('9', 38)"),
    ("float", "0.1D"),
    ("float", "double('Infinity')"),
    ("float", "double('NaN')"),
    ("double", "'Infinity'"),
    ("date", "'2024-02-29'"),
    ("date", "timestamp '2024-02-29 00:00:00'"),
    ("timestamp", "date '2024-02-29'"),
    ("timestamp", "'2024-02-29 10:30:00.123456000'"),
    ("boolean", "'true'"),
    ("boolean", "1"),
    ("string", "1.50"),
    ("varchar(3)", "'abc'"),
    ("varchar(3)", "123"),
    ("varchar(3)", "'ab  '"),
    ("char(3)", "'ab      '"),
    ("array<int>", "array(1L, null)"),
    ("array<varchar(3)>", "array('abc')"),
    ("map<string,int>", "map('a', 1L)"),
    ("struct<a:int,b:varchar(2)>", "named_struct('a', 1L, 'b', 'xy')"),
    ("binary", "'abc'"),
]
DOES_NOT_FIT = [
    ("int", "5000000000"),
    ("int", "'abc'"),
    ("int", "''"),
    ("int", "'1.5'"),
    ("int", "1.5D"),
    ("int", "1.5"),
    ("int", "double('NaN')"),
    ("tinyint", "128"),
    ("decimal(5,2)", "1.239"),
    ("decimal(5,2)", "1.239D"),
    ("decimal(5,2)", "'1.239'"),
    ("decimal(5,2)", "'12.39e-1'"),
    ("decimal(5,2)", "1000"),
    ("decimal(38,0)", "'1.5'"),
    ("float", "1e40D"),
    ("float", "'1e40'"),
    ("double", "'1e400'"),
    ("date", "'2024-02-30'"),
    ("date", "'2024-02-29 10:30:00'"),
    ("date", "timestamp '2024-02-29 10:30:00'"),
    ("timestamp", "'2024-02-29 10:30:00.1234567'"),
    ("boolean", "'perhaps'"),
    ("boolean", "5"),
    ("varchar(3)", "'toolong'"),
    ("varchar(3)", "'ab c'"),
    ("varchar(3)", "1234"),
    ("char(3)", "'abcd'"),
    ("array<int>", "array(1L, 5000000000)"),
    ("array<int>", "array('1', 'abc')"),
    ("array<varchar(3)>", "array('abc', 'toolong')"),
    ("map<string,int>", "map('a', 5000000000)"),
    ("map<varchar(2),int>", "map('abc', 1)"),
    ("struct<a:int,b:varchar(2)>", "named_struct('a', 1L, 'b', 'xyz')"),
    ("array<struct<a:int>>", "array(named_struct('a', 5000000000))"),
]


@pytest.mark.parametrize("is_ansi", ["true", "false"])
def test_the_rule_for_each_pair_of_types(spark: SparkSession, is_ansi: str) -> None:
    from pyspark.sql import functions as f

    from spark_jobs.rows.value_checks import checked_column

    cases = [*FITS, *DOES_NOT_FIT]
    frame = spark.range(1).selectExpr(*[f"{value} AS c{number}" for number, (_, value) in enumerate(cases)])
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", is_ansi)
    try:
        problems, values = [], []
        for number, (type_text, _) in enumerate(cases):
            given = frame.schema[number].dataType
            checked = checked_column(Column(f"c{number}", type_text), f.col(f"c{number}"), given)
            problems.append((f.lit(None) if checked.problem is None else checked.problem).alias(f"p{number}"))
            values.append(checked.value.alias(f"v{number}"))
        row = frame.select(*problems, *values).first()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert row is not None
    verdicts = {case: row[f"p{number}"] is None for number, case in enumerate(cases)}
    assert verdicts == {**dict.fromkeys(FITS, True), **dict.fromkeys(DOES_NOT_FIT, False)}
    too_long, padded = cases.index(("varchar(3)", "'toolong'")), cases.index(("char(3)", "'ab      '"))
    surplus = cases.index(("varchar(3)", "'ab  '"))
    assert row[f"p{too_long}"] == f"column c{too_long}: 'toolong' is no varchar(3)"
    assert row[f"v{padded}"] == "ab"
    assert row[f"v{surplus}"] == "ab "


COLUMNS = [("id", "int"), ("price", "decimal(5,2)"), ("code", "varchar(3)")]
BAD_ROWS = {
    "id": "(5000000000, '1.5', 'abc')",
    "price": "(1, '1.239', 'abc')",
    "code": "(1, '1.5', 'toolong')",
}


def scheme(kind: str) -> Scheme | None:
    properties = {
        "HASH": {"PARTITION_TYPE": "HASH", "NUM_PARTITIONS": "3"},
        "RANGE_INTERVAL": {"PARTITION_TYPE": "RANGE_INTERVAL", "RANGE_INFO": "10", "INTERVAL": "10"},
    }
    return scheme_from_properties(Column("id", "int"), properties[kind]) if kind in properties else None


def create(catalog: Catalog, kind: str) -> None:
    catalog.create_database("shop", if_not_exists=True)
    keys = [("country", "string"), ("day", "int")] if kind == "VALUE" else []
    catalog.create_table("shop.orders", columns=COLUMNS, partition_keys=keys, scheme=scheme(kind))


@pytest.mark.long
@pytest.mark.parametrize(
    ("column", "kind"),
    sampled(
        product(BAD_ROWS, ["HASH", "RANGE_INTERVAL", "VALUE"]),
        [("id", "HASH"), ("price", "RANGE_INTERVAL"), ("code", "VALUE")],
    ),
)
def test_rows_that_do_not_fit_are_refused(spark: SparkSession, catalog: Catalog, kind: str, column: str) -> None:
    from spark_jobs.writing.scheme_loading import load_rows
    from spark_jobs.writing.value_loading import append_rows

    create(catalog, kind)
    keys = ", 'US' AS country, '7' AS day" if kind == "VALUE" else ""
    good = "(2, '2.5', 'ok'), (3, '3.5', 'ok')"
    frame = spark.sql(f"SELECT col1 AS id, col2 AS price, col3 AS code{keys} FROM VALUES {good}, {BAD_ROWS[column]}")
    write: Callable[..., Any] = append_rows if kind == "VALUE" else load_rows
    with pytest.raises(InvalidRowsError, match=rf"1 row\(s\).*column {column}: '.*' is no .*; nothing was added"):
        write(spark, catalog, "1", "shop.orders", frame)
    if kind == "VALUE":
        assert not list(catalog.get_partitions("shop.orders"))
    else:
        assert not catalog.scan_files("shop.orders").files
    report = write(spark, catalog, "2", "shop.orders", frame.where("code = 'ok'"))
    assert report.get("rows", report.get("rows_loaded")) == 2


def test_rows_need_the_partition_column_and_no_other_names(spark: SparkSession, catalog: Catalog) -> None:
    from spark_jobs.writing.scheme_loading import load_rows

    create(catalog, "HASH")
    with pytest.raises(InvalidRowsError, match="id, which place the rows"):
        load_rows(spark, catalog, "1", "shop.orders", spark.sql("SELECT 'a' AS code"))
    with pytest.raises(InvalidRowsError, match="extra, which the table does not have"):
        load_rows(spark, catalog, "2", "shop.orders", spark.sql("SELECT 1 AS id, 'a' AS extra"))
    assert load_rows(spark, catalog, "3", "shop.orders", spark.sql("SELECT 1 AS ID"))["rows_loaded"] == 1


def write_source(path: Path, source_format: str, column: str) -> Path:
    """Write a source of two rows, the second of which has an invalid value in one column."""
    good = {"id": 1, "price": "1.5", "code": "abc", "country": "US", "day": 7}
    bad = {**good, **{"id": {"id": 5_000_000_000}, "price": {"price": "1.239"}, "code": {"code": "toolong"}}[column]}
    path.mkdir()
    file = path / f"rows.{source_format}"
    if source_format == "csv":
        file.write_text("\n".join([",".join(good), *[",".join(map(str, row.values())) for row in (good, bad)]]))
    elif source_format == "json":
        lines = [
            f'{{"id": {row["id"]}, "price": {row["price"]}, "code": "{row["code"]}", "country": "US", "day": 7}}'
            for row in (good, bad)
        ]
        file.write_text("\n".join(lines))
    else:
        table = pa.Table.from_pylist([good, bad])
        (pyarrow.parquet if source_format == "parquet" else pyarrow.orc).write_table(table, file)
    return path


@pytest.mark.long
@pytest.mark.parametrize(
    ("column", "source_format"),
    sampled(
        product(BAD_ROWS, ["csv", "json", "parquet", "orc"]),
        [("id", "csv"), ("price", "json"), ("code", "parquet"), ("id", "orc")],
    ),
)
def test_files_that_do_not_fit_are_refused_by_file_and_line(
    make_loader: Callable[..., Loader], catalog: Catalog, tmp_path: Path, source_format: str, column: str
) -> None:
    create(catalog, "VALUE")
    source = write_source(tmp_path / "source", source_format, column)
    options = {"header": "true"} if source_format == "csv" else {}
    line = {"csv": ", line 3", "json": ", line 2"}.get(source_format, "")
    loader = make_loader()
    with pytest.raises(SourceFileError, match=rf"rows\.{source_format}{line}: .*Nothing was loaded"):
        loader.load(source, source_format=source_format, source_options=options)
    assert not list(catalog.get_partitions("shop.orders"))


@pytest.mark.parametrize(
    ("source_format", "kind"),
    sampled(product(["csv", "json", "parquet"], ["HASH", "VALUE"]), [("csv", "VALUE"), ("parquet", "HASH")]),
)
def test_statements_refuse_what_does_not_fit(
    spark: SparkSession, catalog: Catalog, tmp_path: Path, kind: str, source_format: str
) -> None:
    create(catalog, kind)
    # The partition column of a scheme is the last one.
    values = "1, 1.5, 'toolong', 'US', 7" if kind == "VALUE" else "1.5, 'toolong', 1"
    with pytest.raises(InvalidRowsError, match="column code: 'toolong' is no varchar"):
        run(spark, catalog, f"INSERT INTO shop.orders SELECT {values}")
    source = write_source(tmp_path / "source", source_format, "code")
    if kind == "VALUE":
        with pytest.raises(CatalogError, match=rf"rows\.{source_format}.*column code: 'toolong' is no varchar"):
            run(spark, catalog, f"LOAD DATA INPATH '{source}' INTO TABLE shop.orders")
        assert not list(catalog.get_partitions("shop.orders"))


def run(spark: SparkSession, catalog: Catalog, text: str) -> None:
    from spark_jobs.sessions.session import configure
    from spark_jobs.statement_engine import SparkEngine

    with Session(catalog, database="shop", start=lambda opened: SparkEngine(opened, configure(spark))) as session:
        session.execute(text)
