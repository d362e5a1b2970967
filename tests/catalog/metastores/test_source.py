"""Addresses and patterns of sources, and the conversion of their definitions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import InvalidSourceError, UnsupportedSourceTableError
from catalog.importing.definition import Partitions, definition_of
from catalog.metastores.address import Selection, SourceAddress
from catalog.metastores.types import HivePartition, HiveStorage, HiveTable
from catalog.model import Buckets, Column, FileFormat, TableKind
from catalog.model.identifiers import TableName
from catalog.tables.own_properties import SOURCE_PROPERTY
from tests.support.glue_endpoint import AVRO, ORC, PARQUET

NAME = TableName("sales", "orders")
ADDRESS = "hms://host:9083/sales.orders"
TEXT = ("org.apache.hadoop.mapred.TextInputFormat", "", "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe")


def stored(classes: tuple[str, ...], **fields: object) -> HiveStorage:
    return HiveStorage(classes[0], classes[2], **fields)  # type: ignore[arg-type]


ORDERS = HiveTable(
    NAME,
    "MANAGED_TABLE",
    (Column("id", "bigint"), Column("Name", "varchar(20)", "whose")),
    (Column("day", "date"),),
    stored(PARQUET),
    "file:/data/orders",
)


# --- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address", "patterns"),
    [
        ("hms://meta", "hms://meta:9083", ()),
        ("hms://meta:1234/", "hms://meta:1234", ()),
        ("hms://[::1]:1234/sales.*,crm", "hms://[::1]:1234", ("sales.*", "crm")),
        ("hms://meta/sales.orders?timeout_seconds=5", "hms://meta:9083?timeout_seconds=5", ("sales.orders",)),
        (
            "hms://meta/sales?tls=true&kerberos=hive/host",
            "hms://meta:9083?kerberos=hive/host&tls=true",
            ("sales",),
        ),
        ("glue://eu-west-1/sales", "glue://eu-west-1", ("sales",)),
        ("glue:///sales", "glue://", ("sales",)),
        ("glue://?endpoint_url=http://127.0.0.1:5000", "glue://?endpoint_url=http://127.0.0.1:5000", ()),
    ],
)
def test_an_address_is_read_and_written_back(text: str, address: str, patterns: tuple[str, ...]) -> None:
    read, found = SourceAddress.parse(text)
    assert (str(read), found) == (address, patterns)
    assert SourceAddress.parse(read.of_table(NAME)) == (read, ("sales.orders",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "neither hms:// nor glue://"),
        ("thrift://meta:9083", "neither hms:// nor glue://"),
        ("hms://", "has no host"),
        ("hms:///sales", "has no host"),
        ("hms://meta:planted", "its port is not a number"),
        ("hms://meta:0", "its port is not a number"),
        ("hms://meta:99999", "its port is not a number"),
        ("hms://meta..store", "its host 'meta..store' is not a valid host name"),
        (f"hms://{'a' * 64}.b", "is not a valid host name"),
        ("hms://me\0ta", "is not a valid host name"),
        ("hms://\ud800", "is not a valid host name"),
        ("hms://\u2100.com", "is not a valid host name"),
        ("hms://[planted", "is not a valid host name"),
        ("hms://[v1.x]:1", "is not a valid host name"),
        ("hms://meta#planted", "has a # in it"),
        (f"hms://meta?timeout_seconds={'9' * 5_000}", "use a whole number from 1 to 86400"),
        ("hms://meta?timeout_seconds=86401", "use a whole number from 1 to 86400"),
        ("glue://../", "is not a valid region name"),
        ("glue://r?endpoint_url=x", "endpoint_url has an invalid value; use a URL such as http://host:port"),
        ("glue://r?endpoint_url=http://h:99999", "use a URL"),
        ("glue://r?endpoint_url=http://[bad", "use a URL"),
        ("glue://r?endpoint_url=file:///etc/passwd", "use a URL"),
        ("glue://r?profile=a%00b", "profile has an invalid value; use the name of a profile"),
        ("hms://meta?timeout=5", "the options of hms:// are kerberos, timeout_seconds, tls"),
        ("hms://meta?timeout_seconds=soon", "use a whole number"),
        ("hms://meta?tls=yes", "use true or false"),
        ("hms://meta?tls=planted", "tls has an invalid value; use true or false"),
        ("hms://meta?kerberos=plan!planted", "such as hive or hive/host"),
        ("hms://meta?timeout_seconds=planted", "use a whole number"),
        ("glue://r?catalog_id=planted!", "use the number of an account"),
        ("glue://r?profile=planted%00", "use the name of a profile"),
        ("glue://r?endpoint_url=planted", "use a URL"),
        ("hms://meta?kerberos=hive@REALM", "such as hive or hive/host"),
        ("glue://127.0.0.1:5000", "endpoint_url=http://host:port"),
        ("glue://eu-west-1?secret=planted", "has the option 'secret'; the options of glue:// are"),
        ("glue://eu-west-1?x=y", "the options of glue:// are catalog_id, endpoint_url, profile"),
        ("hms://me@meta", "has a password in it"),
        ("hms://me:planted@meta", "has a password in it"),
        ("hms://me:planted@meta:port", "has a password in it"),
        ("hms://me%253Aplanted%2540meta", "has a password in it"),
        ("hms://me:12/34planted@meta:9083/sales", "has a password in it"),
        ("hms://me:s?planted@meta:9083/sales", "has an unknown option; the options of hms:// are"),
        ("hms://me:12/planted?planted@meta", "has an unknown option; the options of hms:// are"),
        ("thrift://me:pl@nted/planted@meta", "neither hms:// nor glue://"),
        ("glue://eu-west-1?endpoint_url=http://me:planted@host:5000", "has a password in its option endpoint_url"),
        ("glue://r?endpoint_url=http%3A%2F%2Fme%3Aplanted%40host", "has a password in its option endpoint_url"),
        ("glue://r?endpoint_url=http:me:planted@host", "has a password in its option endpoint_url"),
        ("glue://r?endpoint_url=http://h/?a=1%26secret=planted", "has a password in its option endpoint_url"),
        ("glue://eu-west-1?aws_secret_access_key=planted", "has the option 'aws_secret_access_key'"),
        ("hms://meta?timeout_seconds=soon&password=planted", "has the option 'password'"),
        ("hms://meta:port?password=planted", "has the option 'password'"),
    ],
)
def test_a_wrong_address_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidSourceError, match=said) as refused:
        SourceAddress.parse(text)
    assert "source" in str(refused.value)
    assert "planted" not in str(refused.value)


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("sales", "sales.orders sales.order_items"),
        ("sales.*", "sales.orders sales.order_items"),
        ("sales.order_*", "sales.order_items"),
        ("SALES.Orders", "sales.orders"),
        ("*.orders", "sales.orders crm.orders"),
        ("s*", "sales.orders sales.order_items"),
        ("sales.order?", "sales.orders"),
        ("[s]ales", ""),
    ],
)
def test_patterns_say_which_tables_are_meant(pattern: str, meant: str) -> None:
    known = [TableName.parse(name) for name in ("sales.orders", "sales.order_items", "crm.orders")]
    selection = Selection.parse([pattern])
    assert " ".join(str(name) for name in known if selection.has_table(name)) == meant


def test_only_what_is_named_has_to_be_there() -> None:
    selection = Selection.parse(["sales", "crm.*", "hr.staff", "*.orders"])
    assert selection.named == {TableName("hr", "staff")}
    assert selection.named_databases == {"sales", "crm", "hr"}
    whole = [name for name in ("sales", "crm", "hr", "else") if selection.has_whole_database(name)]
    assert whole == ["sales", "crm"]
    assert Selection.parse([]).has_whole_database("any")


@pytest.mark.parametrize("pattern", ["", "a.b.c", ".b", "a."])
def test_a_wrong_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidSourceError, match=r"neither database nor database\.table"):
        Selection.parse([pattern])


# --- definitions ----------------------------------------------------------------------------------------------------


def test_a_table_is_what_its_source_says() -> None:
    parameters = {
        "comment": "All orders",
        "EXTERNAL": "TRUE",
        "transient_lastDdlTime": "1700000000",
        "numRows": "5",
        "spark.sql.statistics.totalSize": "9",
        "calve.source": "hms://elsewhere/a.b",
        "owner.team": "sales",
    }
    table = replace(ORDERS, parameters=parameters, storage=stored(PARQUET, bucket_columns=("ID",), bucket_count=4))
    definition = definition_of(table, ADDRESS)
    assert definition.columns == (Column("id", "bigint"), Column("name", "varchar(20)", "whose"))
    assert definition.partition_keys == (Column("day", "date"),)
    assert (definition.format, definition.location) == (FileFormat.PARQUET, "file:/data/orders")
    assert (definition.kind, definition.description) == (TableKind.EXTERNAL, "All orders")
    assert definition.properties == {"owner.team": "sales", SOURCE_PROPERTY: ADDRESS}
    assert definition.buckets == Buckets(("id",), 4)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (PARQUET, FileFormat.PARQUET),
        (ORC, FileFormat.ORC),
        (AVRO, FileFormat.AVRO),
        (TEXT, FileFormat.TEXTFILE),
        ((TEXT[0], "", "org.apache.hadoop.hive.serde2.JsonSerDe"), FileFormat.JSONFILE),
        ((TEXT[0], "", "org.apache.hadoop.hive.serde2.OpenCSVSerde"), FileFormat.TEXTFILE),
        (("org.apache.hadoop.hive.ql.io.RCFileInputFormat", "", TEXT[2]), FileFormat.RCFILE),
        (("org.apache.hadoop.mapred.SequenceFileInputFormat", "", TEXT[2]), FileFormat.SEQUENCEFILE),
    ],
)
def test_the_format_is_that_of_the_classes(classes: tuple[str, ...], expected: FileFormat) -> None:
    assert definition_of(replace(ORDERS, storage=stored(classes)), ADDRESS).format is expected


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"storage": stored((PARQUET[0], "", ORC[2]))}, "correct one of them"),
        ({"storage": stored(("com.example.Input", "", PARQUET[2]))}, r"com\.example\.Input"),
        ({"storage": HiveStorage()}, "unknown input format"),
        ({"location": None}, "has no location"),
        ({"table_type": "MATERIALIZED_VIEW"}, "MATERIALIZED_VIEW"),
        ({"table_type": "VIRTUAL_VIEW"}, "view without a SELECT"),
        ({"table_type": "VIRTUAL_VIEW", "view_text": "/* Presto View: eyJ9 */"}, "view of Trino or Presto"),
        ({"parameters": {"table_type": "ICEBERG"}}, "is an Iceberg table"),
        ({"parameters": {"table_type": "delta"}}, "is a Delta table"),
        ({"parameters": {"spark.sql.sources.provider": "DELTA"}}, "is a Delta table"),
        ({"parameters": {"spark.sql.sources.provider": "hudi"}}, "is a Hudi table"),
        ({"parameters": {"spark.sql.sources.provider": "jdbc"}}, "Spark table of the format 'jdbc'"),
        ({"storage": stored(("org.apache.hudi.hadoop.HoodieParquetInputFormat", "", PARQUET[2]))}, "is a Hudi table"),
        ({"parameters": {"transactional": "TRUE"}}, "transactional"),
        ({"parameters": {"storage_handler": "org.apache.hadoop.hive.hbase.HBaseStorageHandler"}}, "storage handler"),
    ],
)
def test_what_would_read_wrong_is_refused_with_its_reason(fields: dict[str, object], said: str) -> None:
    with pytest.raises(UnsupportedSourceTableError, match=said) as refused:
        definition_of(replace(ORDERS, **fields), ADDRESS)  # type: ignore[arg-type]
    assert "sales.orders" in str(refused.value)


def test_a_view_is_its_text() -> None:
    view = replace(ORDERS, table_type="VIRTUAL_VIEW", view_text="SELECT 1 AS id", storage=HiveStorage())
    definition = definition_of(view, ADDRESS)
    assert (definition.kind, definition.view_text, definition.location) == (TableKind.VIEW, "SELECT 1 AS id", "")


SPARK_FIELDS = [
    {"name": "Id", "type": "long", "nullable": True, "metadata": {"comment": "which"}},
    {"name": "code", "type": "string", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}},
    {
        "name": "items",
        "type": {
            "type": "array",
            "elementType": {
                "type": "struct",
                "fields": [
                    {"name": "n", "type": "short"},
                    {"name": "by", "type": {"type": "map", "keyType": "string", "valueType": "decimal(10,2)"}},
                ],
            },
        },
    },
    {"name": "day", "type": "date", "metadata": {}},
]


@pytest.mark.parametrize("part_length", [None, 40])
def test_columns_of_a_table_of_sparks_own_are_in_its_parameters(part_length: int | None) -> None:
    schema = json.dumps({"type": "struct", "fields": SPARK_FIELDS})
    parameters = {"spark.sql.sources.provider": "csv"}
    if part_length is None:
        parameters["spark.sql.sources.schema"] = schema
    else:
        parts = [schema[start : start + part_length] for start in range(0, len(schema), part_length)]
        parameters |= {f"spark.sql.sources.schema.part.{number}": part for number, part in enumerate(parts)}
        parameters["spark.sql.sources.schema.numParts"] = str(len(parts))
    placeholder = HiveStorage(
        "org.apache.hadoop.mapred.SequenceFileInputFormat",
        TEXT[2],
        {"path": "file:/data/orders", "header": "TRUE", "serialization.format": "1"},
    )
    table = replace(
        ORDERS,
        columns=(Column("col", "array<string>"),),
        parameters=parameters,
        storage=placeholder,
        location="file:/warehouse/orders-__PLACEHOLDER__",
    )
    definition = definition_of(table, ADDRESS)
    assert definition.columns == (
        Column("id", "bigint", "which"),
        Column("code", "char(3)"),
        Column("items", "array<struct<n:smallint,by:map<string,decimal(10,2)>>>"),
    )
    assert (definition.format, definition.location) == (FileFormat.CSV, "file:/data/orders")


def test_csv_that_is_read_otherwise_here_is_recorded_only() -> None:
    storage = replace(stored(TEXT), serde_parameters={"sep": ";", "header": "true"})
    table = replace(ORDERS, parameters={"spark.sql.sources.provider": "csv"}, storage=storage)
    assert definition_of(table, ADDRESS).format is FileFormat.TEXTFILE


def test_a_partition_has_its_own_place_format_and_numbers() -> None:
    made = Partitions(definition_of(ORDERS, ADDRESS), None)
    parameters = {"numRows": "7", "numFiles": "2", "totalSize": "-1", "transient_lastDdlTime": "1", "by": "me"}
    own = made.of(HivePartition(("2024-01-01",), stored(ORC), parameters, "/elsewhere"))
    assert (own.location, own.format) == ("/elsewhere", FileFormat.ORC)
    assert (own.row_count, own.file_count, own.size_bytes) == (7, 2, None)
    assert own.properties == {"by": "me"}
    analyzed = made.of(HivePartition(("2024-01-01",), stored(PARQUET), {"spark.sql.statistics.numRows": "8"}))
    assert (analyzed.row_count, analyzed.properties) == (8, None)
    null = made.of(HivePartition(("__HIVE_DEFAULT_PARTITION__",), HiveStorage(), {}))
    assert null.values == (None,)
    assert null.location == "file:/data/orders/day=__HIVE_DEFAULT_PARTITION__"
    assert (null.format, null.properties, null.row_count) == (FileFormat.PARQUET, None, None)


@given(st.text(max_size=20))
def test_numbers_that_are_none_are_not_known(text: str) -> None:
    made = Partitions(definition_of(ORDERS, ADDRESS), None)
    partition = made.of(HivePartition(("2024-01-01",), stored(PARQUET), {"numRows": text}))
    assert partition.row_count is None or str(partition.row_count) == text.lstrip("0") or int(text) == 0
