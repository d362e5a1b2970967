"""Values of source files that data files of the table's format cannot have are named by file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog
from catalog.errors import SourceFileError

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

JSON = {"source_format": "json", "source_options": {}}


def make_files(catalog: Catalog, folder: Path, file_format: str, kind: str, fits: str, unfit: str) -> Path:
    """Make the table `shop.t` of a format with a column `t`, and a source file with two values of it."""
    catalog.create_database("shop")
    columns, keys = [("n", "int"), ("t", kind)], [("k", "int")]
    catalog.create_table("shop.t", columns=columns, partition_keys=keys, format=file_format)
    lines = [{"n": number, "t": value, "k": 1} for number, value in enumerate((fits, unfit))]
    file = folder / "a.json"
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("file_format", "kind", "fits", "unfit", "reason"),
    [
        ("avro", "timestamp", "2024-05-01 12:00:00.5", "2024-05-01 12:00:00.123456", "has microseconds"),
        ("csv", "string", "x", "x\ny", "has a line break"),
        ("orc", "date", "1582-10-04", "1582-10-10", "would become another value in an ORC file"),
    ],
)
def test_a_value_that_the_format_cannot_have_is_named_by_its_line(
    make_loader: Callable[..., Any],
    catalog: Catalog,
    tmp_path: Path,
    file_format: str,
    kind: str,
    fits: str,
    unfit: str,
    reason: str,
) -> None:
    file = make_files(catalog, tmp_path, file_format, kind, fits, unfit)
    with pytest.raises(SourceFileError, match=rf"a\.json, line 2: column t: '.*' {reason}"):
        make_loader("shop.t", {"k": "int"}).load(file, **JSON)


@pytest.mark.long
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_contract_discards_its_row(make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path) -> None:
    file = make_files(catalog, tmp_path, "csv", "string", "x", "x\ny")
    make_loader("shop.t", {"k": "int"}).load(file, **JSON, contract={"types": "discard_row"})
    assert [partition.row_count for partition in catalog.get_partitions("shop.t")] == [1]
