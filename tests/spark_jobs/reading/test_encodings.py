"""Text files in other encodings than UTF-8: their rows, and the lines of bad ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.errors import SourceFileError
from spark_jobs.reading.tables import read_table

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)

TABLE = "shop.orders"
LINES = "name,id,day\nMüller,1,1\nZoë,2,1\n"
RECORDS = '[\n{"name": "Müller", "id": 1, "day": 1},\n{"name": "Zoë", "id": 2, "day": 1}\n]\n'


def names(spark: SparkSession, catalog: Catalog) -> list[str]:
    return [row["name"] for row in read_table(spark, TABLE, catalog=catalog).orderBy("id").collect()]


def settings(source_format: str, encoding: str | None) -> dict[str, Any]:
    options = {"header": "true"} if source_format == "csv" else {}
    options |= {} if encoding is None else {"encoding": encoding}
    return {"source_format": source_format, "source_options": options, "columns": [["id", "int"]]}


@on_sqlite
@pytest.mark.parametrize(
    ("source_format", "python", "encoding"),
    [
        ("csv", "latin-1", "ISO-8859-1"),
        ("csv", "utf-8-sig", None),
        ("csv", "utf-16", "UTF-16"),
        ("csv", "utf-16-le", "UTF-16LE"),
        ("json", "latin-1", "ISO-8859-1"),
        ("json", "utf-16", "UTF-16"),
    ],
)
def test_rows_are_read_and_the_lines_of_bad_ones_are_found(
    spark: SparkSession,
    catalog: Catalog,
    make_loader: Callable[..., Any],
    tmp_path: Path,
    source_format: str,
    python: str,
    encoding: str | None,
) -> None:
    loader, path = make_loader(keys={"day": "int"}), tmp_path / f"a.{source_format}"
    text = LINES if source_format == "csv" else RECORDS
    path.write_bytes(text.replace("2", '"x"').encode(python))
    with pytest.raises(SourceFileError, match=rf"{path}, line 3: column id: 'x' is no int"):
        loader.load(path, **settings(source_format, encoding))
    path.write_bytes(text.replace("\n", "\r\n").encode(python))
    loader.load(path, **settings(source_format, encoding))
    assert names(spark, catalog) == ["Müller", "Zoë"]


@pytest.mark.long
@on_sqlite
def test_text_that_is_not_in_the_named_encoding_is_refused(
    catalog: Catalog, make_loader: Callable[..., Any], tmp_path: Path
) -> None:
    loader, path = make_loader(keys={"day": "int"}), tmp_path / "a.csv"
    path.write_text(LINES)
    with pytest.raises(SourceFileError, match=r"line 2: column name: 'M.*ller' is not in the file's encoding"):
        loader.load(path, **settings("csv", "US-ASCII"))
    path = tmp_path / "a.json"
    path.write_text('{"name": "Zoë", "id": 1, "day": 1}\n', encoding="utf-16")
    with pytest.raises(SourceFileError, match=r"cannot be read with encoding utf-16, .* utf-16le, or utf-16be"):
        loader.load(path, **settings("json", "UTF-16"))


@pytest.mark.long
@on_sqlite
def test_json_with_null_keys_may_have_an_encoding(
    spark: SparkSession, catalog: Catalog, make_loader: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"name": "Zoë", "id": 1, "day": null}\n', encoding="latin-1")
    make_loader(keys={"day": "int"}).load(path, **settings("json", "ISO-8859-1"), null_keys="allow")
    assert names(spark, catalog) == ["Zoë"]
