from __future__ import annotations

import json
import re
import shutil
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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catalog.iceberg.footers.facts import FileFacts
    from catalog.iceberg.manifests import WrittenManifest
    from tests.support.migrating import Migrator

NAME = "shop.orders"
COLUMNS = [("id", "bigint"), ("amount", "decimal(9,2)"), ("code", "char(4)")]


@pytest.fixture
def catalog_url(sqlite_url: str) -> str:
    """On one database, because the comparison does not use it."""
    return sqlite_url


def write(path: Path, ids: list[int], **columns: list[str | None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    codes = columns.get("code", ["ab"] * len(ids))
    rows = {"id": pyarrow.array(ids, pyarrow.int64()), "code": pyarrow.array(codes, pyarrow.string())}
    pyarrow.parquet.write_table(pyarrow.table(rows), path)


@pytest.fixture
def orders(catalog: Catalog) -> Path:
    """A table of four partitions with three rows each; its location."""
    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=COLUMNS, partition_keys=[("kind", "char(3)"), ("day", "int")])
    for day in (1, 2, 3):
        write(Path(table.location) / "kind=a" / f"day={day}" / "x.parquet", [day * 10 + n for n in range(3)])
    write(Path(table.location) / "kind=__HIVE_DEFAULT_PARTITION__" / "day=1" / "x.parquet", [1, 2, 3])
    catalog.add_partitions(NAME, [NewPartition(("a", str(day))) for day in (1, 2, 3)] + [NewPartition((None, "1"))])
    return Path(table.location)


@pytest.mark.long
def test_the_same_rows_are_the_same(migrator: Migrator, orders: Path, iceberg_spark: SparkSession) -> None:
    operation_id = migrator.begin(NAME)
    staged = migrator.stage(operation_id)
    report = migrator.verify(operation_id)
    assert report == {
        "metadata_location": staged["metadata_location"],
        "partitions": 4,
        "partitions_total": 4,
        "rows": 12,
        "row_counts": [
            ["kind=__HIVE_DEFAULT_PARTITION__/day=1", 3, 3],
            ["kind=a/day=1", 3, 3],
            ["kind=a/day=2", 3, 3],
            ["kind=a/day=3", 3, 3],
        ],
    }
    sampled = migrator.verify(operation_id, partitions=2)
    assert (sampled["partitions"], sampled["rows"]) == (2, 6)
    assert migrator.catalog.migrations.flip(operation_id)["rows"] == 12


def test_differences_are_named_by_partition_and_column(
    migrator: Migrator, orders: Path, iceberg_spark: SparkSession, tmp_path: Path
) -> None:
    """The files change after the stage step."""
    operation_id = migrator.begin(NAME)
    migrator.stage(operation_id)
    # The Iceberg table reads a copy of the old files.
    _metadata_over_copies(migrator, operation_id, orders, tmp_path / "copies")
    write(orders / "kind=a" / "day=2" / "x.parquet", [20, 21, 23], code=["ab", None, "ab"])
    write(orders / "kind=a" / "day=3" / "y.parquet", [4])
    with pytest.raises(VerificationFailedError) as caught:
        migrator.verify(operation_id)
    message = str(caught.value)
    assert "partition kind=a/day=2: column id: maximum 23 in the Hive table and 22 in the Iceberg table" in message
    assert "column code: nulls 1 in the Hive table and 0 in the Iceberg table" in message
    assert "partition kind=a/day=3: the Hive table has 4 row(s) and the Iceberg table 3" in message
    assert "day=1" not in message
    assert "column amount" not in message


def test_differences_of_a_table_without_keys_are_named_by_column(
    migrator: Migrator, catalog: Catalog, iceberg_spark: SparkSession
) -> None:
    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=COLUMNS, partition_keys=[])
    path = Path(table.location) / "x.parquet"
    write(path, [1, 2, 3])
    operation_id = migrator.begin(NAME)
    migrator.stage(operation_id)
    write(path.with_name("y.parquet"), [4])
    with pytest.raises(VerificationFailedError, match=r"the Hive table has 4 row\(s\) and the Iceberg table 3"):
        migrator.verify(operation_id)


