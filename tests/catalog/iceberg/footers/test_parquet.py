from __future__ import annotations

import datetime
import re
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.expressions import GreaterThan, LessThan
from pyiceberg.expressions.visitors import _StrictMetricsEvaluator
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from catalog.errors import FileProblem, UnusableFileError
from catalog.files.filesystem import FileInfo
from catalog.iceberg.footers import tails
from catalog.iceberg.footers.facts import FileFacts, FooterReader
from catalog.iceberg.footers.row_groups import read_row_groups, shape_of
from catalog.iceberg.footers.thrift import schema_end
from catalog.model import FileFormat
from tests.support.iceberg_files import file_info, layout

UTC = datetime.UTC


def read(path: Path, columns: dict[str, IcebergType], keys: dict[str, IcebergType] | None = None) -> FileFacts:
    return FooterReader(layout(columns, keys), FileFormat.PARQUET).read(file_info(path))


def write(path: Path, data: dict[str, pyarrow.Array], **options: Any) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(data), path, **options)
    return path


def problem_of(path: Path, columns: dict[str, IcebergType]) -> UnusableFileError:
    with pytest.raises(UnusableFileError) as caught:
        read(path, columns)
    assert caught.value.path == str(path)
    assert str(path) in str(caught.value)
    return caught.value


# Type in Iceberg, type in the file, values.
COLUMNS: dict[str, tuple[IcebergType, pyarrow.DataType, st.SearchStrategy[Any]]] = {
    "flag": (BooleanType(), pyarrow.bool_(), st.booleans()),
    "number": (IntegerType(), pyarrow.int32(), st.integers(-(2**31), 2**31 - 1)),
    "big": (LongType(), pyarrow.int64(), st.integers(-(2**63), 2**63 - 1)),
    "single": (FloatType(), pyarrow.float32(), st.floats(width=32, allow_nan=False).filter(bool)),
    "ratio": (DoubleType(), pyarrow.float64(), st.floats(allow_nan=False).filter(bool)),
    "text": (StringType(), pyarrow.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=24)),
    "code": (BinaryType(), pyarrow.binary(), st.binary(max_size=24).map(lambda code: code.replace(b"\xff", b""))),
    "day": (DateType(), pyarrow.date32(), st.dates()),
    "moment": (TimestamptzType(), pyarrow.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "amount": (
        DecimalType(12, 2),
        pyarrow.decimal128(12, 2),
        st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    ),
}


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(st.tuples(*(st.one_of(st.none(), values) for *_, values in COLUMNS.values())), max_size=6),
    group=st.integers(1, 3),
)
def test_facts_are_those_of_pyiceberg(rows: list[Any], group: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    values = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    arrays = {
        name: pyarrow.array(column, kind) for (name, (_, kind, _)), column in zip(COLUMNS.items(), values, strict=True)
    }
    path = write(tmp_path_factory.mktemp("p") / "f.parquet", arrays, row_group_size=group)
    wanted = {name: kind for name, (kind, *_) in COLUMNS.items()}
    found = read(path, wanted)
    schema = layout(wanted).schema
    expected = data_file_statistics_from_parquet_metadata(
        pyarrow.parquet.read_metadata(path), compute_statistics_plan(schema, {}), parquet_path_to_id_mapping(schema)
    )
    assert found.row_count == expected.record_count
    assert found.column_sizes == expected.column_sizes
    assert found.value_counts == expected.value_counts
    assert found.null_counts == expected.null_value_counts
    assert list(found.split_offsets or ()) == expected.split_offsets
    lowers = {number: each.min_as_bytes() for number, each in expected.column_aggregates.items()}
    uppers = {number: each.max_as_bytes() for number, each in expected.column_aggregates.items()}
    floating = {schema.find_field(name).field_id for name in ("single", "ratio")}
    assert found.lower_bounds == {n: bound for n, bound in lowers.items() if bound is not None and n not in floating}
    assert found.upper_bounds == {n: bound for n, bound in uppers.items() if bound is not None and n not in floating}


def test_narrow_values_have_the_bounds_of_the_wider_table_column(tmp_path: Path) -> None:
    path = write(
        tmp_path / "f",
        {
            "a": pyarrow.array([1, -2], pyarrow.int32()),
            "b": pyarrow.array([0.5, 2], pyarrow.float32()),
            "c": pyarrow.array([Decimal("-1.50")], pyarrow.decimal128(5, 2)).take(pyarrow.array([0, 0])),
            "d": pyarrow.array([1, 2], pyarrow.int8()),
        },
    )
    found = read(path, {"a": LongType(), "b": DoubleType(), "c": DecimalType(20, 2), "d": LongType()})
    assert found.lower_bounds == {
        1: struct.pack("<q", -2),
        3: (-150).to_bytes(2, "big", signed=True),
        4: struct.pack("<q", 1),
    }
    assert found.upper_bounds[1] == struct.pack("<q", 1)


@pytest.mark.parametrize(("precision", "as_integer"), [(5, True), (15, True), (5, False), (15, False), (38, False)])
def test_decimals_have_bounds_in_whichever_type_they_are_stored(
    precision: int, as_integer: bool, tmp_path: Path
) -> None:
    values = [Decimal("-1.28"), None, Decimal("1.28")]
    column = pyarrow.array(values, pyarrow.decimal128(precision, 2))
    path = write(tmp_path / "f", {"a": column}, row_group_size=1, store_decimal_as_integer=as_integer)
    kind = DecimalType(precision, 2)
    found = read(path, {"a": kind})
    assert from_bytes(kind, found.lower_bounds[1]) == Decimal("-1.28")
    assert from_bytes(kind, found.upper_bounds[1]) == Decimal("1.28")
    assert found.lower_bounds[1] == b"\x80"


@pytest.mark.parametrize("kind", [TimestampType(), TimestamptzType()])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_timestamps_in_microseconds_have_bounds(zone: str | None, kind: IcebergType, tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"a": pyarrow.array([-2, 3], pyarrow.timestamp("us", zone))})
    found = read(path, {"a": kind})
    assert (found.lower_bounds[1], found.upper_bounds[1]) == (struct.pack("<q", -2), struct.pack("<q", 3))


