"""A metastore that tests fill with databases, tables and partitions through its protocol."""

from __future__ import annotations

from typing import Any

from standalone.hive_metastore import HiveMetastoreServer
from tests.support.glue_endpoint import PARQUET


class Metastore:
    """A metastore with one database for a test, accessed through its protocol."""

    def __init__(self, server: HiveMetastoreServer, source: Any, database: str) -> None:
        from hive_metastore import ttypes

        self.types: Any = ttypes
        self.source = source
        self.thrift = source._client
        self.address = server.source()
        self.database = database
        self.root = f"file:{server.warehouse}/{database}.db"
        made = ttypes.Database(
            name=database, description="What we sell", locationUri=self.root, parameters={"by": "etl"}
        )
        self.thrift.create_database(made)

    def storage(self, location: str, classes: Any = PARQUET, **fields: Any) -> Any:
        input_format, output_format, serde = classes
        columns = [self.types.FieldSchema("id", "bigint", "which"), self.types.FieldSchema("name", "varchar(20)", None)]
        said = {"bucketCols": [], "sortCols": [], "numBuckets": -1, "parameters": {}, "compressed": False, **fields}
        return self.types.StorageDescriptor(
            cols=columns,
            location=location,
            inputFormat=input_format,
            outputFormat=output_format,
            serdeInfo=self.types.SerDeInfo(serializationLib=serde, parameters={"serialization.format": "1"}),
            **said,
        )

    def create(self, name: str = "orders", keys: Any = (("day", "date"), ("s", "string")), **fields: Any) -> None:
        said: dict[str, Any] = {
            "owner": "me",
            "tableType": "MANAGED_TABLE",
            "parameters": {"owner.team": "sales", "comment": "All orders"},
            "sd": self.storage(f"{self.root}/{name}"),
            **fields,
        }
        made = [self.types.FieldSchema(key, text, "a key") for key, text in keys]
        self.thrift.create_table(self.types.Table(tableName=name, dbName=self.database, partitionKeys=made, **said))

    def add(self, values: Any, name: str = "orders", classes: Any = PARQUET, where: str = "own/", **more: str) -> None:
        made = [
            self.types.Partition(
                values=list(each),
                dbName=self.database,
                tableName=name,
                sd=self.storage(f"{self.root}/{where}{number}", classes),
                parameters=dict(more),
            )
            for number, each in enumerate(values)
        ]
        self.thrift.add_partitions(made)

    def table(self, name: str = "orders") -> Any:
        """Return a table without its time stamps."""
        found = self.thrift.get_table(self.database, name)
        found.lastAccessTime = None
        found.parameters.pop("transient_lastDdlTime")
        return found

    def alter(self, **parameters: str) -> None:
        found = self.thrift.get_table(self.database, "orders")
        found.parameters |= parameters
        self.thrift.alter_table(self.database, "orders", found)