def _change_id(**change: dict[int, Any]) -> Callable[[FileFacts], FileFacts]:
    """Return a function that replaces metrics by field id."""

    def changed(facts: FileFacts) -> FileFacts:
        values: dict[str, Any] = {name: {**getattr(facts, name), **value} for name, value in change.items()}
        return replace(facts, **values)

    return changed


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_change_id(lower_bounds={1: struct.pack("<q", 21)}), "column id: lower bound 21 for 20 in the rows of"),
        (_change_id(upper_bounds={1: struct.pack("<q", 21)}), "column id: upper bound 21 for 22 in the rows of"),
        (_change_id(upper_bounds={3: b"aa"}), "column code: upper bound aa for ab in the rows of"),
        # As in Hive's ORC files with a char(n).
        (_change_id(lower_bounds={3: b"ab  "}), "column code: lower bound ab   for ab in the rows of"),
        (_change_id(null_counts={1: 3}), "column id: null count 3 for 0 in the rows of"),
        (_change_id(value_counts={3: 4}), "column code: value count 4 for 3 in the rows of"),
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
    _metadata_over_copies(migrator, operation_id, orders, orders, change, of="day=2")
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
            _change_id(nan_counts={1: 0}, upper_bounds={6: struct.pack("<i", 2)}, null_counts={6: 0}),
            ("x: NaN count 0 for 1", "s.a: upper bound 2 for 3", "s.a: null count 0 for 2"),
        ),
        (lambda facts: replace(facts, **no_nans), ("x: NaN count none for 1",)),
        (_without_null_counts, ("s.a: null count none for 2", "s.b.c: null count none for 2")),
        (_swap_columns, ("s.a: upper bound 0 for 3", "n: lower bound 1 for 0", "n: null count 2 for 0")),
    ]
    for change, problems in changes:
        _metadata_over_copies(migrator, operation_id, location, location, change)
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


@pytest.mark.first_case
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
    _metadata_over_copies(migrator, operation_id, orders, orders, listed=listed)
    with pytest.raises(VerificationFailedError, match=rf"{problem} in the rows of \S+(parquet|avro)[.;]"):
        migrator.verify(operation_id)


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


@pytest.mark.first_case
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


@pytest.mark.first_case
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
        changed = _change_id(lower_bounds={1: lower}, upper_bounds={1: upper})
        _metadata_over_copies(migrator, operation_id, location, location, changed)
        if problem is None:
            assert migrator.verify(operation_id)["rows"] == 2
        else:
            with pytest.raises(VerificationFailedError, match=f"column s: {problem} m+n? for mmm"):
                migrator.verify(operation_id)


def _metadata_over_copies(
    migrator: Migrator,
    operation_id: str,
    orders: Path,
    copies: Path,
    changed: Callable[[FileFacts], FileFacts] = lambda facts: facts,
    listed: Callable[[WrittenManifest], WrittenManifest] = lambda manifest: manifest,
    of: str = "",
) -> str:
    """Replace the staged metadata by those of copies of the files, with changed facts, or a changed manifest list.

    Args:
        of: A part of the paths of the files to change.

    Returns:
        Their location.
    """
    from catalog.iceberg.folders import Recursion, data_files
    from catalog.iceberg.footers.facts import FooterReader
    from catalog.iceberg.manifests import ManifestWriter
    from catalog.iceberg.metadata import write_table
    from catalog.model import FileFormat

    if copies != orders:
        shutil.copytree(orders, copies, ignore=shutil.ignore_patterns("metadata"))
    migrations = migrator.catalog.migrations
    operation = migrations.get(operation_id)
    layout = migrations.layout(operation)
    reader = FooterReader(layout, FileFormat.PARQUET)
    with ManifestWriter(layout, f"{copies}/_m") as writer:
        for page in migrations.folders(operation):
            for folder in page:
                location = folder.location.replace(str(orders), str(copies))
                files = (file for file in data_files(location, Recursion.TRUE) if "/metadata/" not in file.path)
                for file in files:
                    facts = reader.read(file)
                    facts = changed(facts) if of in file.path else facts
                    writer.add(layout.partition_record(folder.values), folder.format, file, facts)
    _, metadata_location = migrations.staged(operation_id)
    assert metadata_location is not None
    Path(metadata_location).unlink()
    return write_table(
        layout,
        str(orders),
        [listed(manifest) for manifest in writer.manifests],
        {},
        layout.name_mapping(),
        metadata_location=metadata_location,
    )


@pytest.mark.long
def test_nested_files_are_compared_as_they_were_asked_for(
    migrator: Migrator, orders: Path, iceberg_spark: SparkSession
) -> None:
    write(orders / "kind=a" / "day=2" / "sub" / "x.parquet", [9])
    for rule, rows in (("true", 13), ("false", 12)):
        operation_id = migrator.begin(NAME, recursive_directory=rule)
        migrator.stage(operation_id)
        assert migrator.verify(operation_id)["rows"] == rows
        migrator.catalog.operations.fail(operation_id, "TEST", "enough")


def test_nested_files_of_a_table_without_keys(
    migrator: Migrator, catalog: Catalog, iceberg_spark: SparkSession
) -> None:
    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=[("id", "bigint")], partition_keys=[])
    write(Path(table.location) / "x.parquet", [1])
    write(Path(table.location) / "sub" / "deep" / "x.parquet", [2])
    for rule, rows in (("true", 2), ("false", 1)):
        operation_id = migrator.begin(NAME, recursive_directory=rule)
        migrator.stage(operation_id)
        assert migrator.verify(operation_id)["rows"] == rows
        migrator.catalog.operations.fail(operation_id, "TEST", "enough")


