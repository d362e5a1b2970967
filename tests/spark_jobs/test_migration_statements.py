"""Migrations through the statement engine, on a real session: effects on tables and files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.parquet
import pytest

from catalog import Catalog
from catalog.errors import CatalogError, InvalidConfigurationError
from catalog.migration.requests import MigrationRequest
from catalog.operations.records import OperationState
from catalog.statements.results import as_text
from catalog.statements.session import Session
from tests.support.iceberg_tables import append, iceberg_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.statement_engine import SparkEngine

pytestmark = pytest.mark.spark
on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)

ORDERS = "CREATE TABLE orders (id bigint, note string) PARTITIONED BY (country string, year int) STORED AS PARQUET"
ROWS = "INSERT INTO orders VALUES (1, 'a', 'nl', 2024), (2, 'b', 'nl', 2025), (3, NULL, 'de/at', 2024)"
EXPECTED = [(1, "a", "nl", 2024), (2, "b", "nl", 2025), (3, None, "de/at", 2024)]
MIGRATE = "CALL iceberg.system.migrate(schema_name => 'shop', table_name => 'orders')"
ADD_MORE = "ALTER TABLE orders EXECUTE add_files_from_table(schema_name => 'shop', table_name => 'more'{})"


@pytest.fixture
def session(start: Callable[[Catalog], SparkEngine], catalog: Catalog) -> Iterator[Session]:
    catalog.create_database("shop")
    with Session(catalog, database="shop", start=start) as opened:
        opened.execute(ORDERS)
        opened.execute(ROWS)
        yield opened


def refused(session: Session, text: str) -> tuple[str, str | None]:
    """Return the error's class, and the text at its position."""
    with pytest.raises(CatalogError) as caught:
        session.execute(text)
    place = caught.value.position
    return type(caught.value).__name__, None if place is None else text[place:]


def files_below(folder: str) -> dict[str, bytes]:
    """Return the data files of a table."""
    return {str(path): path.read_bytes() for path in Path(folder).glob("country=*/**/*.parquet")}


def test_a_table_is_migrated_reverted_and_migrated_again(session: Session, catalog: Catalog, catalog_url: str) -> None:
    files = files_below(catalog.get_table("shop.orders").location)
    said = session.execute(MIGRATE)
    assert list(said.rows[0][:3]) == ["shop.orders", 3, 3]
    assert said.rows[0][4] == 3
    assert as_text(said)[0] == "shop.orders is now an Iceberg table with 3 file(s) and 3 row(s)"
    assert as_text(said)[2] == "the rows of Hive and Iceberg were compared in 3 of 3 partition(s)"
    assert iceberg_rows(catalog_url, "shop.orders") == EXPECTED
    session.execute("CALL iceberg.system.revert('shop', 'orders')")
    answer = session.execute("SELECT * FROM orders ORDER BY id")
    assert [tuple(row) for row in answer.rows] == EXPECTED
    session.execute(MIGRATE[:-1] + ", verified_partitions => 1)")
    assert iceberg_rows(catalog_url, "shop.orders") == EXPECTED
    assert files_below(catalog.get_table("shop.orders").location) == files


@on_sqlite
def test_a_select_reads_iceberg_tables_also_beside_hive_tables(session: Session, catalog_url: str) -> None:
    def ask(query: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in session.execute(query).rows]

    session.execute(MIGRATE[:-1] + ", verify => false)")
    session.execute("CREATE TABLE names (country string, name string) STORED AS PARQUET")
    session.execute("INSERT INTO names VALUES ('nl', 'Nederland'), ('de/at', 'Ö'), ('fr', 'France')")
    append(catalog_url, [4], "shop.orders")
    assert ask("SELECT * FROM orders WHERE shop.orders.year = 2024 ORDER BY id") == [EXPECTED[0], EXPECTED[2]]
    joined = "SELECT n.name, count(*) FROM shop.orders JOIN names n USING (country) WHERE id > 1 GROUP BY 1 ORDER BY 1"
    assert ask(joined) == [("France", 1), ("Nederland", 1), ("Ö", 1)]
    assert ask("SELECT operation FROM shop.orders.snapshots ORDER BY shop.orders.snapshots.committed_at") == [
        ("append",),
        ("append",),
    ]
    assert ask("SELECT sum(f.record_count), count(*) FROM shop.orders.files f") == [(4, 4)]
    session.execute("CREATE VIEW dutch AS SELECT id FROM orders WHERE country = 'nl'")
    assert ask("SELECT max(id) FROM dutch") == [(2,)]