@pytest.mark.parametrize("unit", ["ms", "ns"])
@pytest.mark.parametrize("kind", [TimestampType(), TimestamptzType()])
def test_timestamps_in_other_units_are_refused(unit: str, kind: IcebergType, tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"a": pyarrow.array([-2, 3], pyarrow.timestamp(unit))})
    assert problem_of(path, {"a": kind}).problem is FileProblem.INCOMPATIBLE_COLUMN


def test_timestamps_of_96_bits_have_counts_and_no_bounds(tmp_path: Path) -> None:
    moments = pyarrow.array([1, None], pyarrow.timestamp("us"))
    path = write(tmp_path / "f", {"a": moments}, use_deprecated_int96_timestamps=True)
    found = read(path, {"a": TimestamptzType()})
    assert (found.value_counts, found.lower_bounds, found.upper_bounds) == ({1: 2}, {}, {})


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize(("kind", "stored"), [(FloatType(), pyarrow.float32()), (DoubleType(), pyarrow.float64())])
def test_floats_have_counts_and_no_bounds(
    kind: IcebergType, stored: pyarrow.DataType, group: int, tmp_path: Path
) -> None:
    """A footer does not count NaNs, and its minimum and maximum leave them out."""
    path = write(tmp_path / "f", {"a": pyarrow.array([1.0, float("nan"), 0.0, None], stored)}, row_group_size=group)
    found = read(path, {"a": kind})
    assert (found.value_counts, found.null_counts, found.nan_counts) == ({1: 4}, {1: 1}, {})
    assert (found.lower_bounds, found.upper_bounds) == ({}, {})


def test_a_file_without_statistics_has_no_bounds(tmp_path: Path) -> None:
    data = {"a": pyarrow.array([1, 2]), "b": pyarrow.array(["x", "y"])}
    found = read(write(tmp_path / "f", data, write_statistics=False), {"a": LongType(), "b": StringType()})
    assert (found.lower_bounds, found.null_counts, found.value_counts) == ({}, {}, {1: 2, 2: 2})


def test_a_column_without_statistics_in_one_row_group_has_no_bounds(tmp_path: Path) -> None:
    # The writer leaves out statistics of long values.
    data = {"a": pyarrow.array([1, 2]), "b": pyarrow.array(["x", "y" * 5000])}
    path = write(tmp_path / "f", data, row_group_size=1)
    assert not pyarrow.parquet.read_metadata(path).row_group(1).column(1).statistics.has_min_max
    found = read(path, {"a": LongType(), "b": StringType()})
    assert (set(found.lower_bounds), set(found.upper_bounds)) == ({1}, {1})


