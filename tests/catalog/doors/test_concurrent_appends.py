"""Eight processes that append at once through a front door of several processes lose nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.hive import HiveCatalog

from catalog import Catalog
from standalone.calve_server import CalveServer
from tests.support import door_appender
from tests.support.door_appender import HIVE, ICEBERG
from tests.support.hms_door import connected, table
from tests.support.index_items import assert_every_partition_has_its_item

PROCESSES = 8
ROOT = Path(__file__).parents[3]


@pytest.mark.long
@pytest.mark.first_case
@pytest.mark.timeout(600)
@pytest.mark.parametrize("door", ["hms", "glue"])
def test_processes_that_append_at_once_lose_nothing(
    catalog: Catalog, catalog_url: str, tmp_path: Path, door: str
) -> None:
    warehouse = str(tmp_path / "warehouse")
    environment = {**os.environ, "CALVE_CATALOG_URL": catalog_url, "CALVE_WAREHOUSE": warehouse}
    environment |= {"CALVE_ALLOWED_LOCATIONS": "*", "PYTHONPATH": str(ROOT)}
    with CalveServer(tmp_path, doors=("hms", "glue"), options=("--workers", "2"), environment=environment) as server:
        host, port = server.address("hms").rsplit(":", 1)
        with connected(int(port)) as client:
            client.create_table(table("demo", HIVE, {"name": "string"}))
        catalog.create_partition_index(f"demo.{HIVE}", "by_name", ["name"])
        schema = pa.schema([("id", pa.int64()), ("note", pa.string())])
        iceberg = HiveCatalog("hive", uri=f"thrift://{host}:{port}", warehouse=warehouse)
        iceberg.create_table(f"demo.{ICEBERG}", schema)
        command = [sys.executable, "-m", door_appender.__name__, door, server.address(door)]
        processes = [
            subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True, env=environment)
            for number in range(PROCESSES)
        ]
        answers = [process.communicate(timeout=500)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * PROCESSES
        numbers = sorted(number for answer in answers for number in json.loads(answer))
        assert len(numbers) == PROCESSES * door_appender.COMMITS
        assert sorted(iceberg.load_table(f"demo.{ICEBERG}").scan().to_arrow()["id"].to_pylist()) == numbers
    names = sorted(name for number in numbers for name in (str(number), f"{number}-1", f"{number}-2"))
    assert sorted(partition.values[0] for partition in catalog.get_partitions(f"demo.{HIVE}")) == names
    assert "Traceback" not in server.log
    assert_every_partition_has_its_item(catalog, f"demo.{HIVE}")
