"""Iceberg tables in statements and on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyiceberg.types import LongType

from catalog import Catalog
from catalog.cli.main import main
from catalog.errors import FilesNeededError, IcebergTableError
from catalog.statements.session import Session
from tests.support.iceberg_tables import NAME, make_orders, migrate, sql_catalog


@pytest.fixture
def session(catalog: Catalog) -> Iterator[Session]:
    """Statements on an Iceberg table and a Hive table."""
    make_orders(catalog)
    migrate(catalog)
    catalog.create_table("demo.hive", columns=[("id", "int")])
    with Session(catalog, database="demo") as opened:
        yield opened


def rows(session: Session, text: str) -> list[list[object]]:
    return [list(row) for row in session.execute(text).rows]


def test_describe_says_that_it_is_one_and_where_its_metadata_is(session: Session, catalog: Catalog) -> None:
    facts = {name: value for name, value, _ in rows(session, "DESCRIBE FORMATTED orders")}
    assert facts["Provider"] == "iceberg"
    assert facts["Metadata Location"] == catalog.get_table(NAME).metadata_location
    assert "Partition Indexes" not in facts
    assert "Provider" not in {name for name, _, _ in rows(session, "DESCRIBE FORMATTED hive")}


def test_show_tables_tells_iceberg_tables_from_others(session: Session, catalog: Catalog) -> None:
    location = catalog.get_table(NAME).metadata_location
    assert rows(session, "SHOW TABLES") == [
        ["demo", "hive", "HIVE", None],
        ["demo", "orders", "ICEBERG", location],
    ]


def test_show_create_table_is_hives_statement_for_one(session: Session, catalog: Catalog) -> None:
    [[text]] = rows(session, "SHOW CREATE TABLE orders")
    assert "STORED BY ICEBERG" in str(text)
    assert f"'metadata_location'='{catalog.get_table(NAME).metadata_location}'" in str(text)


def test_columns_that_an_engine_adds_are_described(session: Session, catalog: Catalog, catalog_url: str) -> None:
    with sql_catalog(catalog_url) as iceberg, iceberg.load_table(NAME).update_schema() as update:
        update.add_column("added", LongType())
    described = [name for name, *_ in rows(session, "DESCRIBE orders")]
    assert "added" in described
    assert [row for row in rows(session, "SHOW COLUMNS IN orders") if row == ["added"]] == [["added"]]
    [[text]] = rows(session, "SHOW CREATE TABLE orders")
    assert "`added` bigint" in str(text)
    told = json.loads(CliRunner().invoke(main, ["describe", NAME, "--json"]).stdout)
    assert {"name": "added", "type": "bigint"} in told["columns"]
    # Metadata that cannot be read do not hide what the catalog knows.
    location = catalog.get_table(NAME).metadata_location
    assert location is not None
    Path(location.removeprefix("file://")).write_text("{")
    known = [name for (name,) in rows(session, "SHOW COLUMNS IN orders")]
    assert "added" not in known
    assert {"country", "year"} <= set(known)


@pytest.mark.parametrize(
    "statement",
    [
        "SHOW PARTITIONS orders",
        "SHOW PARTITION INDEXES ON orders",
        "ALTER TABLE orders ADD PARTITION (country='x', year='1')",
        "ALTER TABLE orders ADD COLUMNS (a int)",
        "ALTER TABLE orders RENAME TO o",
        "MSCK REPAIR TABLE orders",
    ],
)
def test_statements_on_its_hive_side_are_refused(session: Session, statement: str) -> None:
    with pytest.raises(IcebergTableError, match="revert"):
        session.execute(statement)


def test_it_is_dropped_without_its_files(session: Session, catalog: Catalog) -> None:
    with pytest.raises(FilesNeededError):
        session.execute("DROP TABLE orders PURGE")
    session.execute("DROP TABLE orders")
    assert [each.name for each in catalog.list_tables("demo")] == ["hive"]


def test_the_command_line_lists_it_with_its_metadata(session: Session, catalog: Catalog) -> None:
    location = catalog.get_table(NAME).metadata_location
    listed = CliRunner().invoke(main, ["tables"])
    assert f"iceberg (parquet)  country string, year int  {location}" in listed.stdout
    shown = CliRunner().invoke(main, ["tables", "--json"]).stdout.splitlines()
    found = {each["table"]: (each["table_type"], each["metadata_location"]) for each in map(json.loads, shown)}
    assert found == {"demo.orders": ("ICEBERG", location), "demo.hive": ("HIVE", None)}
    refused = CliRunner().invoke(main, ["partitions", NAME])
    assert refused.exit_code == 1
    assert "IcebergTableError" in refused.stderr
