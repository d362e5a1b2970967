"""Dates and timestamps that Hive's and Spark's readers convert from an older calendar, and Iceberg's do not."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow
import pyarrow.orc
import pyarrow.parquet
import pytest
from pyiceberg.types import DateType, IcebergType, ListType, StringType, StructType, TimestamptzType
from pyiceberg.types import NestedField as Field

from catalog.errors import FileProblem, UnusableFileError
from catalog.iceberg.footers.facts import FooterReader
from catalog.iceberg.footers.orc_messages import parse_tail
from catalog.iceberg.footers.thrift import read_varint
from catalog.model import FileFormat
from tests.support.iceberg_files import file_info, layout

UTC = datetime.UTC
BEFORE, FIRST = datetime.date(1582, 10, 14), datetime.date(1582, 10, 15)
SPARK, LEGACY, LEGACY_96, ZONE, HIVE = (
    "org.apache.spark.version",
    "org.apache.spark.legacyDateTime",
    "org.apache.spark.legacyINT96",
    "org.apache.spark.timeZone",
    "writer.date.proleptic",
)
JAVA = b"parquet-mr version 1.10.1"


def undated(path: Path, file_format: FileFormat, kind: IcebergType) -> tuple[str, ...]:
    return FooterReader(layout({"id": StringType(), "c": kind}), file_format).read(file_info(path)).undated


def refusal(path: Path, file_format: FileFormat, kind: IcebergType) -> str:
    with pytest.raises(UnusableFileError) as caught:
        undated(path, file_format, kind)
    assert caught.value.problem is FileProblem.OLD_CALENDAR
    assert caught.value.path == str(path)
    return str(caught.value)


def noon(day: datetime.date) -> datetime.datetime:
    return datetime.datetime(day.year, day.month, day.day, 12, tzinfo=UTC)


def parquet(
    path: Path,
    values: list[Any],
    kind: pyarrow.DataType,
    metadata: dict[str, str],
    *,
    java: bool = True,
    **options: Any,
) -> Path:
    """Write a file with the metadata of the Java library: its name and additional keys."""
    table = pyarrow.table({"c": pyarrow.array(values, kind)})
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), path, **options)
    if java:
        content = path.read_bytes()
        begin = content.rindex(b"parquet-cpp-arrow version")
        name = content[begin : begin + content[begin - 1]]
        assert len(name) >= len(JAVA)
        path.write_bytes(content.replace(name, JAVA.ljust(len(name))))
        assert pyarrow.parquet.read_metadata(path).created_by.startswith(JAVA.decode())
    return path


DATE, MOMENT = pyarrow.date32(), pyarrow.timestamp("us", "UTC")


@pytest.mark.parametrize("group", [1, 10])
@pytest.mark.parametrize(
    "metadata",
    [{}, {SPARK: "2.4.8"}, {SPARK: "4.1.3", LEGACY: ""}, {HIVE: "false"}],
    ids=["none", "2", "legacy", "hive"],
)
def test_old_dates_of_parquet_files_are_refused(metadata: dict[str, str], group: int, tmp_path: Path) -> None:
    options = {"row_group_size": group}
    recent = parquet(tmp_path / "recent", [FIRST, None, FIRST], DATE, metadata, **options)
    assert not undated(recent, FileFormat.PARQUET, DateType())
    old = parquet(tmp_path / "old", [FIRST, None, BEFORE], DATE, metadata, **options)
    assert "column 'c' has dates before 1582-10-15" in refusal(old, FileFormat.PARQUET, DateType())


@pytest.mark.parametrize(
    "metadata", [{SPARK: "3.0.0"}, {SPARK: "4.1.3", LEGACY_96: ""}, {HIVE: "true"}, {"iceberg.schema": "{}"}]
)
def test_old_dates_of_the_proleptic_calendar_are_not_refused(metadata: dict[str, str], tmp_path: Path) -> None:
    assert not undated(parquet(tmp_path / "f", [BEFORE], DATE, metadata), FileFormat.PARQUET, DateType())
    assert not undated(parquet(tmp_path / "g", [BEFORE], DATE, {}, java=False), FileFormat.PARQUET, DateType())


def test_old_dates_inside_of_others_are_refused(tmp_path: Path) -> None:
    inside = pyarrow.list_(pyarrow.struct([("d", DATE)]))
    path = parquet(tmp_path / "f", [[], [{"d": FIRST}, {"d": BEFORE}]], inside, {SPARK: "2.4.8"})
    kind = ListType(10, StructType(Field(11, "d", DateType(), required=False)), False)
    assert "column 'c.element.d' has dates" in refusal(path, FileFormat.PARQUET, kind)


@pytest.mark.parametrize(
    ("zone", "first"), [("UTC", "1582-10-15"), ("Europe/Berlin", "1900-01-01"), (None, "1900-01-01")]
)
def test_old_timestamps_of_parquet_files_are_refused(zone: str | None, first: str, tmp_path: Path) -> None:
    """In zones with another offset from UTC before 1900 than Java's old rules have, timestamps are converted, too."""
    metadata = {SPARK: "3.2.1", LEGACY: ""} | ({ZONE: zone} if zone else {})
    day = datetime.date.fromisoformat(first)
    recent = parquet(tmp_path / "recent", [noon(day)], MOMENT, metadata)
    assert not undated(recent, FileFormat.PARQUET, TimestamptzType())
    old = parquet(tmp_path / "old", [noon(day - datetime.timedelta(1))], MOMENT, metadata)
    assert f"column 'c' has timestamps before {first}" in refusal(old, FileFormat.PARQUET, TimestamptzType())
    # Hive and Spark do not convert values of other files.
    assert not undated(parquet(tmp_path / "f", [noon(BEFORE)], MOMENT, {}), FileFormat.PARQUET, TimestamptzType())


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [({SPARK: "3.0.3"}, ("c",)), ({SPARK: "4.1.3", LEGACY_96: ""}, ("c",)), ({SPARK: "3.1.0"}, ()), ({}, ())],
)
def test_timestamps_of_96_bits_that_may_be_old_are_left_to_the_comparison(
    metadata: dict[str, str], expected: tuple[str, ...], tmp_path: Path
) -> None:
    path = parquet(tmp_path / "f", [noon(BEFORE)], MOMENT, metadata, use_deprecated_int96_timestamps=True)
    assert undated(path, FileFormat.PARQUET, TimestamptzType()) == expected
    nothing = parquet(tmp_path / "g", [None], MOMENT, metadata, use_deprecated_int96_timestamps=True)
    assert undated(nothing, FileFormat.PARQUET, TimestamptzType()) == expected


