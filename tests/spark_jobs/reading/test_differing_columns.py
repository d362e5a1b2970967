"""Files of one source with other columns than the table, or than each other: null where they lack one, never mixed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.errors import SourceFileError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True),
]

TABLE = "shop.orders"
JSON = {"source_format": "json", "source_options": {}}


def deliver(source: Path, **texts: str) -> Path:
    source.mkdir(exist_ok=True)
    for name, text in texts.items():
        (source / f"{name}.csv").write_text(text, encoding="utf-8")
    return source


def rows_of(spark: SparkSession, catalog: Catalog) -> list[dict[str, Any]]:
    from spark_jobs.reading.tables import read_table

    rows = read_table(spark, TABLE, catalog=catalog).collect()
    return sorted((row.asDict() for row in rows), key=lambda row: row["id"])


@pytest.fixture
def loader(make_loader: Callable[..., Any]) -> Any:
    return make_loader(keys={"day": "int"})


@pytest.fixture
def table(catalog: Catalog) -> None:
    """A table with the columns id, amount and note."""
    catalog.create_database("shop")
    columns = [("id", "int"), ("amount", "double"), ("note", "string")]
    catalog.create_table(TABLE, columns=columns, partition_keys=[("day", "int")])


@pytest.mark.long
@pytest.mark.usefixtures("table")
def test_columns_go_by_their_names_in_each_file(
    loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    source = deliver(
        tmp_path / "raw",
        a="id,day,amount,note\n1,1,1.5,x\n",
        b="AMOUNT,note,ID,day\n2.5,y,2,1\n",
        c="day,id\n2,3\n",
        d="",
        e='id,day,note\n4,2,"with, comma"\n',
    )
    with gzip.open(source / "f.csv.gz", "wt") as text:
        text.write("note,day,id\nz,3,5\n")
    operation = loader.new_operation()
    assert loader.validate(operation, source)["missing_columns"] == ["amount", "note"]
    loader.register(operation, loader.write(operation)["staging"])
    assert rows_of(spark, catalog) == [
        {"id": 1, "amount": 1.5, "note": "x", "day": 1},
        {"id": 2, "amount": 2.5, "note": "y", "day": 1},
        {"id": 3, "amount": None, "note": None, "day": 2},
        {"id": 4, "amount": None, "note": "with, comma", "day": 2},
        {"id": 5, "amount": None, "note": "z", "day": 3},
    ]


@pytest.mark.long
@pytest.mark.parametrize("source_format", ["json", "parquet", "orc"])
@pytest.mark.usefixtures("table")
def test_a_column_that_all_files_lack_is_null(
    loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path, source_format: str
) -> None:
    frame = spark.createDataFrame([(1, 1), (2, 2)], "id int, day int")
    frame.write.format(source_format).save(str(tmp_path / "raw"))
    loader.load(tmp_path / "raw", source_format=source_format, source_options={})
    assert [(row["id"], row["amount"], row["note"]) for row in rows_of(spark, catalog)] == [
        (1, None, None),
        (2, None, None),
    ]


@pytest.mark.long
def test_a_first_load_takes_the_columns_of_all_files(
    loader: Any, spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    source = deliver(
        tmp_path / "raw",
        a="id,day,amount,mixed\n1,1,1,1\n",
        b="id,day,mixed,amount\n2,1,x,2.5\n",
        c="id,day,big\n3,1,3000000000\n",
        d="day,id,big\n1,4,4\n",
    )
    loader.load(source)
    types = {column.name: column.type for column in catalog.get_table(TABLE).columns}
    assert types == {"id": "bigint", "amount": "double", "mixed": "string", "big": "bigint"}
    assert [tuple(row[name] for name in types) for row in rows_of(spark, catalog)] == [
        (1, 1.0, "1", None),
        (2, 2.5, "x", None),
        (3, None, None, 3_000_000_000),
        (4, None, None, 4),
    ]


REFUSED: dict[str, tuple[str, str]] = {
    "an unknown column": (
        "id,day,amuont\n2,2,1\n",
        r"b\.csv does not have the columns .*: missing amount, note, unknown amuont",
    ),
    "an additional column": (
        "id,day,amount,note,more\n2,2,1,x,y\n",
        r"b\.csv does not have the columns of shop\.orders: unknown more\. Correct the file",
    ),
    "no key": ("id,amount\n2,1\n", r"b\.csv has no column day, which the table is partitioned by"),
    "no required column": (
        "day,amount\n2,1\n",
        r"b\.csv has no column id, which `required` of the table's entry names",
    ),
    "a bad value": ("day,id\n2,2\n2,many\n", r"b\.csv, line 3: .*many"),
    "a line that is too long": ("day,id\n2,2\n2,3,4\n", r"b\.csv, line 3: 2,3,4"),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.usefixtures("table")
def test_the_file_is_named_that_has(loader: Any, catalog: Catalog, tmp_path: Path, what: str) -> None:
    text, words = REFUSED[what]
    source = deliver(tmp_path / "raw", a="id,day,amount\n1,1,1.5\n", b=text)
    with pytest.raises(SourceFileError, match=words):
        loader.load(source, required=["id"])
    assert list(catalog.get_partitions(TABLE)) == []


@pytest.mark.usefixtures("table")
def test_a_json_file_without_a_required_column_is_refused(loader: Any, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"id": 1, "day": 1}))
    with pytest.raises(SourceFileError, match="has no column total, which `required`"):
        loader.load(tmp_path / "a.json", required=["total"], **JSON)
