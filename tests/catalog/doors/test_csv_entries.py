"""Calve's CSV tables have entries by which engines read the same rows as Calve, and stay CSV tables."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from catalog import Catalog
from catalog.doors.entries import Entries
from catalog.metastores.types import HivePartition, HiveStorage, HiveTable
from catalog.model import Column, FileFormat
from catalog.model.identifiers import TableName
from tests.support.entries import PARQUET

NAME = TableName("demo", "c")
SCHEMA = "spark.sql.sources.schema"
LAZY = HiveStorage(
    "org.apache.hadoop.mapred.TextInputFormat",
    "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
    {"field.delim": ",", "serialization.format": ","},
    "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
)


@pytest.fixture
def entry(catalog: Catalog, entries: Entries) -> HiveTable:
    catalog.create_table(
        str(NAME),
        columns=[Column("a", "int", "its number"), Column("b", "varchar(5)"), Column("n", "decimal(5,1)")],
        partition_keys=[("k", "string")],
        format="csv",
    )
    return entries.table(NAME)


def test_spark_reads_a_csv_table_with_its_types_and_header(entry: HiveTable) -> None:
    assert entry.parameters["spark.sql.sources.provider"] == "csv"
    assert entry.parameters["skip.header.line.count"] == "1"
    fields = json.loads(entry.parameters[SCHEMA])["fields"]
    assert [(field["name"], field["type"]) for field in fields] == [
        ("a", "integer"),
        ("b", "string"),
        ("n", "decimal(5,1)"),
        ("k", "string"),
    ]
    assert fields[0]["metadata"] == {"comment": "its number"}
    assert fields[1]["metadata"] == {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}
    assert (entry.parameters[f"{SCHEMA}.numPartCols"], entry.parameters[f"{SCHEMA}.partCol.0"]) == ("1", "k")
    assert entry.storage.serde == "org.apache.hadoop.hive.serde2.OpenCSVSerde"
    options = entry.storage.serde_parameters
    assert (options["header"], options["escapeChar"], options["timeZone"]) == ("true", "\\", "UTC")
    assert options["path"] == f"file:{entry.location}"


def test_a_csv_table_that_a_client_sends_back_is_the_same(entries: Entries, catalog: Catalog, entry: HiveTable) -> None:
    entries.add_partitions(NAME, [HivePartition(("x",), entry.storage)])
    changed = replace(entry, parameters={**entry.parameters, "by": "me"})
    assert entries.alter_table(NAME, changed) == changed
    table = catalog.get_table(str(NAME))
    assert (table.format, table.properties) == (FileFormat.CSV, {"by": "me"})
    [partition] = catalog.get_partitions(str(NAME))
    assert (partition.format, partition.descriptor_id) == (None, None)
    assert entries.table(NAME) == changed
    moved = entries.alter_table(NAME, replace(changed, name=TableName("demo", "d"), location=entry.location))
    assert moved.storage.serde_parameters["path"] == f"file:{moved.location}"
    assert catalog.get_table("demo.d").properties == {"by": "me"}


@pytest.mark.parametrize(
    ("file_format", "derived"),
    [
        ("csv", [("string", "from deserializer")] * 5),
        ("avro", [("int", "its number"), ("varchar(5)", ""), ("decimal(5,1)", ""), ("array<int>", ""), ("int", "")]),
    ],
)
def test_columns_that_a_client_has_from_a_class_of_hive_keep_their_types_and_comments(
    entries: Entries, catalog: Catalog, file_format: str, derived: list[tuple[str, str]]
) -> None:
    texts = ["int", "varchar(5)", "decimal(5,1)", "array<smallint>", "tinyint"]
    columns = [Column(f"c{number}", text) for number, text in enumerate(texts)]
    columns[0] = replace(columns[0], comment="its number")
    if file_format == "csv":
        # Calve shows no CSV files with nested columns.
        columns[3] = replace(columns[3], type="date")
    before = catalog.create_table(str(NAME), columns=columns, format=file_format)
    sent = [Column(f"c{number}", kind, comment) for number, (kind, comment) in enumerate(derived)]
    entry = entries.table(NAME)
    changed = replace(entry, columns=(*sent, Column("more", "string")), parameters={**entry.parameters, "by": "me"})
    entries.alter_table(NAME, replace(changed, name=TableName("demo", "d")))
    table = catalog.get_table("demo.d")
    assert table.columns == (*before.columns, Column("more", "string"))
    assert [column.id for column in table.columns[:5]] == [1, 2, 3, 4, 5]
    assert (table.format, table.properties) == (before.format, {"by": "me"})


@pytest.mark.parametrize("is_spark", [False, True], ids=["Hive", "Spark"])
def test_columns_that_a_client_adds_are_those_of_spark(
    entries: Entries, catalog: Catalog, entry: HiveTable, is_spark: bool
) -> None:
    added = Column("later", "date")
    parameters = dict(entry.parameters)
    if is_spark:
        schema = json.loads(parameters[SCHEMA])
        schema["fields"].insert(3, {"name": "later", "type": "date", "nullable": True, "metadata": {}})
        text = json.dumps(schema)
        del parameters[SCHEMA]
        parameters |= {f"{SCHEMA}.numParts": "2", f"{SCHEMA}.part.0": text[:50], f"{SCHEMA}.part.1": text[50:]}
    after = entries.alter_table(NAME, replace(entry, columns=(*entry.columns, added), parameters=parameters))
    assert [field["name"] for field in json.loads(after.parameters[SCHEMA])["fields"]] == ["a", "b", "n", "later", "k"]
    assert catalog.get_table(str(NAME)).properties == {}
    catalog.alter_table(str(NAME), add_columns=[("more", "int")])
    assert "more" in entries.table(NAME).parameters[SCHEMA]


def test_a_csv_table_whose_columns_engines_would_mix_up_is_unreadable(
    entries: Entries, catalog: Catalog, entry: HiveTable
) -> None:
    entries.add_partitions(NAME, [HivePartition(("x",), entry.storage)])
    catalog.alter_table(str(NAME), drop_columns=["b"])
    refused = entries.table(NAME)
    assert refused.storage.input_format == "calve.only_calve_reads_these_files.csv"
    assert "spark.sql.sources.provider" not in refused.parameters
    [partition] = entries.partitions(NAME)
    assert partition.storage.input_format == refused.storage.input_format
    entries.alter_table(NAME, replace(refused, parameters={"by": "me"}))
    entries.alter_partitions(NAME, [(("x",), partition._replace(parameters={"by": "me"}))])
    assert catalog.get_table(str(NAME)).format is FileFormat.CSV
    assert [(found.format, found.descriptor_id) for found in catalog.get_partitions(str(NAME))] == [(None, None)]


def test_partitions_of_another_format_are_unreadable(entries: Entries, catalog: Catalog, entry: HiveTable) -> None:
    entries.add_partitions(NAME, [HivePartition(("p",), PARQUET), HivePartition(("t",), LAZY)])
    formats = [partition.format for partition in catalog.get_partitions(str(NAME))]
    assert formats == [FileFormat.PARQUET, FileFormat.TEXTFILE]
    found = list(entries.partitions(NAME))
    assert [partition.storage.input_format for partition in found] == [
        f"calve.only_calve_reads_these_files.{name}" for name in ("parquet", "textfile")
    ]
    entries.alter_partitions(NAME, [(partition.values, partition) for partition in found])
    assert [partition.format for partition in catalog.get_partitions(str(NAME))] == formats


def test_spark_s_own_csv_tables_are_what_went_in(entries: Entries, catalog: Catalog) -> None:
    given = HiveTable(
        NAME,
        "MANAGED_TABLE",
        (Column("a", "int"),),
        (),
        replace(LAZY, serde_parameters={"header": "true", "path": "/elsewhere", "serialization.format": "1"}),
        parameters={"spark.sql.sources.provider": "csv", SCHEMA: '{"fields":[]}'},
    )
    created = entries.create_table(given)
    assert catalog.get_table(str(NAME)).format is FileFormat.CSV
    assert (created.parameters, created.storage) == (given.parameters, given.storage)
    assert entries.table(NAME) == created