def test_dates_without_statistics_are_left_to_the_comparison_if_that_can_tell(tmp_path: Path) -> None:
    by_spark = parquet(tmp_path / "f", [BEFORE], DATE, {SPARK: "2.4.8"}, write_statistics=False)
    assert undated(by_spark, FileFormat.PARQUET, DateType()) == ("c",)
    by_hive = parquet(tmp_path / "g", [BEFORE], DATE, {}, write_statistics=False)
    assert "'c' may have dates" in refusal(by_hive, FileFormat.PARQUET, DateType())


def orc(path: Path, values: list[Any], kind: pyarrow.DataType, calendar: int | None) -> Path:
    """Write a file whose footer declares a calendar."""
    pyarrow.orc.write_table(pyarrow.table({"c": pyarrow.array(values, kind)}), path, compression="uncompressed")
    if calendar is not None:
        content = path.read_bytes()
        # The footer, with one more field; and the postscript, whose first field is the footer's length, in two bytes.
        script = len(content) - 1 - content[-1]
        assert content[script] == 0x08
        length, rest = read_varint(content, script + 1)
        added = length + 2
        lengths = bytes((0x08, added)) if added < 0x80 else bytes((0x08, added & 0x7F | 0x80, added >> 7))
        changed_script = lengths + content[rest:-1]
        path.write_bytes(content[:script] + bytes((0x58, calendar)) + changed_script + bytes((len(changed_script),)))
        changed = path.read_bytes()
        assert parse_tail(changed, len(changed)).footer.SerializeToString().endswith(bytes((0x58, calendar)))
    return path


@pytest.mark.parametrize("calendar", [None, 1, 2])
def test_old_dates_and_timestamps_of_orc_files_are_refused(calendar: int | None, tmp_path: Path) -> None:
    """Iceberg's reader for Spark gets those of the proleptic calendar converted to the older one."""
    for kind, type_, name, value in (
        (DATE, DateType(), "dates", lambda day: day),
        (MOMENT, TimestamptzType(), "timestamps", noon),
    ):
        recent = orc(tmp_path / "recent", [value(FIRST), None], kind, calendar)
        assert not undated(recent, FileFormat.ORC, type_)
        assert not undated(orc(tmp_path / "nothing", [None], kind, calendar), FileFormat.ORC, type_)
        old = orc(tmp_path / "old", [value(BEFORE), value(FIRST)], kind, calendar)
        assert f"column 'c' has {name} before 1582-10-15" in refusal(old, FileFormat.ORC, type_)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [({}, ()), ({SPARK: "3.5.0"}, ()), ({SPARK: "3.5.0", LEGACY: ""}, ("c",)), ({SPARK: "2.4.8"}, ("c",))],
)
def test_dates_of_avro_files_are_left_to_the_comparison(
    metadata: dict[str, str], expected: tuple[str, ...], tmp_path: Path
) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "c", "type": {"type": "int", "logicalType": "date"}}]}
    with (tmp_path / "f").open("wb") as file:
        fastavro.writer(file, schema, [{"c": FIRST}], metadata=metadata)
    assert undated(tmp_path / "f", FileFormat.AVRO, DateType()) == expected
