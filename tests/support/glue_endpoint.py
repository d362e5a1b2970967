"""A local Glue endpoint: moto's server over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.request import Request, urlopen

PARQUET = (
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
)
ORC = (
    "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat",
    "org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat",
    "org.apache.hadoop.hive.ql.io.orc.OrcSerde",
)
AVRO = (
    "org.apache.hadoop.hive.ql.io.avro.AvroContainerInputFormat",
    "org.apache.hadoop.hive.ql.io.avro.AvroContainerOutputFormat",
    "org.apache.hadoop.hive.serde2.avro.AvroSerDe",
)
_AT_ONCE = 100


def columns(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    """Return columns in Glue's format."""
    return [{"Name": name, "Type": text} for name, text in pairs]


def storage(location: str, classes: Sequence[str] = PARQUET, **more: Any) -> dict[str, Any]:
    """Return a storage descriptor."""
    input_format, output_format, serde = classes
    return {
        "Columns": columns(("id", "bigint"), ("name", "varchar(20)")),
        "Location": location,
        "InputFormat": input_format,
        "OutputFormat": output_format,
        "SerdeInfo": {"SerializationLibrary": serde, "Parameters": {"serialization.format": "1"}},
        **more,
    }


@dataclass
class GlueEndpoint:
    """A running endpoint, and a client of it."""

    url: str
    client: Any = field(init=False)

    def __post_init__(self) -> None:
        import boto3

        self.client = boto3.client("glue", region_name="eu-west-1", endpoint_url=self.url)

    def source(self, path: str = "") -> str:
        """Return the endpoint's address as an import source."""
        return f"glue://eu-west-1{path}?endpoint_url={self.url}"

    def reset(self) -> None:
        """Delete all databases and tables."""
        with urlopen(Request(f"{self.url}/moto-api/reset", method="POST")):
            pass

    def create_table(self, database: str, name: str, **fields: Any) -> None:
        """Create a table."""
        said = {"Name": name, "TableType": "EXTERNAL_TABLE", "PartitionKeys": [], "Parameters": {}, **fields}
        self.client.create_table(DatabaseName=database, TableInput=said)

    def add_partitions(self, database: str, name: str, partitions: Iterator[Mapping[str, Any]]) -> None:
        """Add partitions in Glue's format."""
        while batch := list(islice(partitions, _AT_ONCE)):
            answer = self.client.batch_create_partition(DatabaseName=database, TableName=name, PartitionInputList=batch)
            assert not answer.get("Errors"), answer["Errors"]


@contextmanager
def running_glue() -> Iterator[GlueEndpoint]:
    """Run an endpoint on a free local port."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield GlueEndpoint(f"http://{host}:{port}")
    finally:
        server.stop()