@pytest.mark.long
@on_sqlite
def test_files_of_chosen_partitions_are_added_and_duplicates_are_not(
    session: Session, catalog: Catalog, catalog_url: str
) -> None:
    session.execute(MIGRATE[:-1] + ", verify => false)")
    session.execute(ORDERS.replace("orders", "more"))
    session.execute("INSERT INTO more VALUES (7, 'x', 'nl', 2024), (8, 'y', 'fr', 2025), (9, 'z', 'fr', 2026)")
    french = ADD_MORE.format(", partition_filter => map(ARRAY['country'], ARRAY['fr'])")
    assert as_text(session.execute(french))[0] == "shop.orders now has 2 file(s) and 2 row(s) of shop.more"
    assert refused(session, ADD_MORE.format("")) == ("DuplicateFilesError", "'more')")
    said = as_text(session.execute(ADD_MORE.format(", duplicate_file => 'skip'")))
    assert said[0] == "shop.orders now has 1 file(s) and 1 row(s) of shop.more"
    assert said[-1] == "2 file(s) were skipped, because the table already has them"
    assert [row[0] for row in iceberg_rows(catalog_url, "shop.orders")] == [1, 2, 3, 7, 8, 9]


@pytest.mark.long
@on_sqlite
def test_booleans_stored_as_runs_are_read_after_a_migration_and_an_addition(
    session: Session, catalog: Catalog, catalog_url: str
) -> None:
    for number, name in enumerate(("flags", "more_flags", "plain")):
        session.execute(f"CREATE TABLE {name} (id bigint, flag boolean) STORED AS PARQUET")
        folder = Path(catalog.get_table(f"shop.{name}").location)
        folder.mkdir(parents=True, exist_ok=True)
        version = "1.0" if name == "plain" else "2.0"
        rows = pyarrow.table({"id": [number], "flag": [True]})
        pyarrow.parquet.write_table(rows, folder / "f.parquet", data_page_version=version)
    said = session.execute(MIGRATE.replace("orders", "flags")).text
    assert said is not None
    assert "warning: columns flag have booleans stored with run-length encoding" in said
    assert session.execute("SELECT id FROM flags WHERE flag").rows == [[0]]

    assert "warning" not in str(session.execute(MIGRATE.replace("orders", "plain")).text)
    add = "ALTER TABLE plain EXECUTE add_files_from_table(schema_name => 'shop', table_name => 'more_flags')"
    assert "warning: columns flag" in str(session.execute(add).text)
    assert sorted(session.execute("SELECT id FROM plain WHERE flag").rows) == [[1], [2]]


@pytest.mark.long
@on_sqlite
def test_a_snapshot_stands_beside_the_table_that_goes_on(session: Session, catalog: Catalog, catalog_url: str) -> None:
    session.execute("CALL iceberg.system.snapshot('shop', 'orders', 'trial')")
    assert iceberg_rows(catalog_url, "shop.trial") == EXPECTED
    session.execute("INSERT INTO orders VALUES (4, 'd', 'nl', 2024)")
    assert len(session.execute("SELECT * FROM orders").rows) == 4
    assert iceberg_rows(catalog_url, "shop.trial") == EXPECTED


@pytest.mark.long
@on_sqlite
def test_what_stands_against_it_is_pointed_at_and_holds_no_table(session: Session, catalog: Catalog) -> None:
    folder = Path(catalog.get_partition("shop.orders", ("nl", "2024")).location, "nested")
    folder.mkdir()
    (folder / "empty.parquet").touch()
    assert refused(session, MIGRATE) == ("NestedFolderError", "'orders')")
    nested = MIGRATE[:-1] + ", recursive_directory => 'fail')"
    assert refused(session, nested) == ("NestedFolderError", "'fail')")
    assert refused(session, MIGRATE[:-1] + ", recursive_directory => 'true')")[0] == "UnusableFilesError"
    states = {each.state for each in catalog.operations.list("shop.orders") if each.kind == "migrate"}
    assert states == {OperationState.FAILED}
    session.execute("INSERT INTO orders VALUES (4, 'd', 'nl', 2024)")
    said = session.execute(MIGRATE[:-1] + ", recursive_directory => 'true', unusable_files => 'skip')")
    assert f"  {folder}/empty.parquet: " in "\n".join(as_text(said))


