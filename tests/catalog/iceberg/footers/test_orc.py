from __future__ import annotations

import datetime
import struct
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.orc
import pyorc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
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
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from catalog.errors import FileProblem, UnusableFileError
from catalog.iceberg import bounds
from catalog.iceberg.footers.facts import FileFacts, FooterReader
from catalog.model import FileFormat
from tests.catalog.iceberg.footers.test_refused_parquet import require_possible
from tests.support.iceberg_files import file_info, layout

UTC = datetime.UTC


def read(path: Path, columns: dict[str, IcebergType]) -> FileFacts:
    return FooterReader(layout(columns), FileFormat.ORC).read(file_info(path))


def write(path: Path, data: dict[str, pyarrow.Array], **options: Any) -> Path:
    pyarrow.orc.write_table(pyarrow.table(data), path, **options)
    return path


def problem_of(path: Path, columns: dict[str, IcebergType]) -> FileProblem:
    with pytest.raises(UnusableFileError) as caught:
        read(path, columns)
    assert str(path) in str(caught.value)
    return caught.value.problem


COLUMNS: dict[str, tuple[PrimitiveType, pyarrow.DataType, st.SearchStrategy[Any]]] = {
    "flag": (BooleanType(), pyarrow.bool_(), st.booleans()),
    "number": (IntegerType(), pyarrow.int32(), st.integers(-(2**31), 2**31 - 1)),
    "tiny": (IntegerType(), pyarrow.int8(), st.integers(-128, 127)),
    "big": (LongType(), pyarrow.int64(), st.integers(-(2**63), 2**63 - 1)),
    "single": (FloatType(), pyarrow.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False).filter(bool)),
    "ratio": (DoubleType(), pyarrow.float64(), st.floats(-1e300, 1e300).filter(bool)),
    "text": (StringType(), pyarrow.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=16)),
    "day": (DateType(), pyarrow.date32(), st.dates(datetime.date(1583, 1, 1))),
    "moment": (
        TimestamptzType(),
        pyarrow.timestamp("us", "UTC"),
        st.datetimes(datetime.datetime(1583, 1, 1), timezones=st.just(UTC)),
    ),
    "amount": (
        DecimalType(12, 2),
        pyarrow.decimal128(12, 2),
        st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    ),
}


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(
        st.tuples(*(st.one_of(st.none(), values) for *_, values in COLUMNS.values())), min_size=1, max_size=6
    ),
    compression=st.sampled_from(["uncompressed", "zlib", "snappy", "lz4", "zstd"]),
)
def test_facts_are_those_of_the_rows(
    rows: list[Any], compression: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    arrays = {
        name: pyarrow.array(column, kind)
        for (name, (_, kind, _)), column in zip(COLUMNS.items(), zip(*rows, strict=True), strict=True)
    }
    path = write(tmp_path_factory.mktemp("o") / "f.orc", arrays, compression=compression)
    found = read(path, {name: kind for name, (kind, *_) in COLUMNS.items()})
    assert found.row_count == len(rows)
    assert found.split_offsets == (3,)
    for field_id, (name, column) in enumerate(zip(COLUMNS, zip(*rows, strict=True), strict=True), 1):
        kind = COLUMNS[name][0]
        values = [value for value in column if value is not None]
        assert found.value_counts[field_id] == len(rows), name
        assert found.null_counts[field_id] == len(rows) - len(values), name
        if isinstance(kind, TimestamptzType):
            continue
        assert (field_id in found.lower_bounds) == bool(values), name
        if values:
            order = str.encode if isinstance(kind, StringType) else None
            low, high = min(values, key=order), max(values, key=order)
            assert found.lower_bounds[field_id] == to_bytes(kind, low), name
            assert found.upper_bounds[field_id] == to_bytes(kind, high), name


@given(moments=st.lists(st.datetimes(datetime.datetime(1600, 1, 1)), min_size=1, max_size=4), zoned=st.booleans())
@settings(max_examples=30, deadline=None)
def test_bounds_of_timestamps_enclose_them_to_a_millisecond(
    moments: list[datetime.datetime], zoned: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind: PrimitiveType = TimestamptzType() if zoned else TimestampType()
    column = pyarrow.array(moments, pyarrow.timestamp("us")).cast(pyarrow.timestamp("us", "UTC" if zoned else None))
    path = write(tmp_path_factory.mktemp("o") / "f.orc", {"a": column})
    found = read(path, {"a": kind})
    low, high = (struct.unpack("<q", to_bytes(kind, each))[0] for each in (min(moments), max(moments)))
    (lower,), (upper,) = (struct.unpack("<q", each[1]) for each in (found.lower_bounds, found.upper_bounds))
    assert low - 1000 < lower <= low
    assert high <= upper < high + 1000


@pytest.mark.parametrize("values", [[float("nan"), -5.0, 10.0], [1.0, float("nan")], [float("nan")]])
def test_columns_with_a_nan_have_no_bounds(values: list[float], tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"a": pyarrow.array(values), "b": pyarrow.array(values, pyarrow.float32())})
    found = read(path, {"a": DoubleType(), "b": FloatType()})
    assert (found.lower_bounds, found.upper_bounds, found.nan_counts) == ({}, {}, {})
    assert found.null_counts == {1: 0, 2: 0}


def test_columns_without_a_nan_say_so(tmp_path: Path) -> None:
    found = read(write(tmp_path / "f", {"a": pyarrow.array([0.0, None])}), {"a": DoubleType()})
    assert found.nan_counts == {1: 0}
    assert (found.lower_bounds[1], found.upper_bounds[1]) == (struct.pack("<d", -0.0), struct.pack("<d", 0.0))


def test_narrow_values_have_the_bounds_of_the_wider_table_column(tmp_path: Path) -> None:
    path = write(
        tmp_path / "f",
        {
            "a": pyarrow.array([1, -2], pyarrow.int32()),
            "b": pyarrow.array([0.5, 2], pyarrow.float32()),
            "c": pyarrow.array([Decimal("-1.50"), None], pyarrow.decimal128(5, 2)),
        },
    )
    found = read(path, {"a": LongType(), "b": DoubleType(), "c": DecimalType(20, 2)})
    assert found.lower_bounds == {
        1: struct.pack("<q", -2),
        2: struct.pack("<d", 0.5),
        3: (-150).to_bytes(2, "big", signed=True),
    }


def test_long_texts_are_cut_and_binaries_have_no_bounds(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"a": pyarrow.array(["x" * 40]), "b": pyarrow.array([b"x"], pyarrow.binary())})
    found = read(path, {"a": StringType(), "b": BinaryType()})
    assert found.lower_bounds == {1: b"x" * 16}
    assert found.upper_bounds == {1: b"x" * 15 + b"y"}
    assert found.null_counts == {1: 0, 2: 0}


