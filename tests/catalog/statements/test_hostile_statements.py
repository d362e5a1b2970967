"""Statements that run code, use foreign files, or change Spark's settings are refused before Spark starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog import Catalog, NewPartition
from catalog.errors import CatalogError, LocationNotAllowedError
from catalog.statements.engine import Engine
from catalog.statements.session import Session

pytestmark = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)

UNKNOWN = {
    "a setting": "SET spark.hadoop.fs.defaultFS=file:///",
    "a setting behind a comment": "/* SELECT */ SET spark.sql.extensions=x",
    "a jar": "ADD JAR '{foreign}/x.jar'",
    "a file for executors": "ADD FILE '{foreign}/secrets.csv'",
    "a function": "CREATE FUNCTION f AS 'java.lang.Runtime'",
    "a function of a jar": "CREATE TEMPORARY FUNCTION f AS 'java.lang.Runtime' USING JAR '{foreign}/x.jar'",
    "a view of a path": "CREATE TEMPORARY VIEW v USING csv OPTIONS (path '{foreign}')",
    "a data source": "CREATE TABLE x USING csv OPTIONS (path '{foreign}')",
    "a folder to write to": "INSERT OVERWRITE DIRECTORY '{foreign}' SELECT 1",
    "a local folder to write to": "INSERT OVERWRITE LOCAL DIRECTORY '{foreign}' USING csv SELECT 1",
    "a statement in a text": "EXECUTE IMMEDIATE 'SELECT 1'",
    "the columns of a path": "DESCRIBE csv.`{foreign}/secrets.csv`",
    "the definition of a path": "SHOW CREATE TABLE csv.`{foreign}/secrets.csv`",
    "a path without SELECT": "TABLE text.`{foreign}/secrets.csv`",
    "a path before SELECT": "FROM text.`{foreign}/secrets.csv` SELECT value",
    "options of a table's reader": "ALTER TABLE t SET SERDEPROPERTIES ('path'='{foreign}')",
    "a database's folder": "ALTER DATABASE shop SET LOCATION '{foreign}'",
    "files of a folder": "ALTER TABLE t EXECUTE add_files(location => '{foreign}', format => 'PARQUET')",
    "metadata of a folder": "CALL iceberg.system.register_table(schema_name => 'shop', table_name => 'x', "
    "table_location => '{foreign}')",
    "orphans of a folder": "CALL iceberg.system.remove_orphan_files(table => 'shop.t', location => '{foreign}')",
    "a shell": "!rm -r {foreign}",
    "a file system's shell": "DFS -rm -r {foreign}",
}
"""Statements that are not in the grammar."""

FOREIGN = {
    "a table of a path and a query": "CREATE TABLE x STORED AS PARQUET LOCATION '{foreign}' AS SELECT 1 AS id",
    "a property of a reader": "CREATE TABLE x (id int) STORED AS PARQUET TBLPROPERTIES ('PATH'='{foreign}')",
    "an option of a reader": "CREATE TABLE x (id int) STORED AS CSV TBLPROPERTIES ('option.path'='{foreign}')",
    "an option of a reader, later": "ALTER TABLE t SET TBLPROPERTIES ('Option.Paths'='[\"{foreign}\"]')",
    "an option of a reader, of subfolders": "ALTER TABLE t SET TBLPROPERTIES ('option.recursiveFileLookup'='true')",
    "an option of a reader, of names": "ALTER TABLE t SET TBLPROPERTIES ('option.pathGlobFilter'='x*')",
    "a property of a writer": "ALTER TABLE t SET TBLPROPERTIES ('write.object-storage.path'='{foreign}')",
    "a snapshot's folder": "CALL iceberg.system.snapshot(schema_name => 'shop', table_name => 't', "
    "target_table_name => 'trial', target_location => '{foreign}/x')",
    "a snapshot's folder behind a link": "CALL iceberg.system.snapshot(schema_name => 'shop', table_name => 't', "
    "target_table_name => 'trial', target_location => '{warehouse}/link/x')",
    "a snapshot's folder behind dots": "CALL iceberg.system.snapshot(schema_name => 'shop', table_name => 't', "
    "target_table_name => 'trial', target_location => 'file:{warehouse}/../foreign/x')",
    "a partition behind a link": "ALTER TABLE t ADD PARTITION (k=2) LOCATION '{warehouse}/link/k=2'",
    "a table behind a link": "ALTER TABLE empty SET LOCATION '{warehouse}/link'",
    "a table behind dots": "ALTER TABLE empty SET LOCATION '{warehouse}/../foreign'",
    "a table behind escapes": "ALTER TABLE empty SET LOCATION 'file:{warehouse}/%2e%2e/foreign'",
    "a database behind a link": "CREATE DATABASE other LOCATION '{warehouse}/link'",
}
"""Locations outside the allowed folders."""


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """A warehouse with a link to a folder that is not allowed."""
    found = {"warehouse": tmp_path / "warehouse", "foreign": tmp_path / "foreign"}
    for folder in found.values():
        folder.mkdir()
    (found["foreign"] / "secrets.csv").write_text("id\nplanted\n")
    (found["warehouse"] / "link").symlink_to(found["foreign"])
    return found


@pytest.fixture
def catalog(catalog_url: str, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.setenv("CALVE_WAREHOUSE", str(places["warehouse"]))
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "")
    with Catalog.open(catalog_url) as opened:
        opened.create_database("shop")
        opened.create_table("shop.empty", columns=[("id", "int")])
        opened.create_table("shop.t", columns=[("id", "int")], partition_keys=[("k", "int")])
        opened.add_partitions("shop.t", [NewPartition(["1"])])
        yield opened


def refused(catalog: Catalog, places: dict[str, Path], statement: str) -> CatalogError:
    """Return the error of a refused statement, and check that it changed nothing."""

    def start(_catalog: Catalog) -> Engine:
        raise AssertionError("no engine is needed")

    before = [catalog.list_databases(), catalog.list_tables(), list(catalog.get_partitions("shop.t"))]
    with Session(catalog, database="shop", start=start) as session, pytest.raises(CatalogError) as refusal:
        session.execute(statement.format(**places))
    assert [catalog.list_databases(), catalog.list_tables(), list(catalog.get_partitions("shop.t"))] == before
    assert [path.read_text() for path in places["foreign"].iterdir()] == ["id\nplanted\n"]
    assert "planted" not in str(refusal.value)
    return refusal.value


@pytest.mark.parametrize("statement", UNKNOWN.values(), ids=UNKNOWN)
def test_there_is_no_statement_for(catalog: Catalog, places: dict[str, Path], statement: str) -> None:
    error = refused(catalog, places, statement)
    assert type(error).__name__ in {
        "StatementSyntaxError",
        "UnsupportedStatementError",
        "UnknownProcedureError",
        "InvalidIdentifierError",
    }


@pytest.mark.parametrize("statement", FOREIGN.values(), ids=FOREIGN)
def test_no_statement_leads_to(catalog: Catalog, places: dict[str, Path], statement: str) -> None:
    assert isinstance(refused(catalog, places, statement), LocationNotAllowedError)