@pytest.mark.parametrize("group", [1, 2, 3])
def test_a_column_without_null_counts_has_no_bounds(group: int, tmp_path: Path) -> None:
    """Some writers omit null counts; with bounds and no count, a metadata delete would remove the nulls."""
    kinds: dict[str, IcebergType] = {"a": LongType(), "b": StringType()}
    path = write(
        tmp_path / "f", {"a": pyarrow.array([5, None, 7]), "b": pyarrow.array(["x", "y", None])}, row_group_size=group
    )
    _remove_null_counts(path)
    statistics = pyarrow.parquet.read_metadata(path).row_group(0).column(0).statistics
    assert (statistics.has_min_max, statistics.has_null_count) == (True, False)
    facts = read(path, kinds)
    assert (facts.value_counts, facts.null_counts) == ({1: 3, 2: 3}, {})
    assert (facts.lower_bounds, facts.upper_bounds) == ({}, {})
    file = DataFile.from_args(
        record_count=3,
        value_counts=dict(facts.value_counts),
        null_value_counts=dict(facts.null_counts),
        nan_value_counts={},
        lower_bounds=dict(facts.lower_bounds),
        upper_bounds=dict(facts.upper_bounds),
    )
    for condition in (LessThan("a", 10), GreaterThan("b", "a")):
        assert not _StrictMetricsEvaluator(layout(kinds).schema, condition).eval(file)


def _remove_null_counts(path: Path) -> None:
    """Rewrite a footer without the field `null_count` (3) between the old minimum (2), if any, and the maximum (5)."""
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    footer = content[start:-8]
    for before, after in ((rb"\x16", b"\x38"), (rb"\x36", b"\x58")):
        footer = re.sub(before + rb"[\x00\x02\x04]\x28([\x01\x08])", after + rb"\1", footer)
    path.write_bytes(content[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False},
        {"compression": "none", "write_page_index": True},
        {"data_page_version": "2.0"},
    ],
)
def test_chunks_of_usual_shape_are_those_that_any_shape_would_be(options: dict[str, Any], tmp_path: Path) -> None:
    values_of = {
        "flag": (pyarrow.bool_(), [True, False, None]),
        "number": (pyarrow.int32(), [-1, 2**20, None]),
        "big": (pyarrow.int64(), [-(2**40), 5, None]),
        "ratio": (pyarrow.float64(), [0.5, -1e9, None]),
        "text": (pyarrow.string(), ["", "x" * 100, None]),
        "long_text": (pyarrow.string(), ["x" * 200, "y", None]),
        "fixed": (pyarrow.binary(5), [b"abcde", b"vwxyz", None]),
        "nothing": (pyarrow.string(), [None, None, None]),
    }
    arrays = {name: pyarrow.array(values, kind) for name, (kind, values) in values_of.items()}
    path = write(tmp_path / "f", arrays, row_group_size=2, **options)
    metadata = pyarrow.parquet.read_metadata(path)
    content = path.read_bytes()
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") : -8]
    shapes = [shape_of(metadata.schema.column(number)) for number in range(metadata.num_columns)]
    found = read_row_groups(footer, schema_end(footer), shapes)
    assert found == read_row_groups(footer, schema_end(footer), [shape._replace(pattern=None) for shape in shapes])
    rows, groups, _ = found
    assert (rows, len(groups)) == (metadata.num_rows, metadata.num_row_groups)
    for number, group in enumerate(groups):
        assert group.run_lengths == ((0,) if "data_page_version" in options else ())
        for column, (values, size_bytes, nulls, low, high) in enumerate(group.chunks):
            known = metadata.row_group(number).column(column)
            assert (values, size_bytes) == (known.num_values, known.total_compressed_size)
            assert nulls == known.statistics.null_count
            assert (low is not None and high is not None) == known.statistics.has_min_max
            if isinstance(known.statistics.min_raw, bytes):
                assert (low, high) == (known.statistics.min_raw, known.statistics.max_raw)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", ["PLAIN", "RLE"])
def test_booleans_stored_as_runs_are_those_that_have_no_plain_pages(
    encoding: str, version: str, tmp_path: Path
) -> None:
    options = {"data_page_version": version, "use_dictionary": False}
    values = pyarrow.array([True, None, False, None], pyarrow.bool_())
    encodings = {"flag": encoding, "other": "RLE", "part.flag": "RLE"}
    parts = pyarrow.array([{"flag": True}] * 4)
    columns = {"flag": values, "other": values, "part": parts}
    path = write(tmp_path / "f", columns, row_group_size=2, column_encoding=encodings, **options)
    part = StructType(NestedField(9, "flag", BooleanType(), required=False))
    found = read(path, {"flag": BooleanType(), "part": part})
    assert found.unvectorized == (("flag",) if encoding == "RLE" else ())


def test_files_on_other_file_systems_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "f", {"a": pyarrow.array([1])})
    reader = FooterReader(layout({"a": LongType()}), FileFormat.PARQUET)
    local = reader.read(file_info(path))
    monkeypatch.setattr(tails, "is_local", lambda _: False)
    assert reader.read(FileInfo(f"file://{path}", path.stat().st_size, 0)) == local