def test_leaves_of_structs_have_bounds_and_those_in_lists_none(tmp_path: Path) -> None:
    data = pyarrow.array(
        [{"X": 1, "l": [1, 2]}, None], pyarrow.struct({"X": pyarrow.int32(), "l": pyarrow.list_(pyarrow.int32())})
    )
    path = write(tmp_path / "f", {"S": data, "z": pyarrow.array([5, 6])})
    kind = StructType(NestedField(10, "x", IntegerType()), NestedField(11, "l", ListType(12, IntegerType(), False)))
    found = read(path, {"s": kind, "z": LongType()})
    assert (found.value_counts[10], found.null_counts[10], found.null_counts[2]) == (2, 1, 0)
    assert set(found.lower_bounds) == {10, 2}
    assert found.spellings == ((1, "S"), (10, "X"))


def test_columns_without_names_are_found_by_position(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"_col0": pyarrow.array([1]), "_col1": pyarrow.array(["x"])})
    found = read(path, {"a": LongType(), "b": StringType(), "c": DateType()})
    assert found.upper_bounds == {1: struct.pack("<q", 1), 2: b"x"}
    assert found.spellings == ((1, "_col0"), (2, "_col1"))
    fewer = read(path, {"a": LongType()})
    assert (fewer.spellings, fewer.unknown) == (((1, "_col0"),), ((0, ("_col1",)),))


def write_rows(path: Path, schema: pyorc.TypeDescription, rows: list[tuple[Any, ...]]) -> Path:
    with path.open("wb") as file, pyorc.Writer(file, schema) as writer:
        writer.writerows(rows)
    return path


def with_ids(ids: dict[str, str]) -> pyorc.TypeDescription:
    """Return a type of rows whose columns have field ids, as Iceberg's writers put them."""
    element, plain = pyorc.BigInt(), pyorc.BigInt()
    array = pyorc.Array(element)
    for path, described in (("a", plain), ("l", array), ("l.element", element)):
        if path in ids:
            described.set_attributes({"iceberg.id": ids[path]})
    return pyorc.Struct(a=plain, l=array)


@pytest.mark.parametrize(
    ("ids", "is_usable"),
    [
        ({}, True),
        ({"a": "1", "l": "2", "l.element": "9"}, True),
        ({"a": "2", "l": "1", "l.element": "9"}, False),
        ({"a": "1", "l": "2", "l.element": "8"}, False),
        ({"l": "2"}, False),
    ],
)
def test_field_ids_in_a_file_are_the_tables_or_the_file_is_refused(
    ids: dict[str, str], is_usable: bool, tmp_path: Path
) -> None:
    path = write_rows(tmp_path / "f", with_ids(ids), [(1, [2])])
    columns = {"a": LongType(), "l": ListType(9, LongType(), False)}
    if is_usable:
        assert read(path, columns).row_count == 1
    else:
        assert problem_of(path, columns) is FileProblem.FIELD_ID


@pytest.mark.parametrize(
    ("orc_type", "kind"), [("char(6)", StringType()), ("tinyint", LongType()), ("smallint", LongType())]
)
def test_types_that_icebergs_readers_do_not_filter_or_read_are_refused(
    orc_type: str, kind: PrimitiveType, tmp_path: Path
) -> None:
    path = write_rows(tmp_path / "f", pyorc.TypeDescription.from_string(f"struct<a:{orc_type}>"), [])
    assert problem_of(path, {"a": kind}) is FileProblem.INCOMPATIBLE_COLUMN


