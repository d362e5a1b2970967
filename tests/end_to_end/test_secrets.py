"""Secrets do not appear in command lines, logs, XComs, rendered fields, Spark events or files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pytest

from catalog import Catalog
from catalog.model import NewPartition
from standalone.preparation import AIRFLOW_DATABASE
from standalone.stack import CATALOG_DATABASE
from tests.end_to_end.conftest import PLANTED
from tests.support.command_lines import CommandLines
from tests.support.iceberg_tables import append, make_orders, migrate

if TYPE_CHECKING:
    from standalone.stack import Stack

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)),
    pytest.mark.parametrize("stack", ["postgresql"], indirect=True),
]

STATEMENT_SECRET = "planted-inside-a-statement"
ADDRESS_SECRET = "planted-inside-an-address"
_FORMS = {"dag_run", "log"}
"""Airflow's tables with the forms of runs: the runs, and the audit log."""
_STORES = ("passwords.json", "simple_auth_manager_passwords.json", "stack.json", "calve.env")
"""The password files of the embedded stack, readable only by their owner."""


def secrets_of(stack: Stack) -> set[str]:
    url = urlsplit(stack.catalog_url)
    assert url.password
    return {*PLANTED.values(), url.password, "planted-connection-password"}


def files_with(home: Path, secrets: set[str]) -> list[str]:
    """Return the files of the stack that contain a secret, without database files and password files."""
    found = []
    for path in home.rglob("*"):
        is_own = "postgres" in path.relative_to(home).parts[0] or path.name in _STORES
        if path.is_file() and not path.is_symlink() and not is_own:
            content = path.read_bytes()
            found += [str(path) for secret in secrets if secret.encode() in content]
    return found


def tables_with(connection: psycopg.Connection[Any], secret: str) -> set[str]:
    """Return the tables of a database that contain a string in any column."""
    names = connection.execute(
        "SELECT quote_ident(table_schema) || '.' || quote_ident(table_name), table_name FROM information_schema.tables "
        "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') AND table_type = 'BASE TABLE'"
    ).fetchall()
    assert len(names) > 10
    query = "SELECT EXISTS (SELECT 1 FROM {} AS t WHERE strpos(t::text, %s) > 0)"
    return {name for full, name in names if connection.execute(query.format(full), [secret]).fetchone() == (True,)}


def start_runs(start_dag: Callable[..., Any], table: str) -> dict[str, Any]:
    """Start a run of each DAG that reads secrets, or is given some."""
    return {
        "indexed": start_dag("build_partition_index", {"table": table, "index": "by_month", "keys": ["month"]}),
        "answered": start_dag(
            "run_statement", {"statement": f"SELECT length('{STATEMENT_SECRET}') AS length, id FROM range(3)"}
        ),
        # The session connects to the catalog's database.
        "maintained": start_dag(
            "maintain_iceberg", {"tables": ["secrets.orders"], "expire_snapshots": False, "dry_run": False}
        ),
        "refused": start_dag(
            "run_statement",
            {"statement": "SELECT reflect('java.lang.System', 'getenv', 'CALVE_CATALOG_URL') AS secret"},
        ),
        "foreign": start_dag(
            "run_statement",
            {"statement": "CREATE TABLE secrets.etc (line string) STORED AS TEXTFILE LOCATION '/etc'"},
        ),
        "located": start_dag(
            "run_statement",
            {
                "statement": "CREATE TABLE secrets.s3 (id int) STORED AS PARQUET LOCATION "
                f"'s3://key:{ADDRESS_SECRET}@lake/x'"
            },
        ),
        "loaded": start_dag(
            "add_partitions",
            {"table": "secrets.loaded", "source": f"s3://key:{ADDRESS_SECRET}@lake/x", "keys": ["day int"]},
        ),
        "imported": start_dag("import_tables", {"source": f"hms://me:{ADDRESS_SECRET}@127.0.0.1"}),
    }


@pytest.mark.long
def test_secrets_are_found_nowhere(
    stack: Stack, catalog: Catalog, start_dag: Callable[..., Any], spark_configuration: Path
) -> None:
    table = "secrets.events"
    catalog.create_database("secrets", if_not_exists=True)
    catalog.create_table(table, columns=[("id", "bigint")], partition_keys=[("month", "int")])
    catalog.add_partitions(table, [NewPartition([str(month)]) for month in range(1, 13)])
    make_orders(catalog, "secrets.orders")
    migrate(catalog, "secrets.orders")
    for number in range(8, 14):
        append(stack.catalog_url, [number], "secrets.orders")
    lines = CommandLines()
    with lines.watched():
        runs = start_runs(start_dag, table)
        runs["indexed"].wait()
        runs["answered"].wait()
        runs["maintained"].wait()
        runs["refused"].wait("failed")
        for name in ("foreign", "located", "loaded", "imported"):
            runs[name].wait("failed")
    assert "RefusedStatementError: " in runs["refused"].log("run")
    assert "LocationNotAllowedError: " in runs["foreign"].log("run")
    assert "InvalidLocationError: location 's3://***' has a password" in runs["located"].log("check")
    assert "InvalidLocationError: source 's3://***' has a password" in runs["loaded"].log("discover")
    assert "InvalidSourceError: source hms://*** has a password" in runs["imported"].log("plan")
    secrets = secrets_of(stack)
    said = b"\n".join(lines.seen)
    assert b"spark_jobs/run_statement.py" in said
    of_forms = {STATEMENT_SECRET, ADDRESS_SECRET}
    assert [secret for secret in secrets | of_forms if secret.encode() in said] == []
    assert files_with(Path(stack.home), secrets | {ADDRESS_SECRET}) == []
    events = spark_configuration / "events"
    assert "SparkListenerApplicationStart" in "".join(path.read_text() for path in events.iterdir())
    assert files_with(events, secrets | of_forms) == []
    with stack.postgres.connect(AIRFLOW_DATABASE) as airflow, stack.postgres.connect(CATALOG_DATABASE) as database:
        for connection in (airflow, database):
            assert [found for secret in secrets if (found := tables_with(connection, secret))] == []
        assert [tables_with(airflow, secret) for secret in of_forms] == [_FORMS, _FORMS]
        assert tables_with(database, ADDRESS_SECRET) == set()
        # The journal has the request, and the result of each statement.
        assert tables_with(database, STATEMENT_SECRET) == {"calve_operation", "calve_job"}
