"""A process that appends partitions, or rows to Iceberg tables, through a front door, until all are in."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

COMMITS, MOST_ATTEMPTS = 2, 200
HIVE, ICEBERG = "events", "notes"
"""The tables of the database `demo`, by their kind."""

Append = Callable[[int], object]


def of_metastore(address: str) -> dict[str, Append]:
    """Return what appends the partition, or the row, of a number through a Hive Metastore."""
    from tests.support.hms_door import connected, partition

    port = int(address.rpartition(":")[2])

    def add(number: int) -> None:
        with connected(port) as client:
            first, *others = [str(number), f"{number}-1", f"{number}-2"]
            client.append_partition("demo", HIVE, [first])
            client.add_partitions([partition("demo", HIVE, [value]) for value in others])

    from pyiceberg.catalog.hive import HiveCatalog

    waits = {"lock-check-min-wait-time": "0.01", "lock-check-max-wait-time": "0.2", "lock-check-retries": "20"}
    return {HIVE: add, ICEBERG: _rows(HiveCatalog("hive", uri=f"thrift://{address}", **waits))}


def of_glue(address: str) -> dict[str, Append]:
    """Return what appends the partition, or the row, of a number through Glue."""
    import boto3
    from pyiceberg.catalog.glue import GlueCatalog

    from tests.support.glue_endpoint import storage

    keys = {"aws_access_key_id": "KEY", "aws_secret_access_key": "secret", "region_name": "eu-west-1"}
    client: Any = boto3.client("glue", endpoint_url=f"http://{address}", **keys)

    def add(number: int) -> None:
        names = [str(number), f"{number}-1", f"{number}-2"]
        inputs = [{"Values": [name], "StorageDescriptor": storage(f"s3://lake/{HIVE}/{name}")} for name in names]
        answer = client.batch_create_partition(DatabaseName="demo", TableName=HIVE, PartitionInputList=inputs)
        assert answer.get("Errors", []) == []

    return {HIVE: add, ICEBERG: _rows(GlueCatalog("glue", client=client))}


def _rows(iceberg: Any) -> Append:
    import pyarrow as pa
    from pyiceberg.exceptions import CommitFailedException

    def append(number: int) -> None:
        rows = pa.table({"id": pa.array([number], pa.int64()), "note": ["x"]})
        for _ in range(MOST_ATTEMPTS):
            try:
                iceberg.load_table(f"demo.{ICEBERG}").append(rows)
                return
            except CommitFailedException:
                # It has lost against others.
                continue
        raise RuntimeError(f"the row {number} could not be appended")

    return append


def main(door: str, address: str, process: int) -> None:
    """Append what is of this process, and print its numbers."""
    numbers = [process * 100 + commit for commit in range(COMMITS)]
    for append in {"hms": of_metastore, "glue": of_glue}[door](address).values():
        for number in numbers:
            append(number)
    print(json.dumps(numbers))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