def test_without_an_order_of_columns_only_signed_ones_have_bounds(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"a": pyarrow.array([1, 2]), "b": pyarrow.array(["x", "y"])})
    content = path.read_bytes()
    orders = b"\x19\x2c\x1c\x00\x00\x1c\x00\x00\x00"
    assert orders in content
    # One of the orders is not the type's own: some order to come.
    path.write_bytes(content.replace(orders, b"\x19\x2c\x1c\x00\x00\x2c\x00\x00\x00"))
    found = read(path, {"a": LongType(), "b": StringType()})
    assert 2 not in found.lower_bounds
    assert found.null_counts[1] == 0


def test_texts_that_are_no_utf_8_have_no_bounds(tmp_path: Path) -> None:
    texts = pyarrow.StringArray.from_buffers(
        2, pyarrow.array([0, 2, 3], pyarrow.int32()).buffers()[1], pyarrow.py_buffer(b"\xff\xfea")
    )
    assert read(write(tmp_path / "f", {"a": texts}), {"a": StringType()}).lower_bounds == {}
    path = write(tmp_path / "g", {"a": pyarrow.array([b"\xff\xfe", b"a"], pyarrow.binary())})
    assert read(path, {"a": BinaryType()}).upper_bounds == {1: b"\xff\xfe"}


def test_leaves_of_structs_have_bounds_and_those_in_lists_and_maps_only_counts(tmp_path: Path) -> None:
    data = pyarrow.array(
        [{"X": 1, "l": [1, 2, None], "m": [("a", 1)]}, {"X": 2, "l": [], "m": []}],
        pyarrow.struct(
            {
                "X": pyarrow.int32(),
                "l": pyarrow.list_(pyarrow.int32()),
                "m": pyarrow.map_(pyarrow.string(), pyarrow.int64()),
            }
        ),
    )
    path = write(tmp_path / "f", {"S": data, "z": pyarrow.array([5, 6])})
    struct_type = StructType(
        NestedField(10, "x", IntegerType()),
        NestedField(11, "l", ListType(12, IntegerType(), False)),
        NestedField(13, "m", MapType(14, StringType(), 15, LongType(), False)),
    )
    found = read(path, {"s": struct_type, "z": LongType()})
    assert found.value_counts == {10: 2, 12: 4, 14: 2, 15: 2, 2: 2}
    assert set(found.lower_bounds) == {10, 2}
    assert found.lower_bounds[2] == struct.pack("<q", 5)
    assert found.spellings == ((1, "S"), (10, "X"))


def test_columns_may_be_missing_superfluous_reordered_and_spelled_otherwise(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"more": pyarrow.array([9]), "B": pyarrow.array(["b"]), "a": pyarrow.array([1])})
    found = read(path, {"a": LongType(), "b": StringType(), "new": DateType()})
    assert found.value_counts == {1: 1, 2: 1}
    assert found.lower_bounds == {1: struct.pack("<q", 1), 2: b"b"}
    assert found.spellings == ((2, "B"),)


def test_partition_keys_are_not_looked_for_in_files(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"a": pyarrow.array([1]), "day": pyarrow.array([7])})
    assert read(path, {"a": LongType()}, {"day": StringType()}).value_counts == {1: 1}


def test_files_of_several_schemas_are_told_apart(tmp_path: Path) -> None:
    reader = FooterReader(layout({"a": LongType(), "b": StringType()}), FileFormat.PARQUET)
    one = write(tmp_path / "1", {"a": pyarrow.array([1]), "b": pyarrow.array(["x"])})
    other = write(tmp_path / "2", {"b": pyarrow.array(["x"]), "a": pyarrow.array([1])})
    narrow = write(tmp_path / "3", {"a": pyarrow.array([1], pyarrow.int32())})
    for _ in range(2):
        for path, bounded in ((one, {1, 2}), (other, {1, 2}), (narrow, {1})):
            found = reader.read(file_info(path))
            assert set(found.lower_bounds) == bounded
            assert found.lower_bounds[1] == struct.pack("<q", 1)


def test_a_file_without_rows_has_no_bounds(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"a": pyarrow.array([], pyarrow.int64())})
    found = read(path, {"a": LongType()})
    assert (found.row_count, found.lower_bounds) == (0, {})


def test_a_footer_longer_than_the_first_read_is_read(tmp_path: Path) -> None:
    names = [f"a_rather_long_name_of_a_column_{number}" for number in range(300)]
    path = write(tmp_path / "f", {name: pyarrow.array([1]) for name in names})
    assert len(read(path, {name: LongType() for name in names}).lower_bounds) == 300


def test_the_location_may_be_a_uri(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"a": pyarrow.array([1])})
    reader = FooterReader(layout({"a": LongType()}), FileFormat.PARQUET)
    assert reader.read(FileInfo(f"file://{path}", path.stat().st_size, 0)).lower_bounds == {1: to_bytes(LongType(), 1)}
