"""The `calve` command: its output and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from catalog import Catalog, IndexDefinition, NewPartition
from catalog.errors import InvalidLocationError
from catalog.operations.records import OperationKind
from tests.support.commands import calve
from tests.support.written_files import Load, data_files, hashed_table, known, on_disk

NOTHING = "Nothing to delete. Files of dropped tables and partitions stay unless they are dropped with PURGE.\n"


def test_init_works_without_a_server_and_twice(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    for _ in range(2):
        done = calve("init", CALVE_CATALOG_URL=url)
        assert (done.exit_code, done.stderr) == (0, "")
        assert "is ready" in done.stdout
    listed = calve("tables", CALVE_CATALOG_URL=url)
    assert (listed.exit_code, listed.stdout, listed.stderr) == (0, "", "There are no tables yet.\n")


def test_command_is_a_program(flights: Catalog) -> None:
    command = [sys.executable, "-m", "catalog.cli", "tables"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "demo.flights" in done.stdout
    assert subprocess.run([*command, "--database", "none"], capture_output=True, check=False).returncode == 1


@pytest.fixture
def flights(catalog: Catalog) -> Catalog:
    catalog.create_table(
        "demo.flights",
        columns=[("delay", "int")],
        partition_keys=[("origin", "string"), ("month", "int")],
        indexes=[IndexDefinition("by_origin", ("origin", "month"))],
    )
    values = [(origin, str(month)) for origin in ("JFK", "LGA") for month in range(1, 13)]
    catalog.add_partitions("demo.flights", [NewPartition(each, row_count=5) for each in values])
    return catalog


def test_partitions_are_listed_as_hive_shows_them(flights: Catalog) -> None:
    done = calve("partitions", "demo.flights", "--where", "origin = 'JFK' and month > 10")
    assert (done.exit_code, done.stdout) == (0, "origin=JFK/month=11\norigin=JFK/month=12\n")


def test_partitions_as_json(flights: Catalog) -> None:
    done = calve("partitions", "demo.flights", "--where", "origin = 'JFK' and month = 11", "--json")
    found = json.loads(done.stdout)
    assert found["values"] == {"origin": "JFK", "month": "11"}
    assert (found["partition"], found["row_count"]) == ("origin=JFK/month=11", 5)


def test_explain_as_text_and_json(flights: Catalog) -> None:
    arguments = ["partitions", "demo.flights", "--where", "origin = 'JFK' and month > 10", "--explain"]
    assert "range:              origin = 'JFK' and month > 10" in calve(*arguments).stdout
    explained = json.loads(calve(*arguments, "--json").stdout)
    assert explained["index"] == "by_origin"
    assert explained["index_conditions"] == [
        {"key": "origin", "operator": "="},
        {"key": "month", "operator": ">"},
    ]
    assert (explained["items_read"], explained["partitions_fetched"], explained["residual_keys"]) == (2, 2, [])


def test_tables_indexes_and_operations(flights: Catalog) -> None:
    flights.operations.begin("run-1", OperationKind.ADD_PARTITIONS, "demo.flights")
    assert "origin string, month int" in calve("tables").stdout
    assert json.loads(calve("tables", "--json").stdout)["table"] == "demo.flights"
    flights.create_view("demo.late", "SELECT * FROM demo.flights")
    assert "demo.late     view" in calve("tables").stdout
    view = json.loads(calve("tables", "--json").stdout.splitlines()[1])
    assert (view["table"], view["kind"], view["format"], view["location"]) == ("demo.late", "view", None, None)
    flights.drop_table("demo.late")
    assert calve("indexes", "demo.flights").stdout.splitlines()[1].split() == [
        "by_origin",
        "origin,",
        "month",
        "ACTIVE",
    ]
    assert json.loads(calve("operations", "--json").stdout)["state"] == "PLANNED"


def test_spark_gets_a_place_for_the_keys_of_a_client_where_the_doors_need_them() -> None:
    assert "access key" not in calve("spark-conf", CALVE_DOOR_KEYS="").stdout
    lines = calve("spark-conf", CALVE_DOOR_KEYS="keys.yaml").stdout.splitlines()
    assert "spark.sql.catalog.spark_catalog.credential <access key>:<secret key>" in lines
    assert "without CALVE_DOOR_KEYS on 127.0.0.1" in " ".join(line for line in lines if line.startswith("#"))


def test_spark_gets_the_settings_of_the_catalogs_iceberg_tables(catalog: Catalog, catalog_url: str) -> None:
    done = calve("spark-conf", "--jdbc", CALVE_WAREHOUSE="s3://lake/a b", CALVE_SPARK_PACKAGES="")
    assert (done.exit_code, done.stderr) == (0, "")
    settings = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert settings["spark.sql.catalog.calve"] == "org.apache.iceberg.spark.SparkCatalog"
    assert settings["spark.sql.catalog.calve.warehouse"] == "s3://lake/a b"
    assert "iceberg-spark-runtime" in settings["spark.jars.packages"]
    kind = catalog_url.partition(":")[0].partition("+")[0]
    assert settings["spark.sql.catalog.calve.uri"].startswith(f"jdbc:{kind}:")
    assert kind in settings["spark.jars.packages"]
    assert "spark.jars.packages" not in calve("spark-conf", "--jdbc", CALVE_SPARK_PACKAGES="none").stdout


def test_spark_gets_the_settings_of_a_session_through_the_doors(tmp_path: Path) -> None:
    done = calve("spark-conf", "--hms", "doors:1", "--rest", "https://doors:2", CALVE_WAREHOUSE=str(tmp_path))
    assert (done.exit_code, done.stderr) == (0, "")
    settings = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert settings["spark.hadoop.hive.metastore.uris"] == "thrift://doors:1"
    assert settings["spark.sql.catalog.spark_catalog"] == "org.apache.iceberg.spark.SparkSessionCatalog"
    assert (
        settings["spark.sql.catalog.spark_catalog.uri"] == settings["spark.sql.catalog.calve.uri"] == "https://doors:2"
    )
    assert not [name for name in settings if "jdbc" in name]


@pytest.mark.parametrize(
    ("hms", "rest", "uris"),
    [
        ("doors:1", "doors:2", ("thrift://doors:1", "http://doors:2")),
        ("thrift://doors:1", "https://doors/calve", ("thrift://doors:1", "https://doors/calve")),
        ("9083", "[::1]:8181", ("thrift://127.0.0.1:9083", "http://[::1]:8181")),
    ],
)
def test_addresses_of_doors_are_completed(hms: str, rest: str, uris: tuple[str, str]) -> None:
    lines = calve("spark-conf", "--hms", hms, "--rest", rest).stdout.splitlines()
    settings = dict(line.split(" ", 1) for line in lines)
    assert (settings["spark.hadoop.hive.metastore.uris"], settings["spark.sql.catalog.calve.uri"]) == uris


@pytest.mark.parametrize(
    "rest", ["doors", "ftp://doors:1", "http://", "http://doors:x", "http://me:pw@doors", "a b:1", ""]
)
def test_addresses_that_are_none_are_refused(rest: str) -> None:
    done = calve("spark-conf", "--rest", rest)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"--rest is {rest!r}, expected a URL such as http://127.0.0.1:8181" in done.stderr
    assert calve("spark-conf", "--hms", "http://doors:1").exit_code == 1


def test_verify_names_what_differs_and_repairs_it(flights: Catalog) -> None:
    exact = calve("verify", "demo.flights")
    assert (exact.exit_code, exact.stderr) == (0, "")
    assert "by_origin of demo.flights is exact: 24 partitions and 24 items" in exact.stdout

    with flights.storage.write() as connection:
        taken = flights.get_partition("demo.flights", ("JFK", "7"))
        connection.exec_driver_sql(f"DELETE FROM calve_index_item WHERE partition_id = {taken.id}")
    found = calve("verify", "demo.flights", "by_origin", "--json")
    assert found.exit_code == 1
    assert found.stderr == "VerificationFailedError: by_origin of demo.flights differ from its partitions\n"
    (difference,) = json.loads(found.stdout)["differences"]
    assert (difference["kind"], difference["values"]) == ("MISSING", ["JFK", "7"])

    repaired = calve("verify", "demo.flights", "--repair")
    assert (repaired.exit_code, repaired.stderr) == (0, "")
    assert repaired.stdout.endswith("1 repaired\n")
    assert calve("verify", "demo.flights").exit_code == 0


def test_a_build_is_cancelled(flights: Catalog) -> None:
    flights.create_partition_index("demo.flights", "by_month", ["month"])
    done = calve("cancel-build", "demo.flights", "by_month")
    assert (done.exit_code, done.stdout) == (0, "Partition index by_month of demo.flights is FAILED: CANCELLED.\n")
    assert "CANCELLED: cancelled by `calve cancel-build`" in calve("indexes", "demo.flights").stdout
    refused = calve("cancel-build", "demo.flights", "by_origin")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "by_origin of demo.flights is ACTIVE" in refused.stderr


def test_operation_that_is_cancelled_releases_its_table(flights: Catalog) -> None:
    flights.operations.begin("run/1", OperationKind.ADD_PARTITIONS, "demo.flights", is_exclusive=True)
    assert calve("give-up", "run/1").stdout == "Operation run/1 is FAILED.\n"
    flights.operations.begin("run/2", OperationKind.ADD_PARTITIONS, "demo.flights", is_exclusive=True)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["partitions", "demo.none"], "TableNotFoundError: table demo.none does not exist"),
        (["partitions", "demo.flights", "--where", "day = 1"], "UnknownColumnError: 'day' is not a partition key"),
        (["partitions", "demo.flights", "--where", "month = 'x'"], "LiteralTypeError: key 'month' is of type int"),
        (["partitions", "demo.flights", "--where", "month ="], "ExpressionSyntaxError: the end cannot be read"),
        (["operations", "none"], "OperationNotFoundError: there is no operation none"),
    ],
)
def test_errors_go_to_stderr_with_their_class(flights: Catalog, arguments: list[str], error: str) -> None:
    done = calve(*arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(error)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "CALVE_CATALOG_URL is not set"),
        ("mysql://host/x", "neither for PostgreSQL nor for SQLite"),
        ("postgresql://nobody:secret@127.0.0.1:1/none", "cannot be reached"),
        ("sqlite:///{folder}/empty.db", "has no schema yet"),
        ("sqlite:///{folder}/typo.db", "/typo.db; check CALVE_CATALOG_URL, or create"),
    ],
)
def test_unusable_catalog_is_said(url: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    done = calve("tables", CALVE_CATALOG_URL=url.format(folder=tmp_path))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(("CatalogUnavailableError: ", "CatalogNotConfiguredError: "))
    assert said in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize(
    ("warehouse", "reason"),
    [
        ("s3://KEY:planted@bucket/wh", "CALVE_WAREHOUSE 's3://***' has a password in it"),
        ("s3://bucket/wh?secret_key=planted", "CALVE_WAREHOUSE 's3://***' has a password in it"),
        ("s3://bucket/wh?region=eu-west-1", "CALVE_WAREHOUSE 's3://bucket/wh?region=eu-west-1' has options"),
    ],
)
@pytest.mark.parametrize("command", ["init", "tables"])
def test_an_unusable_warehouse_is_refused(command: str, warehouse: str, reason: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    done = calve(command, CALVE_CATALOG_URL=url, CALVE_WAREHOUSE=warehouse)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"InvalidLocationError: {reason}")
    assert "planted" not in done.stderr
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("location", ["s3://KEY:planted@bucket/d", "s3://bucket/d?region=eu-west-1"])
def test_a_database_with_options_or_a_password_is_refused(catalog: Catalog, location: str) -> None:
    with pytest.raises(InvalidLocationError) as refusal:
        catalog.create_database("d", location=location)
    assert "planted" not in str(refusal.value)


def test_vacuum_says_what_it_deletes(catalog: Catalog) -> None:
    table = hashed_table(catalog)
    Load(catalog, table, "one").run()
    Load(catalog, table, "two").run(retired=data_files(catalog, table)[:1])
    assert calve("vacuum").stdout == NOTHING
    would = calve("vacuum", "demo.h", "--grace-hours", "0", "--dry-run")
    assert would.stdout.startswith("demo.h: would be deleted: 1 replaced file(s), 100 bytes; 4 orphan(s), ")
    done = calve("vacuum", "--grace-hours", "0", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["tables"][0]["retired_files"] == 1
    assert on_disk(table.location) == known(catalog, table)


def test_vacuum_ends_with_an_error_when_something_is_left(catalog: Catalog) -> None:
    catalog.create_table("demo.far", columns=[("v", "int")], location="nowhere://host/t")
    done = calve("vacuum")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("FilesNotDeletedError: demo.far: nowhere://host/t could not be vacuumed: ")
