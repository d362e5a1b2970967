"""Maintenance of Iceberg tables that is interrupted between Iceberg's commit and its record in the journal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from catalog import Catalog
from standalone.java import require_java
from tests.support.iceberg_tables import make_orders, migrate

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_a_change_of_the_partition_spec_that_was_committed_is_not_made_again(
    sqlite_url: str, postgres_url: str, tmp_path: Path, iceberg_jar: Path
) -> None:
    urls = [sqlite_url, postgres_url]
    for number, url in enumerate(urls):
        with Catalog.open(url, warehouse=str(tmp_path / str(number))) as catalog:
            catalog.create_database("demo")
            make_orders(catalog)
            migrate(catalog)
    command = [sys.executable, "-m", "tests.support.killed_upkeep", *urls]
    environment = {**os.environ, "JAVA_HOME": str(require_java()), "CALVE_WAREHOUSE": str(tmp_path)}
    done = subprocess.run(command, env=environment, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    for report in map(json.loads, done.stdout.splitlines()):
        assert report["deaths"] == 4
        assert [answer["rows"] for answer in report["answers"]] == [[]] * 4
        assert report["fields"] == ["bucket[4] id_bucket_4", "truncate[10] year_trunc_10", "identity land"]
        # Of a million orphans, the journal has a few and their number.
        assert report["orphans"] == {"rows": 20, "row_count": 50, "left": 0}
        # Iceberg's own procedure would delete the file in the folder of nobody.
        assert report["expired"] == {"deaths": 4, "own": 0, "foreign": True, "snapshots": 1}
        assert len(report["errors"]) == 2
        assert all("bucket" in error for error in report["errors"])