@pytest.mark.long
@on_sqlite
def test_a_migration_of_one_call_that_is_done_again_has_the_same_report(
    session: Session, catalog: Catalog, iceberg_spark: SparkSession
) -> None:
    from spark_jobs.migrate import migrate

    first = migrate(iceberg_spark, catalog, "m", "shop.orders")
    assert (first["partitions_verified"], first["partitions_total"]) == (3, 3)
    assert migrate(iceberg_spark, catalog, "m", "shop.orders") == first
    assert catalog.operations.get("m").is_committed


@on_sqlite
def test_a_table_that_changes_meanwhile_is_planned_anew(
    session: Session,
    catalog: Catalog,
    catalog_url: str,
    iceberg_spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from spark_jobs import migrate as job

    stage, seen = job.stage_migration, []

    def stage_and_add(spark: SparkSession, catalog: Catalog, request: object) -> None:
        stage(spark, catalog, request)  # type: ignore[arg-type]  # as it came
        if not seen:
            known = catalog.get_partition("shop.orders", ("nl", "2024")).location
            [path] = Path(known).glob("*.parquet")
            (path.parent / "copy.parquet").write_bytes(path.read_bytes())
        seen.append(1)

    monkeypatch.setattr(job, "stage_migration", stage_and_add)
    job.migrate(iceberg_spark, catalog, "m", "shop.orders", MigrationRequest(verify=False))
    assert [row[0] for row in iceberg_rows(catalog_url, "shop.orders")] == [1, 1, 2, 3]
    assert len(seen) == 2


@on_sqlite
def test_a_session_without_icebergs_runtime_is_refused_before_anything_is_begun(
    session: Session, catalog: Catalog, iceberg_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.migrate import migrate
    from spark_jobs.sessions import packages

    monkeypatch.setattr(packages, "_ICEBERG_CLASS", "org.apache.iceberg.NoSuchClass")
    with pytest.raises(
        InvalidConfigurationError, match=r"spark\.jars\.packages set to org\.apache\.iceberg:iceberg-sp"
    ):
        migrate(iceberg_spark, catalog, "m", "shop.orders")
    assert catalog.operations.find("m") is None


@on_sqlite
@pytest.mark.slow
@pytest.mark.long
def test_the_command_starts_spark_anew_with_what_a_migration_needs(catalog_url: str, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(f"CREATE DATABASE shop; USE shop; {ORDERS}; {ROWS}; {MIGRATE};")
    with Catalog.initialise(catalog_url):
        pass
    ended = subprocess.run(
        [sys.executable, "-m", "catalog.cli", "sql", "--file", str(script)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CALVE_CATALOG_URL": catalog_url, "CALVE_WAREHOUSE": str(tmp_path / "lake")},
    )
    assert ended.returncode == 0, ended.stderr
    assert "shop.orders is now an Iceberg table with 3 file(s) and 3 row(s)" in ended.stdout


@pytest.mark.long
@on_sqlite
def test_forget_keeps_files_of_dropped_partitions_that_a_snapshot_reads(
    session: Session, catalog: Catalog, catalog_url: str
) -> None:
    session.execute("CALL iceberg.system.snapshot('shop', 'orders', 'trial')")
    session.execute("ALTER TABLE orders DROP PARTITION (country = 'nl')")
    answer = session.execute("CALL calve.system.forget('orders', 'id = 1', true)")
    report = dict(zip(answer.columns, answer.rows[0], strict=True))
    assert (report["files_left"], report["rows_left"]) == (1, 1)
    assert "1 that the Iceberg table shop.trial reads; delete the rows there, too" in str(answer.text)
    assert iceberg_rows(catalog_url, "shop.trial") == EXPECTED
