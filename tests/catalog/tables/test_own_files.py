"""Five attempts to delete files that Calve did not write; all fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from catalog import Catalog, NewPartition
from catalog.doors.entries import Entries
from catalog.errors import CatalogError, LocationNotAllowedError, UnsupportedChangeError
from catalog.model import TableKind
from catalog.model.identifiers import TableName
from catalog.statements.engine import Engine
from catalog.statements.session import Session
from catalog.tables.own_files import require_no_links_outside
from tests.support.sources import list_source
from tests.support.written_files import SPARK_NAME, own_name

pytestmark = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder in an allowed one, with a file of another program."""
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


# --- files that others put into the folder of a managed table --------------------------------------------------------


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name)
    return path


@pytest.fixture
def name_of_own(catalog_url: str) -> str:
    with Catalog.open(catalog_url) as catalog:
        return own_name(catalog)


def test_purge_of_partitions_leaves_and_names_the_files_of_others(
    session: Session, foreign: Path, name_of_own: str
) -> None:
    root = foreign.parent / "own"
    own = [put(root / name / name_of_own) for name in ("k=1", "k=2", "k=2/deep")]
    names = ("000000_0", "_SUCCESS", SPARK_NAME, "deep/notes.txt")
    others = [put(root / "k=2" / name) for name in names]
    session.execute("ALTER TABLE own ADD PARTITION (k=1) PARTITION (k=2)")
    size = sum(path.stat().st_size for path in own)
    answer = session.execute("ALTER TABLE own DROP PARTITION (k>0) PURGE")
    assert answer.rows == [[2, 2, "", 3, size]]
    assert f"deleted the files of 2 (3 file(s), {size} bytes). Left 4 file(s) that Calve did not write: " in (
        answer.text or ""
    )
    assert all(str(path) in (answer.text or "") for path in others)
    assert [path.exists() for path in (*own, *others)] == [False] * 3 + [True] * 4
    assert sorted(path.name for path in root.iterdir()) == ["k=2"]


def test_purge_of_a_table_leaves_and_names_the_files_of_others(
    session: Session, foreign: Path, name_of_own: str
) -> None:
    root = foreign.parent / "own"
    names = (
        f"k=1/{name_of_own}",
        f"k=1/.{name_of_own}.crc",
        f"k=2/.calve-{name_of_own}",
        "_calve_staging/1-1/data/x",
        "_calve_staging/1-1/data/_SUCCESS",
    )
    own = [put(root / name) for name in names]
    others = [put(root / name) for name in (f"k=1/{SPARK_NAME}", "k=3/theirs.orc", "README")]
    elsewhere = put(foreign / name_of_own)
    (root / "k=4").symlink_to(foreign)
    size = sum(path.stat().st_size for path in own)
    answer = session.execute("DROP TABLE own PURGE")
    assert answer.rows == [[5, size, 4]]
    assert (answer.text or "").startswith(
        f"Dropped shop.own and deleted 5 file(s), {size} bytes. Left 4 file(s) that Calve did not write: "
    )
    assert all(str(path) in (answer.text or "") for path in (*others, root / "k=4"))
    assert sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()) == [
        "README",
        f"k=1/{SPARK_NAME}",
        "k=3/theirs.orc",
    ]
    assert elsewhere.exists()


@pytest.mark.parametrize("linked", ["k=1", "k=1/n=1"])
def test_files_of_a_partition_behind_a_link_stay(
    session: Session, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: str
) -> None:
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", str(tmp_path / "warehouse"))
    session.execute("CREATE TABLE two (v int) PARTITIONED BY (k int, n int)")
    root = Path(catalog.get_table("shop.two").location)
    link = root / linked
    elsewhere = put(tmp_path / "elsewhere" / ("n=1" if linked == "k=1" else "") / "theirs.parquet")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path / "elsewhere")
    session.execute("ALTER TABLE two ADD PARTITION (k=1, n=1)")
    with pytest.raises(UnsupportedChangeError, match="is behind a symbolic link"):
        Entries(catalog).truncate(TableName("shop", "two"), [("1", "1")])
    session.execute("ALTER TABLE two DROP PARTITION (k=1, n=1) PURGE")
    assert list(catalog.get_partitions("shop.two")) == []
    assert elsewhere.exists()


def test_many_files_of_others_are_counted(session: Session, foreign: Path) -> None:
    for number in range(12):
        put(foreign.parent / "own" / f"k={number}" / "x.parquet")
    answer = session.execute("DROP TABLE own PURGE")
    assert "Left 12 file(s) that Calve did not write: " in (answer.text or "")
    assert (answer.text or "").endswith(" and 7 more")


@pytest.mark.parametrize("linked", ["k=1", "k=1/n=1", "k=1/n=1/x.parquet", "k=1/n=1/inner", "k=1/n=1/real/x.parquet"])
def test_no_link_in_a_partition_leads_readers_out_of_the_allowed_folders(
    session: Session, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: str
) -> None:
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", str(tmp_path / "allowed"))
    monkeypatch.delenv("CALVE_WAREHOUSE")
    session.execute("CREATE TABLE two (v int) PARTITIONED BY (k int, n int)")
    table = catalog.get_table("shop.two")
    root, folders = Path(table.location), [f"{table.location}/k=1/n=1", "s3://bucket/k=1/n=2", f"{table.location}/none"]
    for place in (tmp_path / "foreign", tmp_path / "allowed", root / "own"):
        for name in ("x.parquet", "n=1/x.parquet"):
            put(place / name)
    (root / linked).parent.mkdir(parents=True, exist_ok=True)
    (root / linked).parent.joinpath("_hidden").symlink_to(tmp_path / "foreign")

    def link(place: Path) -> None:
        (root / linked).unlink(missing_ok=True)
        (root / linked).symlink_to(place / ("x.parquet" if linked.endswith("x.parquet") else ""))

    for place in (tmp_path / "allowed", root / "own"):
        link(place)
        require_no_links_outside(table, folders)
    link(tmp_path / "foreign")
    with pytest.raises(LocationNotAllowedError, match="behind a symbolic link that leads out of the allowed folders"):
        require_no_links_outside(table, folders)
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "*")
    require_no_links_outside(table, folders)


# --- folders of databases ---------------------------------------------------------------------------------------------


@pytest.fixture
def warehouse(catalog: Catalog) -> Path:
    return Path(catalog.create_database("any").location).parent


@pytest.mark.parametrize("folder", ["landing", "landing/orders", "_calve", "_calve/quality", "link", "link/raw", "."])
def test_a_dropped_database_leaves_files_of_others(
    catalog: Catalog, warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    list_source(monkeypatch, tmp_path, f"{warehouse}/landing/orders/*.csv")
    monkeypatch.setenv("CALVE_WAREHOUSE", str(warehouse))
    files = [put(place) for place in (warehouse / "landing/orders/a.csv", warehouse / "_calve/quality/shop/index.html")]
    files.append(put(tmp_path / "elsewhere" / "raw" / "a.csv"))
    (warehouse / "link").symlink_to(tmp_path / "elsewhere")
    catalog.table_entries.delete_database_folder(str(warehouse / folder))
    assert all(path.exists() for path in files)


def test_the_folder_of_a_dropped_database_goes_with_the_files_of_all(catalog: Catalog, warehouse: Path) -> None:
    path = put(warehouse / "notes" / "plan.txt")
    catalog.table_entries.delete_database_folder(str(warehouse / "notes"))
    assert not path.exists()
