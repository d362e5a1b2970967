"""Verification of the metadata of migrated tables: metrics, bounds and manifests."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet
import pytest
from pyiceberg.manifest import PartitionFieldSummary

from catalog import Catalog, NewPartition
from catalog.errors import VerificationFailedError
from tests.spark_jobs.test_verify_migration import NAME, change_id, metadata_over_copies
from tests.spark_jobs.test_verify_migration import orders as orders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog.iceberg.footers.facts import FileFacts
    from catalog.iceberg.manifests import WrittenManifest
    from tests.support.migrating import Migrator


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (change_id(lower_bounds={1: struct.pack("<q", 21)}), "column id: lower bound 21 for 20 in the rows of"),
        (change_id(upper_bounds={1: struct.pack("<q", 21)}), "column id: upper bound 21 for 22 in the rows of"),
        (change_id(upper_bounds={3: b"aa"}), "column code: upper bound aa for ab in the rows of"),
        # As in Hive's ORC files with a char(n).
        (change_id(lower_bounds={3: b"ab  "}), "column code: lower bound ab   for ab in the rows of"),
        (change_id(null_counts={1: 3}), "column id: null count 3 for 0 in the rows of"),
        (change_id(value_counts={3: 4}), "column code: value count 4 for 3 in the rows of"),
        (lambda facts: replace(facts, row_count=4), ": record count 4 for 3 in the rows of"),
    ],
)
def test_wrong_metrics_of_any_file_are_named_by_column_and_file(
    migrator: Migrator,
    orders: Path,
    iceberg_spark: SparkSession,
    change: Callable[[FileFacts], FileFacts],
    problem: str,
) -> None:
    """A scan finds all rows; a filter skips the file. It has neither the least id of the table nor the greatest."""
    operation_id = migrator.begin(NAME)
    migrator.stage(operation_id)
    metadata_over_copies(migrator, operation_id, orders, orders, change, of="day=2")
    with pytest.raises(VerificationFailedError) as caught:
        migrator.verify(operation_id)
    message = str(caught.value)
    assert "do not match the rows in 1 file(s): " in message
    assert re.search(re.escape(problem) + r" \S+/kind=a/day=2/x\.parquet\. Nothing was changed", message)


@pytest.mark.long
def test_wrong_metrics_of_floating_and_nested_columns(
    migrator: Migrator, catalog: Catalog, iceberg_spark: SparkSession
) -> None:
    catalog.create_database("shop")
    columns = [("x", "double"), ("s", "struct<a:int,`b.c`:string>"), ("l", "array<int>"), ("n", "int"), ("b", "binary")]
    table = catalog.create_table(NAME, columns=columns, partition_keys=[])
    rows = pyarrow.table(
        {
            "x": pyarrow.array([float("nan"), None, -0.0, 2.5]),
            "s": pyarrow.array(
                [{"a": 1, "b.c": "x"}, None, {"a": None, "b.c": "y"}, {"a": 3, "b.c": None}],
                pyarrow.struct([("a", pyarrow.int32()), ("b.c", pyarrow.string())]),
            ),
            "l": pyarrow.array([[1], [], None, [2, None]], pyarrow.list_(pyarrow.int32())),
            "n": pyarrow.array([0, 0, 0, 0], pyarrow.int32()),
            "b": pyarrow.array([b"\xff" * 20, None, b"", b"\x00"]),
        }
    )
    location = Path(table.location)
    location.mkdir(parents=True)
    pyarrow.parquet.write_table(rows, location / "x.parquet")
    operation_id = migrator.begin(NAME)
    migrator.stage(operation_id)
    assert migrator.verify(operation_id)["rows"] == 4
    no_nans: dict[str, Any] = {
        "nan_counts": {},
        "lower_bounds": {1: struct.pack("<d", -1)},
        "upper_bounds": {1: struct.pack("<d", 3)},
    }
    changes: list[tuple[Callable[[FileFacts], FileFacts], tuple[str, ...]]] = [
        (
            change_id(nan_counts={1: 0}, upper_bounds={6: struct.pack("<i", 2)}, null_counts={6: 0}),
            ("x: NaN count 0 for 1", "s.a: upper bound 2 for 3", "s.a: null count 0 for 2"),
        ),
        (lambda facts: replace(facts, **no_nans), ("x: NaN count none for 1",)),
        (_without_null_counts, ("s.a: null count none for 2", "s.b.c: null count none for 2")),
        (_swap_columns, ("s.a: upper bound 0 for 3", "n: lower bound 1 for 0", "n: null count 2 for 0")),
    ]
    for change, problems in changes:
        metadata_over_copies(migrator, operation_id, location, location, change)
        with pytest.raises(VerificationFailedError) as caught:
            migrator.verify(operation_id)
        message = str(caught.value)
        for problem in problems:
            assert f"column {problem} in the rows of " in message


def _without_null_counts(facts: FileFacts) -> FileFacts:
    """Return facts with bounds by which a metadata delete would remove nulls."""
    return replace(facts, null_counts={})


def _swap_columns(facts: FileFacts) -> FileFacts:
    """Return facts with those of `s.a` and `n` exchanged."""
    ids = {6: 4, 4: 6}
    swapped: dict[str, Any] = {
        name: {ids.get(field_id, field_id): value for field_id, value in getattr(facts, name).items()}
        for name in ("value_counts", "null_counts", "lower_bounds", "upper_bounds")
    }
    return replace(facts, **swapped)


def _summary(position: int, **change: Any) -> Callable[[WrittenManifest], WrittenManifest]:
    """Return a function that replaces facts of one partition key in a manifest list."""

    def changed(manifest: WrittenManifest) -> WrittenManifest:
        before = manifest.partitions[position]
        names = ("contains_null", "contains_nan", "lower_bound", "upper_bound")
        known = {name: getattr(before, name) for name in names} | change
        summary = PartitionFieldSummary.from_args(**known)
        return replace(
            manifest, partitions=(*manifest.partitions[:position], summary, *manifest.partitions[position + 1 :])
        )

    return changed


@pytest.mark.long
@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        (_summary(1, lower_bound=struct.pack("<i", 2)), r"column day: lower bound in the manifest list 2 for 1"),
        (_summary(1, upper_bound=struct.pack("<i", 2)), r"column day: upper bound in the manifest list 2 for 3"),
        (_summary(0, contains_null=False), r"column kind: contains null in the manifest list False for null"),
        (_summary(0, upper_bound=None), r"column kind: upper bound in the manifest list None for a"),
        (lambda manifest: replace(manifest, file_count=5), r"because .*: file count in the manifest list 5 for 4"),
        (lambda manifest: replace(manifest, row_count=9), r"because .*: row count in the manifest list 9 for 12"),
    ],
)
def test_a_wrong_manifest_list_is_named_by_key_and_file(
    migrator: Migrator,
    orders: Path,
    iceberg_spark: SparkSession,
    listed: Callable[[WrittenManifest], WrittenManifest],
    problem: str,
) -> None:
    operation_id = migrator.begin(NAME)
    migrator.stage(operation_id)
    metadata_over_copies(migrator, operation_id, orders, orders, listed=listed)
    with pytest.raises(VerificationFailedError, match=rf"{problem} in the rows of \S+(parquet|avro)[.;]"):
        migrator.verify(operation_id)


@pytest.mark.long
def test_rows_that_a_footer_hides_from_filters_are_named_by_column_and_file(
    migrator: Migrator, orders: Path, iceberg_spark: SparkSession
) -> None:
    """The statistics of one row group are wrong, and those of the file, which manifests have, are right."""
    path = orders / "kind=a" / "day=2" / "x.parquet"
    rows = {"id": pyarrow.array([100, 101, 102, 1, 500]), "code": pyarrow.array(["aa", "aa", "ac", "ab", "ab"])}
    pyarrow.parquet.write_table(pyarrow.table(rows), path, row_group_size=3)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    wrong = content[footer:].replace(struct.pack("<q", 100), struct.pack("<q", 102))
    path.write_bytes(content[:footer] + wrong)
    operation_id = migrator.begin(NAME)
    migrator.stage(operation_id)
    with pytest.raises(VerificationFailedError) as caught:
        migrator.verify(operation_id)
    assert re.search(
        r"column id: a filter finds 0 of 1 row\(s\) of file:\S+/kind=a/day=2/x\.parquet[.;]", str(caught.value)
    )


@pytest.mark.long
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_questions_are_answered_for_every_type_of_column(
    migrator: Migrator, catalog: Catalog, iceberg_spark: SparkSession, file_format: str
) -> None:
    """Values that only Spark supports, and equal values with different bits."""
    # Iceberg's reader of ORC counts days before 1582 in another calendar.
    first_date = "date'1600-01-01'" if file_format == "orc" else "date'-0300-01-01'"
    types = {
        "x": ("double", "double('nan')", "double('-0.0')", "double('-infinity')", "1.5D", "null"),
        "y": ("float", "float('nan')", "0F", "float('-0.0')", "3.25F", "float('nan')"),
        "d": ("date", first_date, "date'9999-12-31'", "date'1970-01-01'", "null", "date'2024-02-29'"),
        "t": ("timestamp", "timestamp'1900-01-01 00:00:00.000001'", "null", "now()", "now()", "timestamp'2300-01-01'"),
        "n": ("decimal(30,4)", "12345678901234567890.1234", "-1BD", "null", "0BD", "7BD"),
        "b": ("binary", "x'ff00'", "x''", "null", "x'00'", "x'61'"),
        "s": ("string", "''", "'\u00e9\ufffd\U0001f600'", "null", "'a'", "'NaN'"),
        "f": ("boolean", "true", "false", "null", "true", "false"),
        "r": ("struct<a:int,z:string>", "struct(1,'x')", "struct(null,'y')", "null", "struct(3,null)", "struct(2,'')"),
        "l": ("array<int>", "array(1,null)", "array(null,1)", "array()", "null", "array(2)"),
        "m": ("map<string,array<int>>", "map('a',array(1))", "map()", "null", "map('b',array())", "map('b',null)"),
    }
    columns = {name: values[0] for name, values in types.items()}
    selects = (
        ", ".join(f"CAST({values[row]} AS {values[0]}) AS {name}" for name, values in types.items())
        for row in range(1, 6)
    )
    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=list(columns.items()), partition_keys=[], format=file_format)
    rows = iceberg_spark.sql(" UNION ALL ".join(f"SELECT {select}" for select in selects))
    rows.coalesce(1).write.format(file_format).option("compression", "none").mode("append").save(table.location)
    Path(table.location, "_SUCCESS").unlink()
    operation_id = migrator.begin(NAME)
    migrator.stage(operation_id)
    assert migrator.verify(operation_id)["rows"] == 5


@pytest.mark.parametrize("keys", [[], [("k", "double")]])
def test_tables_of_arrays_and_maps_and_keys_of_any_sign_are_verified(
    migrator: Migrator, catalog: Catalog, iceberg_spark: SparkSession, keys: list[tuple[str, str]]
) -> None:
    """Without keys, filters have no key columns; and -0.0 and 0.0 are equal, but have different strings."""
    catalog.create_database("shop")
    columns = [("l", "array<string>"), ("m", "map<char(4),int>")]
    table = catalog.create_table(NAME, columns=columns, partition_keys=keys)
    codes = pyarrow.array([[("a", 1), ("a   ", 2)], [("a", 2), ("a   ", 1)], None], pyarrow.map_("string", "int32"))
    rows = pyarrow.table({"l": pyarrow.array([["x"], [], None]), "m": codes})
    values = ("-0.0", "NaN", "1.5") if keys else ()
    for folder in [f"k={value}" for value in values] or ["."]:
        (Path(table.location) / folder).mkdir(parents=True)
        pyarrow.parquet.write_table(rows, Path(table.location) / folder / "x.parquet")
    if keys:
        catalog.add_partitions(NAME, [NewPartition((value,)) for value in values])
    operation_id = migrator.begin(NAME)
    migrator.stage(operation_id)
    assert migrator.verify(operation_id)["rows"] == 3 * (len(values) or 1)


@pytest.mark.long
def test_long_texts_and_those_that_are_no_utf_8_are_verified(
    migrator: Migrator, catalog: Catalog, iceberg_spark: SparkSession
) -> None:
    from pyspark.sql import functions as f

    from spark_jobs.checking.file_metrics import leaves_of
    from spark_jobs.checking.filtered_questions import _sample

    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=[("s", "string"), ("b", "binary"), ("n", "int")], partition_keys=[])
    path = Path(table.location, "x.parquet")
    path.parent.mkdir(parents=True)
    values = [b"\xff\xe4", b"a", b"\xc3\xa9" * 500_000, b"\xc3\xa9" * 500_000 + b"\xff", b"z" * 64, b"z" * 65, None]
    texts = pyarrow.array(values, pyarrow.binary())
    columns = [pyarrow.Array.from_buffers(pyarrow.string(), len(values), texts.buffers()), texts]
    rows = pyarrow.table([*columns, pyarrow.array(range(len(values)), pyarrow.int32())], ["s", "b", "n"])
    pyarrow.parquet.write_table(rows, path)
    operation_id = migrator.begin(NAME)
    migrator.stage(operation_id)
    assert migrator.verify(operation_id)["rows"] == len(values)
    read = iceberg_spark.read.parquet(str(path))
    sample = _sample([read], leaves_of(read.schema, read.columns))
    assert (sample.num_rows, sample.nbytes < 10_000) == (len(values), True)
    assert read.where(f.length("s") > 400_000).count() == 2


def test_rows_of_one_file_are_measured_as_one() -> None:
    """With any number of batches and any length of strings."""
    from pyiceberg.types import LongType, StringType

    from spark_jobs.checking.file_metrics import _Field, _measured

    def batch(file: str, *numbers: int | None) -> pyarrow.RecordBatch:
        texts = pyarrow.array([None if number is None else str(number) for number in numbers], pyarrow.string())
        values = pyarrow.array(numbers, pyarrow.int64()), texts.cast(pyarrow.binary())
        columns = [
            pyarrow.array([file] * len(numbers), pyarrow.string()),
            pyarrow.array([1] * len(numbers), pyarrow.int64()),
            *values,
        ]
        return pyarrow.record_batch(columns, ["calve/file", "calve/sum", "c0", "c1"])

    def together(*parts: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        return pyarrow.Table.from_batches(parts).combine_chunks().to_batches()[0]

    batches = [*(batch("a", n, None) for n in range(50)), together(batch("a", 7), batch("b", 1)), batch("b", 2)]
    batches += [batch("c"), together(batch("c", None), batch("d", 5), batch("e", 6))]
    fields = [_Field("n", 1, LongType()), _Field("t", 2, StringType())]
    found = [row for part in _measured(fields, 0, 1, batches) for row in part.to_pylist()]
    assert [(row["calve/file"], row["calve/rows"], row["calve/sum"]) for row in found] == [
        *(("a", 101, 101), ("b", 2, 2), ("c", 1, 1), ("d", 1, 1), ("e", 1, 1))
    ]
    numbers, texts = found[0]["calve/metrics"]
    assert (numbers["nulls"], numbers["low"], numbers["high"]) == (50, struct.pack("<q", 0), struct.pack("<q", 49))
    assert (texts["nulls"], texts["low"], texts["high"]) == (50, b"0", b"9")
    assert found[2]["calve/metrics"][1] == {"nulls": 1, "nans": 0, "low": None, "high": None}


@pytest.mark.long
def test_bounds_longer_than_what_is_compared(migrator: Migrator, catalog: Catalog, iceberg_spark: SparkSession) -> None:
    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=[("s", "string")], partition_keys=[])
    location = Path(table.location)
    location.mkdir(parents=True)
    texts = ["m" * 1000, "m" * 1000 + "n"]
    pyarrow.parquet.write_table(pyarrow.table({"s": texts}), location / "x.parquet")
    operation_id = migrator.begin(NAME)
    migrator.stage(operation_id)
    for lower, upper, problem in (
        (b"m" * 1000, b"m" * 1000 + b"n", None),
        (b"m" * 255, b"m" * 254 + b"n", None),
        (b"m" * 200 + b"n", b"n", "lower bound"),
        (b"m", b"m" * 255, "upper bound"),
    ):
        changed = change_id(lower_bounds={1: lower}, upper_bounds={1: upper})
        metadata_over_copies(migrator, operation_id, location, location, changed)
        if problem is None:
            assert migrator.verify(operation_id)["rows"] == 2
        else:
            with pytest.raises(VerificationFailedError, match=f"column s: {problem} m+n? for mmm"):
                migrator.verify(operation_id)
