"""Jobs on a cluster: code and credentials reach executors of another user, which has neither."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from catalog import Catalog, IndexState, NewPartition
from catalog.operations.records import OperationKind
from catalog.schemes.ranges import RangeScheme
from tests.on_s3.conftest import write_orders
from tests.support.command_lines import CommandLines
from tests.support.iceberg_tables import COLUMNS, KEYS, PARTITIONS
from tests.support.index_items import assert_every_partition_has_its_item
from tests.support.object_store import ObjectStore
from tests.support.spark_cluster import ClusterOfTests

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

DELAYS, ORDERS = "lake.delays", "lake.orders"
STATEMENTS = f"""
    LOAD DATA INPATH 's3://lake/landing/delays.csv' INTO TABLE {DELAYS} OPTIONS ('HEADER'='true');
    ALTER TABLE {DELAYS} SPLIT PARTITION (2) INTO ('15', '30');
    CALL iceberg.system.migrate('lake', 'orders');
    SELECT count(*) AS count, sum(delay) AS total FROM {DELAYS};
    SELECT count(*) AS count, sum(id) AS total FROM {ORDERS}
"""


@pytest.mark.long
def test_the_workers_cannot_import_the_code(cluster: ClusterOfTests) -> None:
    ended = cluster.run_as_worker(cluster.python, "-c", "import pyspark, pyarrow, psycopg, catalog")
    assert "No module named 'catalog'" in ended.stderr


@pytest.mark.long
def test_rows_are_loaded_moved_and_migrated(
    submit: Callable[..., Any], catalog: Catalog, object_store: ObjectStore
) -> None:
    scheme = RangeScheme("delay", "int", (), 4, ((1, "0"), (2, "30"), (3, "60")))
    catalog.create_table(DELAYS, columns=[("id", "bigint"), ("delay", "int")], scheme=scheme)
    lines = ["id,delay", *(f"{number},{number - 10}" for number in range(80))]
    object_store.put({"landing/delays.csv": "\n".join(lines).encode()})
    catalog.create_table(ORDERS, columns=COLUMNS, partition_keys=KEYS)
    catalog.add_partitions(ORDERS, [NewPartition(values) for values in PARTITIONS])
    write_orders(catalog, ORDERS)
    catalog.operations.begin("statements", OperationKind.RUN_STATEMENT, DELAYS)
    request = {"table": DELAYS, "statements": STATEMENTS}
    outcomes = submit("run_statement", "statements", request)["outcomes"]
    assert [outcome["rows"] for outcome in outcomes[-2:]] == [[[80, sum(range(-10, 70))]], [[7, 28]]]
    assert catalog.get_table(ORDERS).is_iceberg
    assert [partition.row_count for partition in catalog.scheme_partitions(DELAYS)] == [10, 10, 15, 15, 30]


PROBE = """
import json, os, sys
from sqlalchemy import make_url
from spark_jobs.sessions.local_session import start_session
from spark_jobs.sessions.python_tasks import in_tasks

spark = start_session("probe", make_url(os.environ["CALVE_CATALOG_URL"]))

def environment(items):
    yield {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "PG"))}

tasks = in_tasks(spark, [1], 1, environment)
serialized = bytes(spark._jvm.org.apache.spark.util.Utils.serialize(tasks._jrdd.rdd()))
print(json.dumps({"executor": tasks.first(), "task": serialized.decode("latin-1")}))
"""


@pytest.mark.long
def test_executors_of_a_local_session_have_credentials_that_no_task_has(
    submit: Callable[..., Any], cluster: ClusterOfTests, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVE_SPARK_MASTER", cluster.url)
    lines = CommandLines()
    with lines.watched():
        ended = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    seen = json.loads(ended.stdout.splitlines()[-1])
    assert {seen["executor"]["PGPASSWORD"], seen["executor"]["AWS_SECRET_ACCESS_KEY"]} == set(secrets_of(postgres_url))
    assert "spark_jobs.sessions.python_tasks" in seen["task"]
    for secret in secrets_of(postgres_url):
        assert secret not in seen["task"]
        assert secret.encode() not in b"\n".join(lines.seen)


@pytest.mark.long
def test_an_index_is_built_without_a_password_on_command_lines_or_in_events(
    submit: Callable[..., Any], catalog: Catalog, cluster: ClusterOfTests, postgres_url: str, tmp_path: Any
) -> None:
    catalog.create_table(ORDERS, columns=COLUMNS, partition_keys=KEYS)
    catalog.add_partitions(ORDERS, [NewPartition(("nl", str(year))) for year in range(1900, 2100)])
    catalog.create_partition_index(ORDERS, "by_year", ["year"])
    catalog.operations.begin("build", OperationKind.BUILD_INDEX, ORDERS)
    events = tmp_path / "events"
    events.mkdir()
    logging = {"enabled": "true", "compress": "false", "rolling.enabled": "false", "dir": f"file:{events}"}
    lines = CommandLines()
    with lines.watched():
        conf = {f"spark.eventLog.{name}": value for name, value in logging.items()}
        submit("build_partition_index", "build", {"table": ORDERS, "index": "by_year"}, **conf)
    assert catalog.get_partition_index(ORDERS, "by_year").state is IndexState.ACTIVE
    assert_every_partition_has_its_item(catalog, ORDERS)
    said = b"\n".join(lines.seen).decode(errors="replace")
    logged = "".join(path.read_text() for path in events.iterdir())
    assert "CoarseGrainedExecutorBackend" in said
    assert re.search(r'"spark.executorEnv.PGPASSWORD":"\*+\(redacted\)"', logged)
    for secret in secrets_of(postgres_url):
        assert secret not in said
        assert secret not in logged
        assert cluster.places_with(secret) == []
    assert len(cluster.places_with("spark.executorEnv") + cluster.places_with("PGPASSWORD")) > 0


def secrets_of(url: str) -> list[str]:
    return [str(urlsplit(url).password), "secret-of-the-tests"]
