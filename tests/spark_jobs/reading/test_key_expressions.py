"""Partition keys that a load computes by expressions over the columns of its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.errors import InvalidPartitionError, RefusedStatementError, SourceFileError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True),
]

TABLE = "shop.orders"
EXPRESSIONS = {"day": "to_date(ordered_at)", "country": "upper(left(shop, 2))"}
ROWS = [(1, "2024-05-01 23:59:00", "de-1"), (2, "2024-05-02 00:00:00", "de-2"), (3, "2024-05-01 08:00:00", "fr-1")]
CSV = "id,ordered_at,shop\n" + "".join(f"{','.join(map(str, row))}\n" for row in ROWS)
EXPECTED = [
    ("country=DE/day=2024-05-01", 1),
    ("country=DE/day=2024-05-02", 1),
    ("country=FR/day=2024-05-01", 1),
]


@pytest.fixture
def loader(make_loader: Callable[..., Any]) -> Any:
    loader = make_loader(keys={"country": "string", "day": "date"})
    loader.request["key_expressions"] = EXPRESSIONS
    return loader


def deliver(spark: SparkSession, folder: Path, source_format: str) -> Path:
    folder.mkdir()
    if source_format == "csv":
        (folder / "a.csv").write_text(CSV)
    elif source_format == "json":
        lines = (json.dumps(dict(zip(("id", "ordered_at", "shop"), row, strict=True))) for row in ROWS)
        (folder / "a.json").write_text("\n".join(lines))
    else:
        frame = spark.createDataFrame(ROWS, "id int, ordered_at string, shop string").coalesce(1)
        frame.selectExpr("id", "timestamp(ordered_at) AS ordered_at", "shop").write.format(source_format).save(
            str(folder / "a")
        )
    return folder


def partitions(catalog: Catalog) -> list[tuple[str, int | None]]:
    table = catalog.get_table(TABLE)
    return sorted((partition.name(table), partition.row_count) for partition in catalog.get_partitions(TABLE))


@pytest.mark.long
@pytest.mark.parametrize(
    ("source_format", "table_format"),
    [("csv", "parquet"), ("json", "orc"), ("parquet", "iceberg"), ("orc", "csv")],
)
def test_keys_are_computed_from_columns_of_every_format(
    loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path, source_format: str, table_format: str
) -> None:
    source = deliver(spark, tmp_path / "raw", source_format)
    options = {"header": "true"} if source_format == "csv" else {}
    settings = {"source_format": source_format, "source_options": options, "format": table_format}
    loader.load(source, **settings)
    assert partitions(catalog) == EXPECTED
    names = [column.name for column in catalog.get_table(TABLE).columns]
    assert sorted(names) == ["id", "ordered_at", "shop"]


@pytest.mark.long
@pytest.mark.parametrize("mode", ["append", "replace", "merge"])
def test_keys_are_computed_in_each_mode(
    loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path, mode: str
) -> None:
    from spark_jobs.reading.tables import read_table

    loader.load(deliver(spark, tmp_path / "raw", "csv"))
    (tmp_path / "b.csv").write_text("id,ordered_at,shop\n1,2024-05-01 10:00:00,de-9\n")
    merge = {"merge": {"keys": ["id"]}} if mode == "merge" else {}
    loader.load(tmp_path / "b.csv", mode=mode, **merge)
    shops = sorted(row["shop"] for row in read_table(spark, TABLE, catalog=catalog).collect())
    assert shops == sorted(["de-2", "de-9", "fr-1", *(["de-1"] if mode == "append" else [])])


@pytest.mark.long
@pytest.mark.parametrize("bad_files", ["fail", "skip"])
def test_a_value_that_gives_no_key_is_named_with_its_line(
    loader: Any, catalog: Catalog, tmp_path: Path, bad_files: str
) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "b.csv").write_text("id,ordered_at,shop\n4,2024-05-03 00:00:00,de-1\n5,2024-02-31,de-2\n")
    columns = [["id", "int"], ["ordered_at", "string"], ["shop", "string"]]
    place = r"b\.csv, line 3: partition key day = to_date\(ordered_at\) is null, which `null_keys` refuses"
    if bad_files == "fail":
        with pytest.raises(SourceFileError, match=place):
            loader.load(tmp_path / "*.csv", columns=columns)
        loader.load(tmp_path / "*.csv", columns=columns, null_keys="allow")
        assert ("country=DE/day=__HIVE_DEFAULT_PARTITION__", 1) in partitions(catalog)
    else:
        report = loader.validate("dry", tmp_path / "*.csv", columns=columns, bad_files="skip", dry_run=True)
        [problem] = report["set_aside"]["problems"]
        assert (problem["line"], problem["column"]) == (3, "day")
        assert (report["files"], report["rows"]) == (1, 3)


@pytest.mark.long
def test_a_value_of_another_type_than_the_key_is_refused(make_loader: Callable[..., Any], tmp_path: Path) -> None:
    loader = make_loader(keys={"number": "int"})
    (tmp_path / "a.csv").write_text("id,code\n1,x-1\n2,x-many\n")
    with pytest.raises(SourceFileError, match=r"a\.csv, line 3: column number: 'many' is no int"):
        loader.load(tmp_path / "a.csv", key_expressions={"number": "substr(code, 3)"})


def test_a_computed_key_that_an_index_refuses_is_found_in_its_file(
    make_loader: Callable[..., Any], tmp_path: Path
) -> None:
    loader = make_loader(keys={"code": "string"})
    (tmp_path / "a.csv").write_text("id,text\n1,a\n2,b\n")
    settings = {"key_expressions": {"code": "if(text = 'b', chr(1), text)"}, "indexes": {"by_code": ["code"]}}
    with pytest.raises(InvalidPartitionError, match=r"a\.csv, line 3"):
        loader.load(tmp_path / "a.csv", **settings)


@pytest.mark.long
def test_a_key_may_be_computed_from_the_column_of_its_name(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    loader = make_loader(keys={"day": "date"})
    (tmp_path / "day=x").mkdir()
    (tmp_path / "day=x" / "a.csv").write_text("id,day\n1,01.05.2024\n")
    loader.load(tmp_path / "day=x" / "a.csv", key_expressions={"day": "to_date(day, 'dd.MM.yyyy')"})
    assert partitions(catalog) == [("day=2024-05-01", 1)]
    assert [column.name for column in catalog.get_table(TABLE).columns] == ["id"]


@pytest.mark.parametrize(
    ("expression", "error", "words"),
    [
        ("to_date(ordred_at)", SourceFileError, r"a\.csv gives no partition key day, because Spark cannot evaluate"),
        ("max(ordered_at)", SourceFileError, "gives no partition key day"),
        ("java_method('java.lang.System', 'exit', 1)", RefusedStatementError, "the function java_method"),
        ("date_add(ordered_at, int(`rand`() * 9))", RefusedStatementError, "the function rand differs from run to run"),
        ("if(session_user = 'root', to_date(ordered_at), null)", RefusedStatementError, "the function current_user"),
        ("id", SourceFileError, "gives bigint for the partition key day, which cannot become date"),
    ],
)
def test_an_expression_is_refused(
    loader: Any, tmp_path: Path, expression: str, error: type[Exception], words: str
) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    with pytest.raises(error, match=words):
        loader.load(tmp_path / "a.csv", key_expressions={**EXPRESSIONS, "day": expression})


@pytest.mark.long
def test_a_column_may_have_the_name_of_a_function(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    loader = make_loader(keys={"owner": "string"})
    (tmp_path / "a.csv").write_text("id,user\n1,Ada\n")
    loader.load(tmp_path / "a.csv", key_expressions={"owner": "lower(user)"})
    assert partitions(catalog) == [("owner=ada", 1)]
