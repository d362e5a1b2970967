"""Raw files are loaded as partitions: each row once, with its key values, or the load reports the error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from catalog import Catalog, OnInvalid, PartitionState
from catalog.errors import (
    FencedError,
    InvalidPartitionError,
    InvalidTableError,
    LocationNotEmptyError,
    PartitionAlreadyExistsError,
    SourceFileError,
)
from catalog.model.partition_names import NULL_VALUE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

HEADER = "country,day,id,amount\n"

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
"""For tests that do not depend on the database."""


def deliver(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def rows_on_disk(
    warehouse: Path, table: str = "shop/orders", columns: str = "country, day, id, amount"
) -> list[tuple[Any, ...]]:
    """The rows that an independent reader finds in the table's folder."""
    pattern = f"{warehouse}/{table}/*/*/*.parquet"
    query = f"SELECT {columns} FROM read_parquet('{pattern}', hive_partitioning=true, hive_types_autocast=0)"
    return sorted(duckdb.sql(query).fetchall(), key=str)


def test_rows_and_counts_equal_the_source(
    make_loader: Callable[..., Any], catalog: Catalog, warehouse: Path, tmp_path: Path
) -> None:
    source = deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1.5\nUS,1,2,\nDE,2,3,3.5\n")
    report = make_loader().load(source)
    assert (report["partitions"], report["row_count"], report["refused"]) == (2, 3, 0)
    assert rows_on_disk(warehouse) == [("DE", "2", 3, 3.5), ("US", "1", 1, 1.5), ("US", "1", 2, None)]
    table = catalog.get_table("shop.orders")
    counts = {partition.name(table): partition.row_count for partition in catalog.get_partitions("shop.orders")}
    assert counts == {"country=US/day=1": 2, "country=DE/day=2": 1}
    assert [(column.name, column.type) for column in table.columns] == [("id", "bigint"), ("amount", "double")]


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize(
    ("suffix", "pattern", "ids"),
    [("csv", "", range(6)), ("json", "", range(6)), ("csv", "[[]ab].csv", range(1))],
)
def test_names_that_look_like_patterns_are_files(
    make_loader: Callable[..., Any], warehouse: Path, tmp_path: Path, suffix: str, pattern: str, ids: range
) -> None:
    for number, name in enumerate(("[ab]", "*", "a", "b", "x{y,z}", "q?")):
        row = {"country": "US", "day": str(number), "id": number, "amount": 0.5}
        line = json.dumps(row) if suffix == "json" else f"{HEADER}US,{number},{number},0.5"
        deliver(tmp_path / "raw", f"{name}.{suffix}", line + "\n")
    options = {"source_format": suffix, "source_options": {"header": "true"} if suffix == "csv" else {}}
    assert make_loader().load(tmp_path / "raw" / pattern, **options)["row_count"] == len(ids)
    assert [row[2] for row in rows_on_disk(warehouse)] == list(ids)


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("table_format", ["parquet", "csv"])
def test_a_table_in_a_folder_that_looks_like_a_pattern_is_loaded(
    spark: SparkSession, make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path, table_format: str
) -> None:
    from spark_jobs.reading.tables import read_table

    catalog.create_database("odd", location=str(tmp_path / "wh[ab]*{c}"))
    source = deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1.5\nDE,2,3,3.5\n")
    assert make_loader("odd.orders").load(source, format=table_format)["row_count"] == 2
    assert {partition.row_count for partition in catalog.get_partitions("odd.orders")} == {1}
    assert sorted(row.id for row in read_table(spark, "odd.orders", catalog=catalog).collect()) == [1, 3]


@pytest.mark.long
def test_odd_key_values_keep_their_rows(
    make_loader: Callable[..., Any], catalog: Catalog, warehouse: Path, tmp_path: Path
) -> None:
    values = ["a/b", "50%", "x=y", "ü ñ 😀", "it's", "a:b", "[z]", "tab\there", "01", "1"]
    lines = "".join(f'"{value}",{number},{number},1\n' for number, value in enumerate(values))
    source = deliver(tmp_path / "raw", "odd.csv", HEADER + lines + ",77,77,1\n")
    make_loader().load(source, null_keys="allow")
    found = {partition.values[0] for partition in catalog.get_partitions("shop.orders")}
    assert found == {*values, None}
    for partition in catalog.get_partitions("shop.orders"):
        assert list(Path(partition.location).glob("*.parquet")), partition
    assert sum(partition.row_count or 0 for partition in catalog.get_partitions("shop.orders")) == len(values) + 1


