"""Formats of source files and of data files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog import Catalog
from catalog.errors import SourceFileError
from tests.spark_jobs.test_load import HEADER, deliver, on_sqlite, rows_on_disk

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["orc", "csv"])
def test_other_formats_of_data_files(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path, table_format: str
) -> None:
    source = deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\nUS,1,2,2\nDE,1,3,3\n")
    report = make_loader().load(source, format=table_format)
    assert (report["partitions"], report["row_count"]) == (2, 3)
    assert catalog.get_table("shop.orders").format == table_format


def test_json_lines(make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path) -> None:
    lines = '{"country": "US", "day": 1, "id": 1}\n{"country": "DE", "day": 2, "id": 2}\n'
    source = deliver(tmp_path / "raw", "a.json", lines)
    loader = make_loader()
    assert loader.load(source, source_format="json", source_options={})["partitions"] == 2
    deliver(source, "b.json", '{"country": "US", "day": 3, "id": \n')
    with pytest.raises(SourceFileError, match=r"b\.json, line 1"):
        loader.load(source, source_format="json", source_options={})


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('{"country": "US", "day": 1, "id": 1}\n{"country": "US", "id": 2}\n', {}),
        ('[{"country": "US", "day": 1, "id": 1},\n {"country": "US", "id": 2}]\n', {"multiLine": "true"}),
    ],
    ids=["lines", "array"],
)
def test_json_record_without_a_key_is_refused(
    make_loader: Callable[..., Any],
    catalog: Catalog,
    warehouse: Path,
    tmp_path: Path,
    text: str,
    options: dict[str, str],
) -> None:
    source = deliver(tmp_path / "raw", "a.json", text)
    loader = make_loader()
    settings = {"source_format": "json", "source_options": options, "null_keys": "allow"}
    for dry_run in (True, False):
        with pytest.raises(SourceFileError, match=r"a\.json: the record .*\"id\":2.* has no field day"):
            loader.validate(f"op-{dry_run}", source, **settings, dry_run=dry_run)
    assert catalog.list_tables() == []
    # The operator that submitted the job would do so; until then, other first loads are excluded.
    catalog.operations.fail("op-False", "SourceFileError", "a record has no field day")
    source = deliver(tmp_path / "good", "a.json", text.replace('"US", "id": 2', '"US", "day": null, "id": 2'))
    loader.load(source, **settings)
    assert rows_on_disk(warehouse, columns="country, day, id") == [("US", "1", 1), ("US", None, 2)]


@pytest.mark.long
@on_sqlite
def test_keys_of_json_may_be_written_in_capitals(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    source = deliver(tmp_path / "raw", "a.json", '{"Country": "US", "Day": 1, "id": 1}\n{"Country": null, "Day": 1}\n')
    report = make_loader().load(source, source_format="json", source_options={}, null_keys="allow")
    assert report["partitions"] == 2


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("source_format", ["parquet", "orc"])
def test_file_without_a_key_or_with_further_columns_is_refused(
    make_loader: Callable[..., Any], spark: Any, catalog: Catalog, tmp_path: Path, source_format: str
) -> None:
    def written(folder: str, *queries: str) -> str:
        for number, query in enumerate(queries):
            path = str(tmp_path / folder / str(number))
            spark.sql(f"SELECT 'US' AS country, {query}").coalesce(1).write.format(source_format).save(path)
        return str(tmp_path / folder / "*" / "*")

    loader = make_loader()
    source = written("without", "1 AS day, 1 AS id", "2 AS id")
    with pytest.raises(SourceFileError, match=r"/1/part-.* has no column day, which the table is"):
        loader.load(source, source_format=source_format, source_options={})
    assert catalog.list_tables() == []
    loader.load(written("good", "1 AS day, 1 AS id"), source_format=source_format, source_options={})
    with pytest.raises(SourceFileError, match="unknown note"):
        loader.load(
            written("more", "2 AS day, 1 AS id", "3 AS day, 1 AS id, 'x' AS note"),
            source_format=source_format,
            source_options={},
        )
    with pytest.raises(SourceFileError, match="column id of type array<int>, which cannot become int"):
        loader.load(written("other", "4 AS day, array(1) AS id"), source_format=source_format, source_options={})


@on_sqlite
def test_a_file_of_another_format_than_csv_is_named_with_its_format(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    rows = pa.table({"country": ["US"], "day": [1], "id": [1]})
    (tmp_path / "raw").mkdir()
    pq.write_table(rows, tmp_path / "raw" / "a.parquet")
    with pytest.raises(SourceFileError, match=r"a\.parquet is a file of parquet.*set source_format to parquet"):
        make_loader().load(tmp_path / "raw")
