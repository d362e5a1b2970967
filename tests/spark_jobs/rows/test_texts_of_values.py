"""A string is the same value in a load as in an INSERT, or neither accepts it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

from catalog import Catalog
from catalog.errors import SourceFileError
from catalog.model import Column
from catalog.statements.cells import CellError, cell_text
from catalog.statements.terms import Literal, LiteralKind
from catalog.types.column_types import parse_column_type
from catalog.types.key_types import KeyValue, KeyValueError, parse_key_type
from spark_jobs.rows.key_spellings import canonical_key
from spark_jobs.rows.value_checks import checked_column
from tests.support.effort import effort
from tests.support.random_texts import random_texts

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

TYPES = (
    "tinyint",
    "int",
    "bigint",
    "float",
    "double",
    "decimal(9,2)",
    "decimal(38,10)",
    "boolean",
    "date",
    "timestamp",
)
SIZED = ("char(3)", "varchar(3)")


def inserted(type_name: str, text: str) -> KeyValue | None:
    """Return the value that an INSERT of a string stores; None if it refuses the string."""
    column_type = parse_column_type(type_name)
    assert column_type is not None
    try:
        cell = cell_text(type_name, Literal(LiteralKind.TEXT, text))
    except CellError:
        return None
    assert cell is not None
    return column_type.parse(cell)


def test_a_string_is_one_value_in_loads_and_inserts(spark: SparkSession) -> None:
    texts = random_texts(effort(200, 10_000), seed=43)
    frame = spark.createDataFrame([(text,) for text in texts], "given string")
    given = f.col("given")
    columns, keys = [], []
    for number, name in enumerate((*TYPES, *SIZED)):
        checked = checked_column(Column("c", name), given, StringType())
        assert checked.problem is not None
        columns.append(f.when(checked.problem.isNull(), checked.value.cast("string")).alias(f"v{number}"))
        keys.append(canonical_key(given, parse_key_type(name)).alias(f"k{number}"))
    rows = frame.select("given", *columns, *keys).collect()
    wrong = []
    for row in rows:
        for number, name in enumerate((*TYPES, *SIZED)):
            column_type, stored = parse_column_type(name), row[f"v{number}"]
            assert column_type is not None
            expected = inserted(name, row["given"])
            if (None if stored is None else column_type.comparable(stored)) != expected:
                wrong.append((name, row["given"], stored, expected))
            try:
                key = parse_key_type(name).parse(row[f"k{number}"])
            except KeyValueError:
                continue
            if name not in SIZED and key != expected:
                wrong.append((name, row["given"], row[f"k{number}"], expected))
    assert not wrong, wrong[:20]


REFUSED = {
    "day": ("date", ["202401", "19723", "2024-05-02 10:00:00"]),
    "at": ("timestamp", ["12:30", "2024", "2024-05-02 10:30:00 Europe/Berlin"]),
    "paid": ("boolean", ["y", "1", "no"]),
    "amount": ("double", ["1.5d", "0x1p3"]),
    "days": ("array<date>", [["2024-01-01", "202401"]]),
    "facts": ("struct<paid:boolean,at:timestamp>", [{"paid": True, "at": "12:30"}, {"paid": "yes", "at": None}]),
}
ACCEPTED = {
    "day": ["2024-05-02 00:00:00", "2024/5/2", " 2024-5-2"],
    "at": ["2024-05-02T10:30:00Z", "2024-05-02 12:30:00+0200", "2024-05-02 10:30"],
    "paid": ["TRUE", " true"],
    "amount": ["1.5e0", " 1.50"],
    "days": [["2024-05-02", None]],
    "facts": [{"paid": True, "at": "2024-05-02 10:30:00"}],
}
VALUES = {
    "day": "2024-05-02",
    "at": "2024-05-02 10:30:00",
    "paid": "true",
    "amount": "1.5",
    "days": "[2024-05-02, null]",
    "facts": "{true, 2024-05-02 10:30:00}",
}


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("source_format", ["json", pytest.param("csv", marks=pytest.mark.long)])
def test_a_load_sets_aside_what_an_insert_refuses(
    make_loader: Callable[..., Any], catalog: Catalog, spark: SparkSession, tmp_path: Path, source_format: str
) -> None:
    from spark_jobs.reading.tables import read_table

    columns = {name: kind for name, (kind, _) in REFUSED.items() if source_format == "json" or "<" not in kind}
    catalog.create_database("shop", if_not_exists=True)
    catalog.create_table("shop.orders", columns=list(columns.items()), partition_keys=[("number", "int")])
    loader = make_loader(keys={"number": "int"})
    settings = {"source_format": source_format, "source_options": {"header": "true"} if source_format == "csv" else {}}
    good = [(name, value) for name in columns for value in ACCEPTED[name]]
    loader.load(written(tmp_path / "good", source_format, good, list(columns)), **settings)
    rows = read_table(spark, "shop.orders", catalog=catalog)
    for row in rows.select("number", *[f.col(name).cast("string").alias(name) for name in columns]).collect():
        name = good[row["number"]][0]
        assert row[name] == VALUES[name]
    bad = [(name, value) for name in columns for value in REFUSED[name][1]]
    with pytest.raises(SourceFileError) as refused:
        loader.load(written(tmp_path / "bad", source_format, bad, list(columns)), **settings, mode="append")
    assert str(refused.value).count(" is no ") == len(bad)


@pytest.mark.long
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_type_is_found_only_for_its_own_strings(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text(
        "number,day,month,time,at,amount,odd,paid\n"
        "1,2024-05-02,2024-05,12:30,2024-05-02T10:30:00Z,1.5,1.5d,true\n"
        "1,2024-05-03,2024-06,12:31,2024-05-02 10:30:00,2,2.5,false\n"
    )
    make_loader(keys={"number": "int"}).load(tmp_path / "rows.csv")
    assert {column.name: column.type for column in catalog.get_table("shop.orders").columns} == {
        "day": "date",
        "month": "string",
        "time": "string",
        "at": "timestamp",
        "amount": "double",
        "odd": "string",
        "paid": "boolean",
    }


def written(folder: Path, source_format: str, cells: list[tuple[str, Any]], names: list[str]) -> Path:
    """Write a file of which each row has a value in one column, and its number as the partition."""
    folder.mkdir()
    lines = [json.dumps({name: value, "number": number}) for number, (name, value) in enumerate(cells)]
    if source_format == "csv":
        lines = [",".join((*names, "number"))]
        for number, (filled, value) in enumerate(cells):
            lines.append(",".join((*(value if name == filled else "" for name in names), str(number))))
    (folder / f"rows.{source_format}").write_text("\n".join(lines))
    return folder
