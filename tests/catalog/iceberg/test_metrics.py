from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from catalog.iceberg.footers.facts import FileFacts, FooterReader
from catalog.iceberg.layout import Layout
from catalog.iceberg.manifests import ManifestWriter
from catalog.iceberg.metrics import metrics_modes
from catalog.model import FileFormat
from tests.support.iceberg_files import file_info, layout

_COLUMN = "write.metadata.metrics.column."
_DEFAULT = "write.metadata.metrics.default"
_MOST = "write.metadata.metrics.max-inferred-column-defaults"


def numbers(count: int) -> Schema:
    return Schema(*(NestedField(n, f"c{n}", LongType(), required=False) for n in range(1, count + 1)))


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, {}),
        ({_DEFAULT: "Counts"}, {1: "counts", 2: "counts", 3: "counts"}),
        ({_DEFAULT: "nothing"}, {}),
        ({_DEFAULT: "truncate(0)"}, {}),
        ({_DEFAULT: "none", f"{_COLUMN}c2": "truncate(16)"}, {1: "none", 3: "none"}),
        ({_DEFAULT: "none", f"{_COLUMN}c2": "what"}, {1: "none", 2: "none", 3: "none"}),
        ({f"{_COLUMN}c2": "FULL", f"{_COLUMN}c9": "none"}, {2: "full"}),
        ({_MOST: "2"}, {3: "none"}),
        ({_MOST: "2", _DEFAULT: "full"}, {1: "full", 2: "full", 3: "full"}),
        ({_MOST: "-1"}, {}),
        ({_MOST: "0", f"{_COLUMN}c3": "truncate(4)"}, {1: "none", 2: "none", 3: "truncate(4)"}),
    ],
)
def test_modes_are_those_of_the_properties(properties: Mapping[str, str], expected: Mapping[int, str]) -> None:
    assert metrics_modes(properties, numbers(3)) == expected


def test_only_the_first_hundred_columns_have_metrics_unless_configured_or_sorted_by() -> None:
    order = SortOrder(SortField(150, IdentityTransform()), SortField(151, BucketTransform(4)))
    modes = metrics_modes({f"{_COLUMN}c140": "counts"}, numbers(160), order)
    assert modes == {n: "none" for n in range(101, 161) if n not in (140, 150)} | {140: "counts"}
    assert metrics_modes({}, numbers(100)) == {}


def test_columns_of_structs_count_after_those_beside_the_struct() -> None:
    inside = StructType(NestedField(4, "x", LongType()), NestedField(5, "y", LongType()))
    schema = Schema(
        NestedField(1, "s", inside),
        NestedField(2, "l", ListType(6, IntegerType(), False)),
        NestedField(3, "m", MapType(7, StringType(), 8, LongType(), False)),
        NestedField(9, "last", LongType()),
    )
    assert set(metrics_modes({_MOST: "2"}, schema)) == {1, 2, 3, 5, 6, 7, 8}
    assert metrics_modes({f"{_COLUMN}s.x": "none", f"{_COLUMN}l.element": "counts"}, schema) == {4: "none", 6: "counts"}


def read(path: Path, columns: dict[str, IcebergType], modes: Mapping[int, str]) -> FileFacts:
    table = replace(layout(columns), metrics=modes)
    return FooterReader(Layout.from_json(table.as_json()), FileFormat.PARQUET).read(file_info(path))


def test_a_file_has_the_metrics_of_its_modes(tmp_path: Path) -> None:
    text, binary = "ä" * 40, b"\xff" * 8 + b"a"
    data = {"a": ["x"], "b": [1], "c": [text], "d": [text], "e": [binary], "f": [binary], "g": [text]}
    path = tmp_path / "f.parquet"
    pyarrow.parquet.write_table(pyarrow.table(data), path)
    kinds = [StringType(), LongType(), StringType(), StringType(), BinaryType(), BinaryType(), StringType()]
    modes = {1: "none", 2: "counts", 3: "truncate(3)", 4: "full", 5: "truncate(8)", 6: "truncate(9)"}
    facts = read(path, dict(zip(data, kinds, strict=True)), modes)
    assert set(facts.column_sizes) == set(facts.value_counts) == set(facts.null_counts) == {2, 3, 4, 5, 6, 7}
    assert facts.lower_bounds == {
        3: "äää".encode(),
        4: text.encode(),
        5: b"\xff" * 8,
        6: binary,
        7: ("ä" * 16).encode(),
    }
    # Nothing of eight bytes is above eight of the greatest.
    assert facts.upper_bounds == {
        3: "ääå".encode(),
        4: text.encode(),
        6: binary,
        7: ("ä" * 15 + "å").encode(),
    }


def test_an_entry_of_a_thousand_columns_is_small(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(1_000)]
    texts = pyarrow.table({name: [f"{name} and more than sixteen characters"] for name in names})
    path = tmp_path / "f.parquet"
    pyarrow.parquet.write_table(texts, path)
    wide = layout(dict.fromkeys(names, StringType()))
    wide = replace(wide, metrics=metrics_modes({f"{_COLUMN}c900": "counts"}, wide.schema))
    facts = FooterReader(wide, FileFormat.PARQUET).read(file_info(path))
    assert set(facts.value_counts) == {*range(1, 101), 901}
    assert set(facts.lower_bounds) == set(range(1, 101))

    files = 200
    with ManifestWriter(wide, f"{tmp_path}/m-") as writer:
        for number in range(files):
            # Of real files no two have the same bounds.
            lower = {n: struct.pack("<d", number / n) * 2 for n in facts.lower_bounds}
            info = replace(file_info(path), path=f"{path}-{number}")
            writer.add((), FileFormat.PARQUET, info, replace(facts, lower_bounds=lower))
    size = sum(manifest.length_bytes for manifest in writer.manifests)
    # The header has the schema once.
    empty = len(writer._header)
    assert (size - empty) / files < 4_000