def test_second_load_takes_only_what_is_new(make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path) -> None:
    loader = make_loader()
    source = deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\n")
    loader.load(source)
    assert catalog.loading.discover("again", "shop.orders", str(source)) == []
    deliver(source, "b.csv", HEADER + "US,2,2,2\n")
    assert loader.load(source)["partitions"] == 1
    assert {partition.values for partition in catalog.get_partitions("shop.orders")} == {("US", "1"), ("US", "2")}


@pytest.mark.long
def test_file_that_changed_after_its_load_is_refused(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    loader = make_loader()
    source = deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\n")
    loader.load(source)
    deliver(source, "a.csv", HEADER + "US,1,1,1\nUS,1,2,2\n")
    with pytest.raises(SourceFileError, match=r"a\.csv"):
        catalog.loading.discover("again", "shop.orders", str(source))


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "line"),
    [
        (HEADER + "US,1,1,1\nUS,1\n", "line 3: US,1"),
        (HEADER + "US,1,1,1\nUS,1,x,2\n", "line 3: column id: 'x' is no int"),
        (HEADER + "US,1,1,1\nUS,1,2,2,5\n", "line 3: US,1,2,2,5 (it has 5 fields, but there are 4 columns)"),
        (HEADER.replace("amount", "ID") + "US,1,1,1\n", "line 1: the header has id more than once"),
    ],
    ids=["too few fields", "wrong type", "too many fields", "a name twice"],
)
def test_unreadable_line_is_named(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path, text: str, line: str
) -> None:
    source = deliver(tmp_path / "raw", "bad.csv", text)
    with pytest.raises(SourceFileError) as refused:
        make_loader().load(source, columns=[("id", "int"), ("amount", "double")])
    assert f"bad.csv, {line}" in str(refused.value)
    assert catalog.list_tables() == []


