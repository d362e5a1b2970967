"""Columns that are renamed, added, dropped, reordered and widened: all readers use their ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog import Catalog, NewPartition
from catalog.errors import VerificationFailedError
from catalog.model import Column
from catalog.operations.job_requests import RewritePartitionsJob, VerifyRewriteJob
from catalog.rebalancing.changes import SplitPartition
from catalog.tables.schemes import scheme_from_properties
from spark_jobs import verify_rewrite as verifying
from spark_jobs.queries.query import query
from spark_jobs.reading.iceberg import read_metadata_file
from spark_jobs.reading.tables import read_table
from spark_jobs.rebalance import rebalance
from spark_jobs.rewrite_partitions import rewrite_partitions
from spark_jobs.sessions.session import configure
from spark_jobs.verify_rewrite import verify_rewrite
from spark_jobs.writing.scheme_loading import load_rows
from spark_jobs.writing.value_loading import append_rows
from tests.support.migrating import Migrator

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.usefixtures("names_of_earlier_versions"),
]

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
"""For tests that do not depend on the database."""

TABLE, RUN = "demo.notes", "rebalance/run"
RANGE = {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20"}


@pytest.fixture
def session(spark: Any) -> Any:
    return configure(spark)


@pytest.fixture
def scheme_table(catalog: Catalog) -> Catalog:
    """The table `demo.notes` with the columns n, note and k, partitioned by ranges of k."""
    catalog.create_database("demo")
    scheme = scheme_from_properties(Column("k", "int"), RANGE)
    catalog.create_table(TABLE, columns=[("n", "int"), ("note", "string"), ("k", "int")], scheme=scheme)
    return catalog


@pytest.fixture
def value_table(catalog: Catalog) -> Callable[[str], None]:
    """A function that makes the table with the columns n and note, and the partition key k."""

    def make(file_format: str) -> None:
        catalog.create_database("demo")
        columns = [("n", "int"), ("note", "string")]
        catalog.create_table(TABLE, columns=columns, partition_keys=[("k", "int")], format=file_format)

    return make


def rows(spark: Any, catalog: Catalog) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in read_table(spark, TABLE, catalog=catalog).collect())


def add(spark: Any, catalog: Catalog, operation: str, schema: str, *given: Sequence[Any]) -> None:
    frame = spark.createDataFrame(list(given), schema)
    loading = append_rows if catalog.get_table(TABLE).scheme is None else load_rows
    loading(spark, catalog, operation, TABLE, frame)


def rename(catalog: Catalog, old: str, new: str) -> None:
    (column,) = (column for column in catalog.get_table(TABLE).columns if column.name == old)
    catalog.alter_table(TABLE, change_columns={old: Column(new, column.type)})


def change(spark: Any, catalog: Catalog) -> None:
    """Rename note, add another note, widen n, drop and add a column, with rows between all of this."""
    add(spark, catalog, "1", "n int, note string, k int", (1, "old", 5), (2, None, 5))
    rename(catalog, "note", "remark")
    add(spark, catalog, "2", "n int, remark string, k int", (3, "renamed", 5))
    catalog.alter_table(TABLE, add_columns=[("note", "string"), ("gone", "int")])
    add(spark, catalog, "3", "n int, remark string, note string, gone int, k int", (4, "both", "new", 7, 15))
    catalog.alter_table(TABLE, drop_columns=["gone"], change_columns={"n": ("n", "bigint")})
    catalog.alter_table(TABLE, add_columns=[("gone", "int")])
    add(spark, catalog, "4", "n bigint, remark string, note string, gone int, k int", (5 << 40, "last", None, 9, 5))
    order = ["gone", "remark", "n", "note"] + (["k"] if catalog.get_table(TABLE).scheme is not None else [])
    catalog.alter_table(TABLE, column_order=order)


CHANGED = sorted(
    [
        (None, "old", 1, None, 5),
        (None, None, 2, None, 5),
        (None, "renamed", 3, None, 5),
        (None, "both", 4, "new", 15),
        (9, "last", 5 << 40, None, 5),
    ],
    key=lambda row: row[2],
)
"""The rows after `change`: gone, remark, n, note, k."""


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("is_scheme", [False, True])
@pytest.mark.parametrize(
    ("digits", "wider", "bound"), [(5, 20, "21474836.48"), (12, 38, "92233720368547758.08")], ids=["int32", "int64"]
)
def test_filters_on_a_widened_decimal_find_the_rows_of_older_files(
    spark: Any, catalog: Catalog, is_scheme: bool, digits: int, wider: int, bound: str
) -> None:
    catalog.create_database("demo")
    scheme = scheme_from_properties(Column("k", "int"), RANGE) if is_scheme else None
    columns = [("v", f"decimal({digits},2)")]
    keys: dict[str, Any] = {"columns": [*columns, ("k", "int")], "scheme": scheme}
    catalog.create_table(TABLE, **(keys if is_scheme else {"columns": columns, "partition_keys": [("k", "int")]}))
    add(spark, catalog, "1", f"v decimal({digits},2), k int", (Decimal("1.50"), 5), (Decimal("-1.50"), 5))
    catalog.alter_table(TABLE, change_columns={"v": Column("v", f"decimal({wider},2)")})
    spark.conf.unset("spark.sql.parquet.filterPushdown.decimal")
    frame = read_table(spark, TABLE, catalog=catalog)
    counts = [frame.where(f"v {operator} {bound}").count() for operator in ("<", "<=", "<>", ">", "=")]
    assert counts == [2, 2, 2, 0, 0]
    assert frame.where(f"v > -{bound}").count() == 2


@pytest.mark.long
@on_sqlite
def test_rows_of_csv_keep_blanks_and_microseconds(session: Any, catalog: Catalog) -> None:
    catalog.create_database("demo")
    columns = [("s", "string"), ("t", "timestamp")]
    catalog.create_table(TABLE, columns=columns, partition_keys=[("k", "int")], format="csv")
    times = [datetime(2024, 1, 1, 0, 0, 0, 123456), datetime(2024, 1, 1)]
    given = [(text, time, 1) for text in ("b ", " b", "a, b", " ") for time in times]
    add(session, catalog, "1", "s string, t timestamp, k int", *given)
    assert rows(session, catalog) == sorted(given)


def by_number(found: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(found, key=lambda row: row[2])


def all_rows(spark: Any, catalog: Catalog) -> list[tuple[Any, ...]]:
    return by_number([tuple(row) for row in read_table(spark, TABLE, catalog=catalog).collect()])


@pytest.mark.long
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro", "csv"])
@on_sqlite
def test_a_table_of_values_is_read_by_ids(
    value_table: Callable[[str], None],
    catalog: Catalog,
    session: Any,
    file_format: str,
    request: pytest.FixtureRequest,
) -> None:
    if file_format == "avro":
        request.getfixturevalue("avro_package")
    value_table(file_format)
    change(session, catalog)
    assert all_rows(session, catalog) == CHANGED
    answer = query(session, f"SELECT gone, remark, n, note, k FROM {TABLE} WHERE remark <> 'x'", catalog=catalog)
    assert by_number([tuple(row) for row in answer.collect()]) == [row for row in CHANGED if row[1] is not None]


def test_a_table_with_a_scheme_is_read_by_ids_before_and_after_a_split(scheme_table: Catalog, session: Any) -> None:
    change(session, scheme_table)
    assert all_rows(session, scheme_table) == CHANGED
    rebalance(session, scheme_table, RUN, TABLE, SplitPartition(1, ("4", "10")))
    assert all_rows(session, scheme_table) == CHANGED
    found = read_table(session, TABLE, "remark = 'old' and k = 5", catalog=scheme_table).collect()
    assert [row.remark for row in found] == ["old"]


@pytest.mark.parametrize("has_scheme", [True, False])
@on_sqlite
def test_a_table_with_nested_columns_keeps_to_the_names_of_their_time(
    catalog: Catalog, session: Any, has_scheme: bool
) -> None:
    """Their files have no field ids, and are read by the names that belong to the ids."""
    catalog.create_database("demo")
    columns = [
        ("n", "int"),
        ("info", "struct<a:int,b:array<string>>"),
        ("pairs", "map<string,int>"),
        ("note", "string"),
    ]
    if has_scheme:
        scheme = scheme_from_properties(Column("k", "int"), RANGE)
        catalog.create_table(TABLE, columns=[*columns, ("k", "int")], scheme=scheme)
    else:
        catalog.create_table(TABLE, columns=columns, partition_keys=[("k", "int")])
    names = "n int, {} struct<a:int,b:array<string>>, pairs map<string,int>, {} string"
    old, new = ((1, ["x"]), {"p": 1}, "old"), ((2, [None]), {}, "new")
    add(session, catalog, "1", names.format("info", "note") + ", k int", (1, *old, 5))
    rename(catalog, "note", "remark")
    rename(catalog, "info", "detail")
    catalog.alter_table(TABLE, add_columns=[("note", "string"), ("info", "struct<a:int>")])
    given = names.format("detail", "remark") + ", note string, info struct<a:int>, k int"
    add(session, catalog, "2", given, (2, *new, "another", (7,), 6))
    catalog.alter_table(TABLE, drop_columns=["note"])
    catalog.alter_table(TABLE, add_columns=[("note", "string")])
    expected = [(1, *old, None, None, 5), (2, *new, (7,), None, 6)]

    def read() -> list[tuple[Any, ...]]:
        frame = read_table(session, TABLE, catalog=catalog).select(
            "n", "detail", "pairs", "remark", "info", "note", "k"
        )
        return sorted((tuple(row) for row in frame.collect()), key=lambda row: row[0])

    assert read() == expected
    assert not any(
        b"PARQUET:field_id" in (each.metadata or {}) for path in data_files(catalog) for each in pq.read_schema(path)
    )
    if has_scheme:
        rebalance(session, catalog, RUN, TABLE, SplitPartition(1, ("6", "10")))
        assert read() == expected


@pytest.mark.long
@on_sqlite
def test_a_column_keeps_its_rows_when_names_are_exchanged(scheme_table: Catalog, session: Any) -> None:
    scheme_table.alter_table(TABLE, add_columns=[("other", "string")])
    add(session, scheme_table, "1", "n int, note string, other string, k int", (1, "note", "other", 5))
    scheme_table.alter_table(TABLE, change_columns={"note": ("other", "string"), "other": ("note", "string")})
    add(session, scheme_table, "2", "n int, note string, other string, k int", (2, "other", "note", 5))
    table = read_table(session, TABLE, catalog=scheme_table)
    assert {(row.note, row.other) for row in table.collect()} == {("other", "note")}


def test_the_partition_column_stays_the_last(scheme_table: Catalog, session: Any) -> None:
    scheme_table.alter_table(TABLE, add_columns=[("added", "int")])
    assert [column.name for column in scheme_table.get_table(TABLE).columns] == ["n", "note", "added", "k"]
    scheme_table.alter_table(TABLE, column_order=["k", "added", "note", "n"])
    assert [column.name for column in scheme_table.get_table(TABLE).columns] == ["added", "note", "n", "k"]


# --- types ------------------------------------------------------------------------------------------------------------

WIDER = [
    ("tinyint", "bigint", "7", 7),
    ("smallint", "int", "7", 7),
    ("int", "bigint", "7", 7),
    ("float", "double", "1.5", 1.5),
    ("decimal(5,2)", "decimal(12,2)", "1.25", "1.25"),
    ("decimal(15,2)", "decimal(30,2)", "1.25", "1.25"),
    ("varchar(3)", "varchar(9)", "abc", "abc"),
    ("struct<a:int>", "struct<a:bigint,b:string>", None, None),
]


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro", "csv"])
@on_sqlite
def test_files_are_read_as_each_wider_type(
    catalog: Catalog, session: Any, file_format: str, request: pytest.FixtureRequest
) -> None:
    if file_format == "avro":
        request.getfixturevalue("avro_package")
    catalog.create_database("demo")
    types = [case for case in WIDER if case[2] is not None or file_format != "csv"]
    columns = [(f"c{number}", before) for number, (before, *_) in enumerate(types)]
    catalog.create_table(TABLE, columns=columns, format=file_format)
    given = [
        f"cast('{text}' AS {before.replace('varchar(3)', 'string')}) AS c{number}"
        if text is not None
        else f"named_struct('a', 3) AS c{number}"
        for number, (before, _, text, _) in enumerate(types)
    ]
    append_rows(session, catalog, "1", TABLE, session.range(1).selectExpr(*given))
    changes = {f"c{number}": (f"c{number}", after) for number, (_, after, *_) in enumerate(types)}
    catalog.alter_table(TABLE, change_columns=changes)
    (row,) = read_table(session, TABLE, catalog=catalog).collect()
    for value, (_, _, text, expected) in zip(row, types, strict=True):
        if text is None:
            assert (value.a, value.b) == (3, None)
        else:
            assert value == expected or str(value) == expected


# --- metadata of files ------------------------------------------------------------------------------------------------


def data_files(catalog: Catalog) -> list[Path]:
    location = Path(catalog.get_table(TABLE).location)
    return sorted(path for path in location.rglob("*.parquet") if "_manifest" not in str(path))


def field_ids(path: Path) -> dict[str, int]:
    return {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in pq.read_schema(path)}


@pytest.mark.long
@on_sqlite
def test_parquet_files_have_the_field_ids_of_the_columns(
    value_table: Callable[[str], None], catalog: Catalog, session: Any
) -> None:
    value_table("parquet")
    add(session, catalog, "1", "n int, note string, k int", (1, "old", 5))
    (first,) = data_files(catalog)
    assert field_ids(first) == {"n": 1, "note": 2}
    rename(catalog, "note", "remark")
    catalog.alter_table(TABLE, add_columns=[("note", "string")])
    add(session, catalog, "2", "n int, remark string, note string, k int", (2, "new", "x", 6))
    (second,) = set(data_files(catalog)) - {first}
    assert field_ids(second) == {"n": 1, "remark": 2, "note__4": 4}


@on_sqlite
def test_files_of_others_are_read_by_the_names_of_their_time(
    value_table: Callable[[str], None], catalog: Catalog, session: Any, tmp_path: Path
) -> None:
    value_table("parquet")
    for number, name in enumerate(("note", "remark")):
        folder = tmp_path / f"foreign{number}"
        folder.mkdir()
        pq.write_table(pa.table({name: [name], "n": pa.array([number], pa.int32())}), folder / "file.parquet")
        catalog.add_partitions(TABLE, [NewPartition((str(number),), location=str(folder))])
    rename(catalog, "note", "remark")
    assert rows(session, catalog) == [(0, "note", 0), (1, "remark", 1)]


@pytest.mark.long
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@on_sqlite
def test_a_migrated_table_reads_the_same_rows_by_ids(
    value_table: Callable[[str], None],
    catalog: Catalog,
    session: Any,
    iceberg_spark: Any,
    migrator: Migrator,
    file_format: str,
) -> None:
    value_table(file_format)
    add(session, catalog, "1", "n int, note string, k int", (1, "old", 5))
    rename(catalog, "note", "remark")
    add(session, catalog, "2", "n int, remark string, k int", (2, "renamed", 5))
    catalog.alter_table(TABLE, add_columns=[("note", "string")])
    add(session, catalog, "3", "n int, remark string, note string, k int", (3, "both", "new", 6))
    expected = [(1, "old", None, 5), (2, "renamed", None, 5), (3, "both", "new", 6)]
    assert rows(session, catalog) == expected
    migrator.migrate(TABLE)
    metadata = catalog.get_table(TABLE).metadata_location
    assert metadata is not None
    iceberg = read_metadata_file(session, metadata).select("n", "remark", "note", "k")
    assert sorted(tuple(row) for row in iceberg.collect()) == expected
    assert [row.n for row in iceberg.where("remark = 'renamed'").collect()] == [2]


# --- verification -----------------------------------------------------------------------------------------------------


class Steps:
    """Runs the jobs of a split as the tasks of the DAG do."""

    def __init__(self, catalog: Catalog, spark: Any) -> None:
        self.catalog, self.spark = catalog, spark
        split = SplitPartition(1, ("4", "10"))
        fingerprint = catalog.rebalancing.plan(TABLE, split).fingerprint
        catalog.rebalancing.begin(RUN, TABLE, split, fingerprint=fingerprint)

    def run(self, function: Callable[..., dict[str, Any]], job_type: Any, **fields: Any) -> dict[str, Any]:
        step = job_type.script
        attempt = self.catalog.operations.start_job(RUN, step)
        job = job_type(operation_id=RUN, step=step, attempt=attempt, table=TABLE, **fields)
        result = function(self.spark, self.catalog, job)
        self.catalog.operations.finish_job(RUN, step, attempt, result)
        return result


@pytest.mark.long
@on_sqlite
def test_a_verification_sees_what_a_rewrite_by_other_names_loses(
    scheme_table: Catalog, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(session, scheme_table, "1", "n int, note string, k int", (1, "old", 3), (2, "old", 5))
    rename(scheme_table, "note", "remark")
    steps = Steps(scheme_table, session)
    with monkeypatch.context() as broken:
        # A rewrite that knows only the current names.
        broken.setattr("spark_jobs.reading.files.file_layout", lambda table, _: table.columns)
        broken.setattr("spark_jobs.reading.files.is_plain_layout", lambda _: True)
        folder = steps.run(rewrite_partitions, RewritePartitionsJob)["folder"]
        with pytest.raises(VerificationFailedError, match="do not have the rows of the old ones"):
            steps.run(verify_rewrite, VerifyRewriteJob, folder=folder)
    folder = steps.run(rewrite_partitions, RewritePartitionsJob)["folder"]
    assert steps.run(verify_rewrite, VerifyRewriteJob, folder=folder)["rows"] == 2


@pytest.mark.long
@on_sqlite
def test_a_verification_names_a_column_that_no_reader_would_read(scheme_table: Catalog, session: Any) -> None:
    add(session, scheme_table, "1", "n int, note string, k int", (1, "old", 3), (2, "old", 5))
    (path,) = data_files(scheme_table)
    unknown = pq.ParquetFile(path).read().rename_columns(["n", "lost", "k"]).replace_schema_metadata()
    plain = pa.table(unknown.columns, schema=pa.schema([pa.field(each.name, each.type) for each in unknown.schema]))
    pq.write_table(plain, path)
    path.with_name(f".{path.name}.crc").unlink()
    steps = Steps(scheme_table, session)
    folder = steps.run(rewrite_partitions, RewritePartitionsJob)["folder"]
    with pytest.raises(VerificationFailedError, match="has a column lost, which the table does not have"):
        steps.run(verifying.verify_rewrite, VerifyRewriteJob, folder=folder)