def test_many_small_files_are_read_in_one_task(
    migrator: Migrator, catalog: Catalog, iceberg_spark: SparkSession
) -> None:
    """By itself, Iceberg makes more tasks, of at least 16 MiB, in which a file counts as 4 MiB."""
    from spark_jobs.reading.iceberg import read_metadata_file
    from spark_jobs.verify_migration import _READING

    catalog.create_database("shop")
    table = catalog.create_table(NAME, columns=[("id", "bigint")], partition_keys=[])
    for number in range(16):
        write(Path(table.location) / f"{number}.parquet", [number])
    operation_id = migrator.begin(NAME)
    location = migrator.stage(operation_id)["metadata_location"]
    assert read_metadata_file(iceberg_spark, location, options=_READING).rdd.getNumPartitions() == 1
    assert read_metadata_file(iceberg_spark, location).rdd.getNumPartitions() > 1


@pytest.mark.long
def test_a_wide_table_is_measured_where_its_manifests_have_metrics(
    migrator: Migrator, catalog: Catalog, iceberg_spark: SparkSession
) -> None:
    from catalog.iceberg.metadata import read_metadata
    from spark_jobs.checking.file_metrics import FileMetrics
    from spark_jobs.reading.iceberg import read_metadata_file

    catalog.create_database("shop")
    names = [f"c{number}" for number in range(105)]
    table = catalog.create_table(NAME, columns=[(name, "bigint") for name in names], partition_keys=[])
    location = Path(table.location)
    location.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table({name: [5] for name in names}), location / "x.parquet")
    operation_id = migrator.begin(NAME)
    migrator.stage(operation_id)
    for field_id in (3, 104):
        changed = _change_id(lower_bounds={field_id: struct.pack("<q", 6)})
        metadata_location = _metadata_over_copies(migrator, operation_id, location, location, changed)
        with pytest.raises(VerificationFailedError, match=rf"column c{field_id - 1}: lower bound 6 for 5 in the rows"):
            migrator.verify(operation_id)
    files = read_metadata_file(iceberg_spark, metadata_location, "files")
    schema = read_metadata(metadata_location).schema()
    assert FileMetrics(schema, files, is_complete=True)._declared_ids == {*range(1, 101), 104}


def test_without_icebergs_runtime_the_package_is_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrameReader

    from catalog.errors import InvalidConfigurationError
    from spark_jobs.reading.iceberg import read_metadata_file

    def load(self: DataFrameReader, path: str) -> None:
        raise AnalysisException("Failed to find data source: iceberg")

    monkeypatch.setattr(DataFrameReader, "load", load)
    package = re.escape("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
    with pytest.raises(InvalidConfigurationError, match=rf"{package} to `spark\.jars\.packages`"):
        read_metadata_file(spark, "/x/00000-x.metadata.json")


def test_checksums_do_not_depend_on_the_order_of_rows(spark: SparkSession) -> None:
    from spark_jobs.checking.table_digests import compare

    rows = [(1, "a", {"x": 1}, k) for k in range(3)] + [(None, "b", None, 1), (1, "a", {"x": 1}, 1)]
    schema = "a int, b string, m map<string,int>, k int"
    first, second = spark.createDataFrame(rows, schema), spark.createDataFrame(rows[::-1], schema)
    same = compare(first, second.repartition(3), ["a", "b", "m"], ["k"])
    assert (same.difference_count, same.partition_count, same.row_count) == (0, 3, 5)
    # The same values in each column, but in different rows.
    swapped = [(1, "b", {"x": 1}, 0), (2, "a", {"x": 1}, 0)], [(1, "a", {"x": 1}, 0), (2, "b", {"x": 1}, 0)]
    sides = [spark.createDataFrame(rows, schema) for rows in swapped]
    other = compare(sides[0], sides[1], ["a", "b", "m"], ["k"])
    assert other.difference_count == 1
    ((said,),) = (list(each.describe(["a", "b", "m"], ("x", "y"))) for each in other.differences)
    assert said == "the columns have the same values, but not in the same rows"


def test_all_partitions_are_compared_and_the_first_are_reported(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.checking import table_digests

    monkeypatch.setattr(table_digests, "COUNTED", 2)
    schema = "a int, k int"
    first = spark.createDataFrame([(number, number % 4) for number in range(9)], schema)
    second = spark.createDataFrame([(number, number % 4) for number in range(8)], schema)
    found = table_digests.compare(first, second, ["a"], ["k"])
    assert (found.partition_count, found.row_count, found.difference_count) == (4, 9, 1)
    assert found.row_counts == ((("0",), 3, 2), (("1",), 2, 2))


def test_requests_survive_the_way_to_the_job() -> None:
    from catalog.operations.job_requests import StageMigrationJob, VerifyMigrationJob

    stage = StageMigrationJob(operation_id="x", step="stage", attempt=1, table=NAME, dry_run=True, threads=4)
    verify = VerifyMigrationJob(operation_id="x", step="verify", attempt=1, table=NAME, partitions=7)
    assert StageMigrationJob.from_json(stage.to_json()) == stage
    assert VerifyMigrationJob.from_json(verify.to_json()) == verify
    assert json.loads(verify.to_json())["partitions"] == 7
