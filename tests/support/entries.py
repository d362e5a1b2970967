"""Entries of metastores to work with."""

from __future__ import annotations

from dataclasses import replace

from catalog.metastores.types import HiveSkew, HiveStorage, HiveTable
from catalog.model import Column
from catalog.model.identifiers import TableName

NAME = TableName("demo", "orders")
PARQUET = HiveStorage(
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
    {"serialization.format": "1"},
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    bucket_count=-1,
    skew=HiveSkew(),
    is_stored_as_subdirectories=False,
)
ORC = replace(
    PARQUET,
    input_format="org.apache.hadoop.hive.ql.io.orc.OrcInputFormat",
    output_format="org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat",
    serde="org.apache.hadoop.hive.ql.io.orc.OrcSerde",
)
STRANGE = HiveStorage(
    "com.example.Input",
    "com.example.SerDe",
    {"Key": "Value", "": ""},
    "com.example.Output",
    serde_name="orders",
    is_compressed=True,
    bucket_columns=("ID",),
    bucket_count=4,
    sort_columns=(("ID", 0),),
    parameters={"a": "b"},
    skew=HiveSkew(("ID",), (("1",),), ((("1",), "/skewed"),)),
    is_stored_as_subdirectories=True,
    extra={"glue": {"SchemaReference": {"SchemaVersionNumber": 1}}},
)
ORDERS = HiveTable(
    NAME,
    "MANAGED_TABLE",
    (Column("id", "bigint"), Column("name", "varchar(20)", "whose")),
    (Column("country", "string"), Column("day", "int", "when")),
    PARQUET,
    parameters={"transient_lastDdlTime": "1700000000", "Owner.Team": "Sales"},
    owner="ann",
    owner_type="USER",
)