def test_a_file_without_any_of_the_tables_columns_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"x": pyarrow.array([1])})
    assert problem_of(path, {"a": LongType()}) is FileProblem.NO_COMMON_COLUMN


def test_columns_may_be_missing_superfluous_and_reordered(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"more": pyarrow.array([9]), "B": pyarrow.array(["b"]), "a": pyarrow.array([1])})
    found = read(path, {"a": LongType(), "b": StringType(), "new": DateType()})
    assert found.lower_bounds == {1: struct.pack("<q", 1), 2: b"b"}
    assert found.spellings == ((2, "B"),)


@pytest.mark.first_case
@pytest.mark.parametrize("compression", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def test_footers_longer_than_the_first_read_and_in_any_compression_are_read(compression: str, tmp_path: Path) -> None:
    names = [f"a_rather_long_name_of_a_column_{number * 7919 % 10007}" for number in range(1200)]
    path = write(tmp_path / "f", {name: pyarrow.array([name[::-1]]) for name in names}, compression=compression)
    found = read(path, {name: StringType() for name in names})
    assert found.lower_bounds == {
        number: bounds.cut_text_lower(name[::-1].encode()) for number, name in enumerate(names, 1)
    }


def test_a_file_without_rows_has_no_bounds(tmp_path: Path) -> None:
    found = read(write(tmp_path / "f", {"a": pyarrow.array([], pyarrow.int64())}), {"a": LongType()})
    assert (found.row_count, found.lower_bounds, found.split_offsets) == (0, {}, None)


@pytest.mark.parametrize(
    ("array", "kind", "problem"),
    [
        (pyarrow.array([1]), IntegerType(), FileProblem.WIDER_COLUMN),
        (pyarrow.array([1.0]), FloatType(), FileProblem.WIDER_COLUMN),
        (pyarrow.array([Decimal("1.00")], pyarrow.decimal128(9, 2)), DecimalType(5, 2), FileProblem.WIDER_COLUMN),
        (pyarrow.array(["1"]), IntegerType(), FileProblem.INCOMPATIBLE_COLUMN),
        (pyarrow.array([1], pyarrow.timestamp("us")), TimestamptzType(), FileProblem.INCOMPATIBLE_COLUMN),
        (pyarrow.array([1], pyarrow.timestamp("us", "UTC")), TimestampType(), FileProblem.INCOMPATIBLE_COLUMN),
        (pyarrow.array([b"1"]), StringType(), FileProblem.INCOMPATIBLE_COLUMN),
    ],
)
def test_a_column_that_does_not_fit_is_refused(
    array: pyarrow.Array, kind: IcebergType, problem: FileProblem, tmp_path: Path
) -> None:
    assert problem_of(write(tmp_path / "f", {"a": array}), {"a": kind}) is problem


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", FileProblem.EMPTY),
        (b"x", FileProblem.FOREIGN),
        (b"PAR1 something PAR1", FileProblem.FOREIGN),
        (b"ORC and then it was cut off", FileProblem.DAMAGED),
        (b"ORC" + b"\x08\xff\xff\x03ORC\x07", FileProblem.DAMAGED),
        (b"ORC" + b"\x99" * 20 + b"\x08\x14ORC\x05", FileProblem.DAMAGED),
    ],
)
def test_what_is_no_orc_file_is_named(content: bytes, problem: FileProblem, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(content)
    assert problem_of(tmp_path / "f", {"a": LongType()}) is problem


def test_types_that_are_part_of_several_others_are_damage(tmp_path: Path) -> None:
    """Each of 60 structs has the next type twice, which are 2 ** 60 columns."""
    structs = b"".join(b"\x22\x0c\x08\x0c\x12\x02%c%c\x1a\x01a\x1a\x01b" % (part, part) for part in range(1, 61))
    footer = b"\x08\x03\x10\x03" + structs + b"\x22\x02\x08\x04\x30\x00"
    tail = b"\x08" + bytes([len(footer) & 0x7F | 0x80, len(footer) >> 7]) + b"\x10\x00\x82\xf4\x03\x03ORC"
    (tmp_path / "f").write_bytes(b"ORC" + footer + tail + bytes([len(tail)]))
    with pytest.raises(UnusableFileError, match="one of its types is part of two others"):
        read(tmp_path / "f", {"a": LongType()})


def test_no_byte_of_a_footer_makes_impossible_counts(tmp_path: Path) -> None:
    columns = {"a": pyarrow.array([1, None]), "b": pyarrow.array(["x", "y"])}
    path = write(tmp_path / "f", columns, compression="uncompressed")
    content = path.read_bytes()
    for position in range(len(b"ORC"), len(content)):
        others = (0, 1, 0x7F, 0x80, content[position] ^ 1, content[position] ^ 8)
        path.write_bytes(content[:position] + bytes([others[position % len(others)]]) + content[position + 1 :])
        with suppress(UnusableFileError):
            require_possible(read(path, {"a": LongType(), "b": StringType()}))