@pytest.mark.long
def test_a_key_in_another_encoding_is_refused_and_read_with_the_option(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    source = deliver(tmp_path / "raw", "latin.csv", "")
    (source / "latin.csv").write_bytes((HEADER + "US,1,1,1\nCôte,1,2,2\n").encode("latin-1"))
    place = r"latin\.csv, line 3: partition key country: 'C.te' is not in the file's encoding; set `encoding`"
    with pytest.raises(SourceFileError, match=place):
        make_loader().load(source)
    assert catalog.list_tables() == []
    make_loader().load(source, source_options={"header": "true", "encoding": "ISO-8859-1"})
    assert {partition.values[0] for partition in catalog.get_partitions("shop.orders")} == {"US", "Côte"}


@pytest.mark.long
@pytest.mark.parametrize("has_types", [True, False])
@pytest.mark.parametrize("source_format", ["csv", "json"])
def test_text_in_another_encoding_is_refused_and_read_with_the_option(
    make_loader: Callable[..., Any],
    spark: SparkSession,
    catalog: Catalog,
    tmp_path: Path,
    source_format: str,
    has_types: bool,
) -> None:
    from spark_jobs.reading.tables import read_table

    file = tmp_path / f"latin.{source_format}"
    lines = "country,day,name\nUS,1,Ann\nUS,1,Zoë\n"
    if source_format == "json":
        lines = "".join(f'{{"country": "US", "day": 1, "name": "{name}"}}\n' for name in ("Eve", "Ann", "Zoë"))
    file.write_bytes(lines.encode("latin-1"))
    header = {"header": "true"} if source_format == "csv" else {}
    settings: dict[str, Any] = {"source_format": source_format, "columns": [["name", "string"]] if has_types else []}
    # Spark's parser of JSON refuses such a line itself.
    said = r".*\(it is not UTF-8" if source_format == "json" else "column name: 'Zo.' is not in the file's encoding"
    place = rf"latin\.\w+, line 3: {said}; set `encoding`"
    with pytest.raises(SourceFileError, match=place):
        make_loader().load(file, source_options=header, **settings)
    assert catalog.list_tables() == []
    make_loader().load(file, source_options={**header, "encoding": "ISO-8859-1"}, **settings)
    names = {row["name"] for row in read_table(spark, "shop.orders", catalog=catalog).collect()}
    assert names >= {"Ann", "Zoë"}


@pytest.mark.long
def test_a_replacement_character_is_loaded_if_the_encoding_is_named(
    make_loader: Callable[..., Any], spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    from spark_jobs.reading.tables import read_table

    (tmp_path / "a.csv").write_text("country,day,name\nUS,1,Zo\N{REPLACEMENT CHARACTER}\n", encoding="utf-8")
    make_loader().load(tmp_path / "a.csv", source_options={"header": "true", "encoding": "UTF-8"})
    [row] = read_table(spark, "shop.orders", catalog=catalog).collect()
    assert row["name"] == "Zo\N{REPLACEMENT CHARACTER}"


def test_a_header_in_another_encoding_is_refused(make_loader: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("country,day,größe\nUS,1,2\n".encode("latin-1"))
    with pytest.raises(SourceFileError, match=r"a\.csv has, in line 1, a column 'gr.*e' whose name is not UTF-8; set"):
        make_loader().load(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("b.csv", "country,day,id,total\nUS,2,1,1\n", "b.csv does not have the .* missing amount, unknown total"),
        ("0.csv", "country,id,amount\nUS,1,1\n", "no column day"),
        ("0.csv", "country,day,id,amount,extra\nUS,2,1,1,1\n", "unknown extra"),
    ],
    ids=["another name", "no key", "unknown column"],
)
def test_header_that_does_not_fit_is_named(
    make_loader: Callable[..., Any], tmp_path: Path, name: str, text: str, said: str
) -> None:
    loader = make_loader()
    loader.load(deliver(tmp_path / "first", "a.csv", HEADER + "US,1,1,1\n"))
    source = deliver(deliver(tmp_path / "raw", "a.csv", HEADER + "US,3,1,1\n"), name, text)
    with pytest.raises(SourceFileError, match=said):
        loader.load(source)


def test_damaged_parquet_file_is_named(make_loader: Callable[..., Any], tmp_path: Path) -> None:
    source = deliver(tmp_path / "raw", "x.parquet", "this is not Parquet")
    with pytest.raises(SourceFileError, match=r"x\.parquet"):
        make_loader().load(source, source_format="parquet")


def test_partition_that_does_not_fit_an_index_refuses_the_load(
    make_loader: Callable[..., Any], catalog: Catalog, warehouse: Path, tmp_path: Path
) -> None:
    loader = make_loader()
    loader.load(deliver(tmp_path / "first", "a.csv", HEADER + "US,1,1,1\n"), indexes={"by_day": ["day"]})
    before = sorted(warehouse.rglob("*"))
    with pytest.raises(InvalidPartitionError, match=r"key 'day' has the value 'foo' in /.*/b\.csv, line 2, "):
        loader.load(deliver(tmp_path / "raw", "b.csv", HEADER + "US,foo,2,2\nUS,2,3,3\n"))
    assert {partition.values for partition in catalog.get_partitions("shop.orders")} == {("US", "1")}
    assert sorted(warehouse.rglob("*")) == before


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize(
    ("source_format", "name", "text", "place"),
    [
        ("csv", "a.csv", HEADER + "US,1,1,1\nUS,1,2,\n,1,3,3\n", "a.csv, line 4: partition key country"),
        ("csv", "a.csv", HEADER + 'US,1,1,1\n"",1,2,2\n', "a.csv, line 3: partition key country"),
        ("csv", "a.csv", HEADER + f"US,1,1,1\n{NULL_VALUE},1,2,2\n", "a.csv, line 3: partition key country"),
        ("json", "a.json", '{"country": "US", "day": 1}\n{"country": "US", "day": null, "id": 2}', "line 2: partition"),
        ("json", "a.json", '{"country": "US", "day": 1}\n{"country": "US", "id": 1}', "line 2: partition key day"),
        ("csv", "country=__HIVE_DEFAULT_PARTITION__/a.csv", "day,id\n1,1\n", "line 2: partition key country"),
    ],
    ids=["csv", "empty string", "Hive's null", "json", "missing field", "folder"],
)
def test_a_null_key_is_refused_with_its_place_unless_it_is_allowed(
    make_loader: Callable[..., Any],
    catalog: Catalog,
    tmp_path: Path,
    source_format: str,
    name: str,
    text: str,
    place: str,
) -> None:
    path = tmp_path / "raw" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    settings = {"source_format": source_format, "source_options": {"header": "true"} if source_format == "csv" else {}}
    loader = make_loader()
    with pytest.raises(SourceFileError, match=f"{place}.* is null, which `null_keys` refuses"):
        loader.load(tmp_path / "raw", **settings)
    assert catalog.list_tables() == []
    if '"id": 1' not in text:
        loader.load(tmp_path / "raw", **settings, null_keys="allow")
        assert None in {value for partition in catalog.get_partitions("shop.orders") for value in partition.values}


@pytest.mark.long
@on_sqlite
def test_a_null_key_of_a_parquet_file_is_refused(
    make_loader: Callable[..., Any], spark: SparkSession, tmp_path: Path
) -> None:
    for number, day in enumerate(("1", "NULL")):
        spark.sql(f"SELECT 'US' AS country, CAST({day} AS int) AS day, 1 AS id").write.parquet(
            f"{tmp_path}/raw/{number}"
        )
    settings = {"source_format": "parquet", "source_options": {}}
    with pytest.raises(SourceFileError, match=r"/raw/1/part-\S*: partition key day is null"):
        make_loader().load(tmp_path / "raw", **settings)
    assert make_loader().load(tmp_path / "raw", **settings, null_keys="allow")["partitions"] == 2


@pytest.mark.long
@on_sqlite
def test_wrong_keys_of_a_new_table_are_named_by_file_and_line(make_loader: Callable[..., Any], tmp_path: Path) -> None:
    deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\n")
    source = deliver(tmp_path / "raw", "b.csv", HEADER + "US,2,1,1\nUS,x,1,1\nDE,x,1,1\nUS,y,2,2\n")
    with pytest.raises(InvalidPartitionError) as refused:
        make_loader().load(source)
    for value, line in (("x", 3), ("y", 5)):
        assert f"key 'day' has the value '{value}' in {source}/b.csv, line {line}, expected int" in str(refused.value)


@pytest.mark.long
def test_skipped_partition_is_kept_aside_and_reported(
    make_loader: Callable[..., Any], catalog: Catalog, warehouse: Path, tmp_path: Path
) -> None:
    loader = make_loader()
    loader.load(deliver(tmp_path / "first", "a.csv", HEADER + "US,1,1,1\n"), indexes={"by_day": ["day"]})
    report = loader.load(
        deliver(tmp_path / "raw", "b.csv", HEADER + "US,foo,2,2\nUS,2,3,3\n"),
        on_invalid=OnInvalid.SKIP,
        invalid_partitions="skip",
    )
    assert (report["partitions"], report["refused"], report["refused_rows"]) == (1, 1, 1)
    kept = duckdb.sql(f"SELECT id FROM read_parquet('{report['refused_folder']}/**/*.parquet')").fetchall()
    assert kept == [(2,)]
    assert {partition.values for partition in catalog.get_partitions("shop.orders")} == {("US", "1"), ("US", "2")}
    assert [row[2] for row in rows_on_disk(warehouse)] == [1, 3]


@pytest.mark.long
def test_keys_may_be_of_any_type(make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path) -> None:
    loader = make_loader(keys={"at": "timestamp", "price": "decimal(5,2)", "ok": "boolean", "x": "double"})
    first = "at,price,ok,x,id\n2024-01-01 10:30:00.0,1.5,true,-0.0,1\n2024-01-01 10:30:00.5,2,FALSE,NaN,2\n,,,,3\n"
    assert loader.load(deliver(tmp_path / "first", "a.csv", first), null_keys="allow")["partitions"] == 3
    [found] = catalog.get_partitions("shop.orders", "at < '2024-01-01 10:30:00.5' and price = 1.50 and ok = true")
    assert found.values == ("2024-01-01 10:30:00", "1.50", "true", "0.0")
    assert found.location.endswith("/at=2024-01-01 10%3A30%3A00/price=1.50/ok=true/x=0.0")
    assert list(Path(found.location).glob("*.parquet"))
    with pytest.raises(PartitionAlreadyExistsError, match=r"price=1\.50/ok=true"):
        loader.load(deliver(tmp_path / "again", "b.csv", "at,price,ok,x,id\n2024-01-01 10:30:00,1.5,TRUE,0,4\n"))


def test_new_table_needs_keys(make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path) -> None:
    from catalog.operations.job_requests import ValidateSourceJob
    from spark_jobs.validate_source import validate_source

    loader, source = make_loader(), deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\n")
    with pytest.raises(InvalidTableError, match="no partition keys"):
        loader.validate("first task", source, keys=[])
    assert catalog.operations.find("first task") is None
    # The table was dropped after the first task.
    catalog.loading.discover("second task", loader.table, str(source))
    with pytest.raises(InvalidTableError, match="no partition keys"):
        loader.run_job(validate_source, ValidateSourceJob, "second task", keys=[])


@pytest.mark.long
def test_dry_run_changes_nothing(
    make_loader: Callable[..., Any], catalog: Catalog, warehouse: Path, tmp_path: Path
) -> None:
    source = deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\nDE,1,1,1\n")
    report = make_loader().validate("dry", source, dry_run=True)
    assert (report["files"], report["rows"], report["partitions"]) == (1, 2, 2)
    assert report["inferred_columns"] == ["id bigint", "amount bigint"]
    declared = make_loader().validate("declared", source, dry_run=True, columns=[("id", "smallint")])
    assert declared["inferred_columns"] == ["amount bigint"]
    assert catalog.list_tables() == []
    assert not warehouse.exists()


@pytest.mark.long
def test_interrupted_publish_is_finished_by_a_second_one(
    make_loader: Callable[..., Any], catalog: Catalog, warehouse: Path, tmp_path: Path
) -> None:
    """The state after a kill between the moves of files and the commit."""
    loader = make_loader()
    loader.validate("op", deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\nDE,1,2,2\n"))
    staging = loader.write("op")["staging"]
    root = warehouse / "shop" / "orders"
    (root / staging / "data" / "country=US").rename(root / "country=US")
    assert loader.register("op", staging)["partitions"] == 2
    assert sorted(row[2] for row in rows_on_disk(warehouse)) == [1, 2]
    assert not (root / "_calve_staging").exists()


@pytest.mark.long
def test_cancelled_publish_is_undone_by_the_next_load(
    make_loader: Callable[..., Any], catalog: Catalog, warehouse: Path, tmp_path: Path
) -> None:
    loader = make_loader()
    source = deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\nDE,1,2,2\n")
    loader.validate("op", source)
    staging = loader.write("op")["staging"]
    root = warehouse / "shop" / "orders"
    (root / staging / "data" / "country=US").rename(root / "country=US")
    catalog.operations.fail("op", "TEST", "cancelled")
    assert loader.load(source)["partitions"] == 2
    assert sorted(row[2] for row in rows_on_disk(warehouse)) == [1, 2]


@pytest.mark.long
def test_foreign_files_at_a_partitions_place_are_left_alone(
    make_loader: Callable[..., Any], catalog: Catalog, warehouse: Path, tmp_path: Path
) -> None:
    loader = make_loader()
    foreign = warehouse / "shop" / "orders" / "country=US" / "day=1" / "theirs.parquet"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("theirs")
    with pytest.raises(LocationNotEmptyError, match="country=US/day=1"):
        loader.load(deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\n"))
    assert foreign.read_text() == "theirs"
    assert list(catalog.get_partitions("shop.orders")) == []


@pytest.mark.long
def test_fenced_attempt_cannot_publish(make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path) -> None:
    loader = make_loader()
    loader.validate("op", deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\n"))
    staging = loader.write("op")["staging"]
    fenced = catalog.operations.start_job("op", "register")
    catalog.operations.start_job("op", "register")
    with pytest.raises(FencedError):
        catalog.loading.publish("op", "register", fenced, staging, on_invalid=OnInvalid.REFUSE, is_quarantined=False)
    assert list(catalog.get_partitions("shop.orders", state=None)) == []


@pytest.mark.long
def test_quarantined_partitions_are_invisible_until_released(
    make_loader: Callable[..., Any], catalog: Catalog, tmp_path: Path
) -> None:
    loader = make_loader()
    loader.validate("op", deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\nDE,1,2,2\n"))
    loader.register("op", loader.write("op")["staging"], is_quarantined=True)
    assert list(catalog.get_partitions("shop.orders")) == []
    assert len(list(catalog.get_partitions("shop.orders", state=PartitionState.QUARANTINED))) == 2
    assert catalog.release_partitions("shop.orders", "country = 'US'") == 1
    assert [partition.values for partition in catalog.get_partitions("shop.orders")] == [("US", "1")]


@pytest.mark.long
@on_sqlite
def test_purge_leaves_what_another_spark_wrote_beside_a_load(
    make_loader: Callable[..., Any], catalog: Catalog, warehouse: Path, tmp_path: Path, spark: SparkSession
) -> None:
    make_loader().load(deliver(tmp_path / "raw", "a.csv", HEADER + "US,1,1,1\nDE,2,2,2\n"))
    folder = warehouse / "shop/orders/country=US/day=1"
    own = [*folder.parent.parent.rglob("*.parquet")]
    spark.range(2).write.mode("append").parquet(str(folder))
    others = set(folder.glob("*.parquet")) - set(own)
    catalog.drop_table("shop.orders", purge=True)
    assert len(own) == 2
    assert others
    assert [path for path in own if path.exists()] == []
    assert [path for path in others if not path.exists()] == []
    left = {path for path in (warehouse / "shop/orders").rglob("*") if path.is_file() and path.suffix != ".crc"}
    assert left == {*others, folder / "_SUCCESS"}
