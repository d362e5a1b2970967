"""Reasons to refuse a migration; a refused migration journals and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from catalog import Catalog, NewPartition
from catalog.errors import (
    AlreadyIcebergError,
    CatalogError,
    ForeignTableError,
    InvalidRequestError,
    NotATableError,
    PartitionValueError,
    PositionalTableError,
    QuarantinedPartitionError,
    ReservedColumnError,
    ReservedFolderError,
    SharedLocationError,
    TransactionalTableError,
    UnsupportedChangeError,
    UnsupportedFormatError,
    UnsupportedIcebergTypeError,
)
from catalog.migration.requests import MigrationRequest
from catalog.model import Buckets, Column, FileFormat
from catalog.operations.records import OperationKind
from catalog.partitions.changing import set_quarantined
from catalog.tables.schemes import scheme_from_properties
from tests.support.iceberg_tables import KEYS, NAME, REQUEST, make_orders, migrate, write_rows

INT = [("id", "bigint")]


@dataclass(frozen=True)
class Case:
    """A table that is refused, and how."""

    make: Callable[[Catalog], object]
    error: type[CatalogError]
    says: str


def with_properties(**properties: str) -> Callable[[Catalog], object]:
    named = {name.replace("__", "."): value for name, value in properties.items()}
    return lambda c: c.create_table("demo.t", columns=INT, properties=named)


def with_format(name: str) -> Callable[[Catalog], object]:
    return lambda c: c.create_table("demo.t", columns=INT, format=name)


def with_partitions(*partitions: NewPartition) -> Callable[[Catalog], object]:
    def make(catalog: Catalog) -> None:
        catalog.create_table("demo.t", columns=INT, partition_keys=KEYS, location="/lake/t")
        catalog.add_partitions("demo.t", partitions)

    return make


def beside(location: str, *partitions: NewPartition) -> Callable[[Catalog], object]:
    def make(catalog: Catalog) -> None:
        with_partitions(NewPartition(("a", "1"), location="/far/a"))(catalog)
        catalog.create_table("demo.u", columns=INT, partition_keys=KEYS, location=location)
        catalog.add_partitions("demo.u", partitions)

    return make


def quarantined(catalog: Catalog) -> None:
    with_partitions(NewPartition(("a", "1")), NewPartition(("b", "2")))(catalog)
    found = catalog.get_partition("demo.t", ("b", "2"))
    with catalog.storage.write() as connection:
        set_quarantined(connection, catalog.get_table("demo.t"), [found.id], True)


def migrated(catalog: Catalog) -> None:
    catalog.create_table("demo.t", columns=INT)
    migrate(catalog, "demo.t")


def with_scheme(catalog: Catalog) -> None:
    column = Column("id", "bigint")
    scheme = scheme_from_properties(column, {"PARTITION_TYPE": "HASH", "NUM_PARTITIONS": "4"})
    catalog.create_table("demo.t", columns=INT, scheme=scheme)


def with_data_among_metadata(catalog: Catalog) -> None:
    table = catalog.create_table("demo.t", columns=INT)
    write_rows(f"{table.location}/metadata", [1])


OWN_FOLDER = NewPartition(("a", "1"), location="/lake/own")
CASES = {
    "view": Case(lambda c: c.create_view("demo.t", "SELECT 1"), NotATableError, "is a view"),
    "csv": Case(with_format("csv"), UnsupportedFormatError, "table demo.t is stored as CSV"),
    "textfile": Case(with_format("textfile"), UnsupportedFormatError, "PARQUET, ORC, AVRO"),
    "format of a partition": Case(
        with_partitions(NewPartition(("a", "1")), NewPartition(("b", "2"), format=FileFormat.CSV)),
        UnsupportedFormatError,
        "partition country=b/year=2 of demo.t is stored as CSV",
    ),
    "iceberg already": Case(migrated, AlreadyIcebergError, r"is an Iceberg table already \(metadata: .*json\)"),
    "scheme": Case(with_scheme, UnsupportedChangeError, "INSERT INTO .* SELECT"),
    "delta": Case(with_properties(spark__sql__sources__provider="DELTA"), ForeignTableError, "Delta Lake"),
    "hudi": Case(with_properties(spark__sql__sources__provider="hudi"), ForeignTableError, "Hudi"),
    "hudi by its input format": Case(
        with_properties(inputformat="org.apache.hudi.hadoop.HoodieParquetInputFormat"), ForeignTableError, "Hudi"
    ),
    "delta by its storage handler": Case(
        with_properties(storage_handler="io.delta.hive.DeltaStorageHandler"), ForeignTableError, "Delta"
    ),
    "iceberg elsewhere": Case(with_properties(table_type="ICEBERG"), ForeignTableError, "Iceberg"),
    "other provider": Case(with_properties(spark__sql__sources__provider="jdbc"), ForeignTableError, "provider jdbc"),
    "columns of Parquet by position": Case(
        with_properties(parquet__column__index__access="TRUE"),
        PositionalTableError,
        "table demo.t has the property parquet.column.index.access",
    ),
    "columns of ORC by position": Case(
        with_properties(orc__force__positional__evolution="true"), PositionalTableError, "match them by name"
    ),
    "columns of a partition by position": Case(
        with_partitions(
            NewPartition(("a", "1")), NewPartition(("b", "2"), properties={"orc.force.positional.evolution": "true"})
        ),
        PositionalTableError,
        "partition country=b/year=2 of demo.t has the property",
    ),
    "transactional": Case(with_properties(transactional="TRUE"), TransactionalTableError, "'transactional'='false'"),
    "quarantined": Case(quarantined, QuarantinedPartitionError, "country=b/year=2 is quarantined"),
    "same folder twice": Case(
        with_partitions(OWN_FOLDER, NewPartition(("b", "2"), location="file:///lake/own/")),
        SharedLocationError,
        "country=a/year=1 .*country=b/year=2 .*are the same",
    ),
    "folder of another's default": Case(
        with_partitions(NewPartition(("a", "1"), location="/lake/t/country=b/year=2"), NewPartition(("b", "2"))),
        SharedLocationError,
        "are the same",
    ),
    "folder inside another's default": Case(
        with_partitions(NewPartition(("a", "1"), location="/lake/t/country=b/year=2/x"), NewPartition(("b", "2"))),
        SharedLocationError,
        "one inside the other",
    ),
    "the table's whole folder": Case(
        with_partitions(NewPartition(("a", "1"), location="/lake/t"), NewPartition(("b", "2"))),
        SharedLocationError,
        "one inside the other",
    ),
    "folder inside another's own": Case(
        with_partitions(OWN_FOLDER, NewPartition(("b", "2"), location="/lake/own/x")),
        SharedLocationError,
        "one inside the other",
    ),
    "same location": Case(beside("file:/lake//t"), SharedLocationError, "/lake//t of table demo.u"),
    "inside another table": Case(beside("/lake"), SharedLocationError, "/lake of table demo.u"),
    "around another table": Case(beside("/lake/t/u"), SharedLocationError, "/lake/t/u of table demo.u"),
    "a partition inside another table": Case(beside("/far"), SharedLocationError, "/far of table demo.u"),
    "another table's partition inside": Case(
        beside("/u", NewPartition(("a", "1"), location="/lake/t/x")), SharedLocationError, "a partition of demo.u"
    ),
    "another table's partition in the same folder": Case(
        beside("/u", NewPartition(("a", "1"), location="/far/a")), SharedLocationError, "a partition of demo.u"
    ),
    "type": Case(
        lambda c: c.create_table("demo.t", columns=[("a", "interval_day_time")]), UnsupportedIcebergTypeError, "a"
    ),
    "reserved name": Case(lambda c: c.create_table("demo.t", columns=[("_file", "int")]), ReservedColumnError, "_file"),
    "value": Case(with_partitions(NewPartition(("a", "soon"))), PartitionValueError, "soon"),
    "files among the metadata": Case(with_data_among_metadata, ReservedFolderError, "metadata/part-0.parquet"),
}


@pytest.mark.usefixtures("overlapping_locations", "unfit_values")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_table_that_cannot_be_one_is_refused_with_the_reason(catalog: Catalog, case: Case) -> None:
    case.make(catalog)
    before = catalog.list_tables()
    # What is nested counts only where nested folders do.
    request = MigrationRequest(verify=False, recursive_directory="true")
    for ask in (catalog.migrations.plan, lambda name, asked: catalog.migrations.begin("m2", name, asked)):
        with pytest.raises(case.error, match=case.says):
            ask("demo.t", request)
    assert catalog.operations.find("m2") is None
    assert catalog.list_tables() == before


@pytest.mark.parametrize("location", ["/lakes", "/lake/t2", "/lake/t/../u", "/far/ab"])
def test_tables_side_by_side_are_none_of_each_others(catalog: Catalog, location: str) -> None:
    beside(location)(catalog)
    catalog.migrations.plan("demo.t")


def test_nested_partitions_are_none_of_each_others_when_nested_folders_are_passed_over(catalog: Catalog) -> None:
    with_partitions(OWN_FOLDER, NewPartition(("b", "2"), location="/lake/own/x"))(catalog)
    catalog.migrations.plan("demo.t", MigrationRequest(recursive_directory="false"))


def test_an_iceberg_table_of_the_same_name_is_in_the_way(catalog: Catalog, catalog_url: str, tmp_path: Path) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    from tests.support.iceberg_tables import sql_catalog

    make_orders(catalog)
    with sql_catalog(catalog_url) as iceberg:
        iceberg.create_namespace("demo")
        iceberg.create_table(NAME, Schema(NestedField(1, "id", LongType())), location=f"{tmp_path}/other")
    with pytest.raises(AlreadyIcebergError, match="besides the Hive table"):
        catalog.migrations.plan(NAME)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"recursive_directory": "maybe"}, "recursive_directory is 'maybe'"),
        ({"timestamps": "utc"}, "timestamps is 'utc'"),
        ({"target": "demo.t"}, "target is 'demo.t'"),
        ({"kind": OperationKind.SNAPSHOT}, "needs the name"),
        ({"target_location": "/x"}, "target_location"),
        ({"partitions": {"a": "b"}}, "includes all partitions of a table"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        MigrationRequest(**wrong)  # type: ignore[arg-type]


def test_a_request_comes_back_from_the_journal_as_it_was() -> None:
    request = MigrationRequest(
        OperationKind.ADD_FILES, target="demo.t", partitions={"country": None}, recursive_directory="true"
    )
    assert MigrationRequest.from_json(request.as_json()) == request


def test_the_plan_says_what_becomes_of_the_table(catalog: Catalog) -> None:
    catalog.create_table(
        "demo.t",
        columns=[("a", "char(3)"), ("b", "smallint"), ("c", "timestamp")],
        partition_keys=KEYS,
        buckets=Buckets(("a",), 4),
    )
    counted = {"file_count": 2, "row_count": 10, "size_bytes": 100}
    catalog.add_partitions(
        "demo.t",
        [
            NewPartition(("a", "1"), **counted),
            NewPartition(("b", "1"), location="/far/b", format=FileFormat.ORC, **counted),
        ],
    )
    plan = catalog.migrations.plan("demo.t", REQUEST)
    fields = plan.as_json()
    types = {each["name"]: each["iceberg_type"] for each in fields["columns"]}
    assert types == {"a": "string", "b": "int", "c": "timestamptz", "country": "string", "year": "int"}
    assert (fields["partitions"], fields["partitions_elsewhere"]) == (2, 1)
    assert (fields["files"], fields["rows"], fields["bytes"]) == (4, 20, 200)
    assert fields["formats"] == {"parquet": 1, "orc": 1}
    text = str(plan)
    for said in ("files:      4", "a: char(3) → string", "bucketed by a", "1 of ORC", "outside"):
        assert said in text
    assert catalog.migrations.plan("demo.t", REQUEST).fingerprint == plan.fingerprint
    catalog.add_partitions("demo.t", [NewPartition(("c", "1"))])
    assert catalog.migrations.plan("demo.t", REQUEST).as_json()["files"] is None
