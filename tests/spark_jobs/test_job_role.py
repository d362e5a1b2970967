"""Jobs under the role of `calve grants`, which may change rows of the catalog, but neither its schema nor approvals."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from catalog import Catalog, IndexState
from catalog.cli.main import main
from catalog.errors import InvalidConfigurationError
from catalog.operations.job_requests import BuildPartitionIndexJob, VerifyPartitionIndexJob
from catalog.operations.records import OperationKind
from catalog.statements.session import Session
from catalog.storage.grants import job_grants
from spark_jobs.build_partition_index import build_partition_index
from spark_jobs.statement_engine import SparkEngine
from spark_jobs.verify_partition_index import verify_partition_index
from standalone.postgres import PostgresServer
from tests.spark_jobs.conftest import Loader
from tests.support.index_items import assert_every_partition_has_its_item

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

ROLE, PASSWORD = 'calve "jobs"', "password-of-jobs"
TABLE = "shop.orders"
STATEMENTS = """
    CREATE TABLE logs (id int) PARTITIONED BY (day int) STORED BY 'carbondata'
      TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='10, 20');
    INSERT INTO logs SELECT id, id FROM range(30);
    ALTER TABLE logs SPLIT PARTITION (2) INTO ('15', '20');
    CREATE TABLE copied PARTITIONED BY (day) AS SELECT * FROM logs;
    UPDATE logs SET id = id + 100 WHERE day < 5;
    UPDATE copied SET id = id + 100 WHERE day < 5;
    MERGE INTO logs USING (SELECT * FROM copied) s ON logs.id = s.id WHEN MATCHED THEN UPDATE SET id = s.id + 1;
    MERGE INTO copied USING (SELECT 50 AS id, 7 AS day) s ON copied.id = s.id WHEN NOT MATCHED THEN INSERT *;
    DELETE FROM logs WHERE id IN (SELECT id FROM copied WHERE id > 20);
    DELETE FROM copied WHERE day = 1;
    INSERT OVERWRITE copied PARTITION (day = 2) SELECT 1;
    ALTER TABLE logs COMPACT;
    ALTER TABLE copied COMPACT;
    CALL calve.system.forget('logs', 'id = 9', true);
    CALL calve.system.forget('copied', 'id = 9', true);
    EXPLAIN SELECT * FROM logs WHERE day = 3;
    TRUNCATE TABLE copied;
    CALL iceberg.system.migrate('shop', 'orders');
    CALL iceberg.system.revert('shop', 'orders');
    DROP TABLE logs PURGE
"""


@pytest.fixture
def role_url(postgres_url: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The catalog's URL for the role, which the printed statements have made."""
    monkeypatch.setenv("CALVE_CATALOG_URL", postgres_url)
    printed = CliRunner().invoke(main, ["grants", ROLE])
    assert printed.exit_code == 0, printed.output
    parts = urlsplit(postgres_url)
    with postgres.connect(parts.path.removeprefix("/")) as connection:
        for _ in range(2):
            connection.execute(printed.output)
        connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(ROLE), PASSWORD))
    url = parts._replace(netloc=f"calve%20%22jobs%22:{PASSWORD}@{parts.hostname}:{parts.port}").geturl()
    monkeypatch.setenv("CALVE_CATALOG_URL", url)
    # The JVM of the tests' session, from which its Python processes have their environment, started earlier.
    with Path(os.environ["PGPASSFILE"]).open("a") as passwords:
        passwords.write(f"*:*:*:{ROLE}:{PASSWORD}\n")
    return url


@pytest.fixture
def jobs_catalog(role_url: str, warehouse: Path) -> Any:
    with Catalog.open(role_url) as opened:
        yield opened


@pytest.mark.long
def test_jobs_load_index_verify_rebalance_and_migrate(
    iceberg_spark: Any, jobs_catalog: Catalog, tmp_path: Path
) -> None:
    catalog = jobs_catalog
    catalog.create_database("shop")
    source = tmp_path / "orders.csv"
    source.write_text("id,country,day\n" + "".join(f"{n},nl,{n % 5}\n" for n in range(20)))
    Loader(iceberg_spark, catalog, TABLE, {"country": "string", "day": "int"}).load(source)
    catalog.create_partition_index(TABLE, "by_day", ["day"])
    run_job(iceberg_spark, catalog, build_partition_index, BuildPartitionIndexJob, OperationKind.BUILD_INDEX)
    assert catalog.get_partition_index(TABLE, "by_day").state is IndexState.ACTIVE
    run_job(iceberg_spark, catalog, verify_partition_index, VerifyPartitionIndexJob, OperationKind.VERIFY_INDEX)
    assert_every_partition_has_its_item(catalog, TABLE)
    with Session(catalog, database="shop", start=lambda opened: SparkEngine(opened, iceberg_spark)) as session:
        for statement in STATEMENTS.split(";"):
            session.execute(statement)
    assert sum(partition.row_count or 0 for partition in catalog.get_partitions(TABLE)) == 20


def run_job(spark: Any, catalog: Catalog, function: Callable[..., Any], job_type: Any, kind: OperationKind) -> None:
    name = job_type.script
    catalog.operations.begin(name, kind, TABLE)
    attempt = catalog.operations.start_job(name, name)
    function(spark, catalog, job_type(operation_id=name, step=name, attempt=attempt, table=TABLE, index="by_day"))


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE calve_job",
        "CREATE TABLE another (id int)",
        "TRUNCATE calve_partition",
        "ALTER TABLE calve_table ADD COLUMN more int",
        "SELECT * FROM calve_approval",
        "INSERT INTO calve_approval DEFAULT VALUES",
        "UPDATE calve_catalog SET identity = 'x'",
        "DELETE FROM calve_alembic_version",
    ],
)
def test_jobs_may_do_nothing_else(role_url: str, statement: str) -> None:
    with (
        psycopg.connect(role_url.replace("+psycopg", "")) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement)


def test_sqlite_has_no_roles(sqlite_url: str) -> None:
    with (
        Catalog.open(sqlite_url) as catalog,
        pytest.raises(InvalidConfigurationError, match="SQLite, which has no roles"),
    ):
        job_grants(catalog.storage, "jobs")


def test_the_owner_keeps_its_rights(postgres_url: str) -> None:
    with Catalog.open(postgres_url) as catalog:
        owner = str(urlsplit(postgres_url).username)
        with pytest.raises(InvalidConfigurationError, match=r"owns the catalog .*; name another role, for jobs only"):
            job_grants(catalog.storage, owner)
