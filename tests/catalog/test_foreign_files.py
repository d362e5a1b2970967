"""Five attempts to delete files that Calve did not write; none succeeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from catalog import Catalog, NewPartition
from catalog.errors import CatalogError
from catalog.model import TableKind
from catalog.statements.engine import Engine
from catalog.statements.session import Session

pytestmark = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder below an allowed one, with a file that somebody else wrote."""
    folder = tmp_path / "warehouse" / "shop.db" / "foreign"
    folder.mkdir(parents=True)
    (folder / "theirs.parquet").write_text("theirs")
    return folder


@pytest.fixture
def session(catalog_url: str, tmp_path: Path, foreign: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    def start(_catalog: Catalog) -> Engine:
        raise AssertionError("no engine is needed")

    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "")
    monkeypatch.setenv("CALVE_WAREHOUSE", str(tmp_path / "warehouse"))
    with Catalog.open(catalog_url) as catalog, Session(catalog, database="shop", start=start) as session:
        catalog.create_database("shop", location=str(foreign.parent))
        session.execute("CREATE TABLE own (id int) PARTITIONED BY (k int) STORED AS PARQUET")
        yield session


ATTEMPTS = {
    "a table over the folder": ["CREATE TABLE x (id int) STORED AS PARQUET LOCATION '{foreign}'", "DROP TABLE x PURGE"],
    "a table of the folder's name": ["CREATE TABLE foreign (id int) STORED AS PARQUET", "DROP TABLE foreign PURGE"],
    "a table that moves there": [
        "CREATE TABLE x (id int) STORED AS PARQUET",
        "ALTER TABLE x SET LOCATION '{foreign}'",
        "DROP TABLE x PURGE",
    ],
    "a partition there": [
        "ALTER TABLE own ADD PARTITION (k=1) LOCATION '{foreign}'",
        "ALTER TABLE own DROP PARTITION (k=1)",
        "DROP TABLE own PURGE",
    ],
    "a table around it": [
        "CREATE TABLE x (id int) STORED AS PARQUET LOCATION '{foreign}/..'",
        "DROP TABLE x PURGE",
    ],
    "a table of a scheme": [
        "CREATE TABLE x (id int) PARTITIONED BY (k int) STORED BY 'carbondata' LOCATION '{foreign}' TBLPROPERTIES "
        "('PARTITION_TYPE'='HASH', 'PARTITION_NUM'='2')",
        "DROP TABLE x PURGE",
    ],
}


@pytest.mark.parametrize("statements", ATTEMPTS.values(), ids=ATTEMPTS)
def test_foreign_files_stay(session: Session, foreign: Path, catalog_url: str, statements: list[str]) -> None:
    for statement in statements:
        try:
            session.execute(statement.format(foreign=foreign))
        except CatalogError:
            break
    with Catalog.open(catalog_url) as catalog:
        catalog.vacuum(grace=timedelta(0))
    assert (foreign / "theirs.parquet").read_text() == "theirs"


CREATIONS: dict[str, Callable[[Catalog, Path], object]] = {
    "given": lambda catalog, folder: catalog.create_table("shop.x", columns=[("id", "int")], location=str(folder)),
    "moved": lambda catalog, folder: [
        catalog.create_table("shop.x", columns=[("id", "int")]),
        catalog.alter_table("shop.x", location=str(folder)),
    ],
}


@pytest.mark.parametrize("create", CREATIONS.values(), ids=CREATIONS)
def test_a_table_is_managed_only_in_a_folder_that_was_empty(
    session: Session, foreign: Path, catalog_url: str, create: Callable[[Catalog, Path], object]
) -> None:
    with Catalog.open(catalog_url) as catalog:
        create(catalog, foreign)
        assert catalog.get_table("shop.x").kind is TableKind.EXTERNAL
        catalog.drop_table("shop.x", purge=True)
        create(catalog, foreign.parent / "empty")
        assert catalog.get_table("shop.x").kind is TableKind.MANAGED
        assert catalog.add_partitions("shop.own", [NewPartition(["1"])]).added == 1
