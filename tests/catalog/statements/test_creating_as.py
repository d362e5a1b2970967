"""CREATE TABLE … AS SELECT: readers see no table or the whole one, whatever ends the statement."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog
from catalog.errors import (
    CatalogError,
    EngineError,
    OperationConflictError,
    ReservedPropertyError,
    TableAlreadyExistsError,
)
from catalog.operations.failpoints import Point
from catalog.operations.records import OperationState
from catalog.statements.session import Session
from tests.support.effort import effort
from tests.support.killed_loads import ArrowEngine, execute_and_die, start_arrow
from tests.support.processes import context

CREATE = "CREATE TABLE t PARTITIONED BY (origin, month) AS SELECT 1"
POINTS = (
    *(Point.JOURNALED, Point.RESERVED, Point.PARTLY_MOVED, Point.MOVED),
    *(Point.CHANGED, Point.COMMITTED),
)


@pytest.fixture
def session(catalog: Catalog) -> Iterator[Session]:
    with Session(catalog, database="demo", start=start_arrow) as opened:
        yield opened


def tables(catalog: Catalog) -> list[str]:
    return [table.name for table in catalog.list_tables("demo")]


def check_created(catalog: Catalog, tmp_path: Path) -> None:
    """Check that the table is whole, and that no other table, folder or running operation is left."""
    assert tables(catalog) == ["t"]
    table = catalog.get_table("demo.t")
    assert table.location == str(tmp_path / "warehouse" / "demo" / "t")
    assert [column.name for column in table.columns] == ["v"]
    assert [partition.values for partition in catalog.get_partitions("demo.t")] == [("JFK", "1"), ("LGA", "1")]
    files = [path for path in Path(table.location).rglob("*") if path.is_file()]
    assert len(files) == 2
    assert [path.name for path in Path(table.location).parent.iterdir()] == ["t"]
    assert table.properties == {}


@pytest.mark.parametrize("is_same", [True, False])
@pytest.mark.parametrize("point", effort((Point.MOVED, Point.COMMITTED), POINTS))
def test_after_a_kill_there_is_no_table_until_the_statement_is_repeated(
    catalog: Catalog, catalog_url: str, session: Session, tmp_path: Path, point: Point, is_same: bool
) -> None:
    arguments = (catalog_url, str(tmp_path / "warehouse"), CREATE, "first", point)
    process = context.Process(target=execute_and_die, args=arguments)
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    assert "t" not in tables(catalog)
    if not is_same:
        if point is not Point.COMMITTED:
            with pytest.raises(OperationConflictError, match="give-up 'first'"):
                session.execute(CREATE)
        catalog.operations.fail("first", "CANCELLED", "by the test")
    answer = session.execute(CREATE, operation_id="first" if is_same else "second")
    assert (answer.text, list(answer.rows)) == ("2 row(s) in the new table demo.t", [[2]])
    check_created(catalog, tmp_path)


def test_a_repeated_statement_returns_its_result(catalog: Catalog, session: Session, tmp_path: Path) -> None:
    for _ in range(2):
        assert list(session.execute(CREATE, operation_id="first").rows) == [[2]]
    check_created(catalog, tmp_path)
    with pytest.raises(TableAlreadyExistsError):
        session.execute(CREATE)
    assert session.execute(CREATE.replace("TABLE", "TABLE IF NOT EXISTS")).rows == ()
    check_created(catalog, tmp_path)


def fail_in_engine(*_arguments: Any, **_options: Any) -> Any:
    raise EngineError("a test")


def interrupt(*_arguments: Any, **_options: Any) -> Any:
    raise KeyboardInterrupt


def taken_name(session: Session, elsewhere: Path) -> Callable[..., Any]:
    insert = ArrowEngine.insert_query

    def insert_and_take(*arguments: Any, **options: Any) -> Any:
        report = insert(*arguments, **options)
        session._context.catalog.create_table("demo.t", columns=[("other", "int")], location=str(elsewhere))
        return report

    return insert_and_take


@pytest.mark.parametrize("fail", [fail_in_engine, interrupt])
def test_after_an_error_there_is_neither_a_table_nor_a_file(
    catalog: Catalog, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail: Callable[..., Any]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ArrowEngine, "insert_query", fail)
        with pytest.raises((EngineError, KeyboardInterrupt)):
            session.execute(CREATE, operation_id="first")
    assert tables(catalog) == []
    assert [path for path in (tmp_path / "warehouse").rglob("*") if path.is_file()] == []
    assert catalog.operations.get("first").state is OperationState.FAILED
    session.execute(CREATE)
    check_created(catalog, tmp_path)


def test_a_table_that_gets_the_name_meanwhile_stays(
    catalog: Catalog, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ArrowEngine, "insert_query", taken_name(session, tmp_path / "elsewhere"))
    with pytest.raises(CatalogError):
        session.execute(CREATE)
    [table] = catalog.list_tables("demo")
    assert [column.name for column in table.columns] == ["other"]
    assert list((tmp_path / "warehouse").rglob("*.parquet")) == []


def test_a_table_of_somebody_else_that_has_the_name_in_between_stays(catalog: Catalog, session: Session) -> None:
    session.execute(CREATE.replace("TABLE t", "TABLE other"))
    files = list(Path(catalog.get_table("demo.other").location).rglob("*.parquet"))
    session.execute("ALTER TABLE other RENAME TO t__creating")
    with pytest.raises(TableAlreadyExistsError, match=r"demo\.t__creating exists, .* rename it"):
        session.execute(CREATE)
    assert tables(catalog) == ["t__creating"]
    assert files
    assert all(file.exists() for file in files)
    with pytest.raises(ReservedPropertyError):
        session.execute("ALTER TABLE t__creating SET TBLPROPERTIES ('calve.created_as'='t')")


def test_a_folder_with_files_is_refused(catalog: Catalog, session: Session, tmp_path: Path) -> None:
    folder = tmp_path / "warehouse" / "demo" / "t"
    folder.mkdir(parents=True)
    (folder / "others.parquet").touch()
    with pytest.raises(CatalogError, match="has files, with which the rows of the new table would be mixed"):
        session.execute(CREATE)
    assert tables(catalog) == []
    assert list(folder.iterdir()) == [folder / "others.parquet"]


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize(
    ("statement", "place", "message"),
    [
        ("CREATE EXTERNAL TABLE t AS SELECT 1", "EXTERNAL", "because others own its files"),
        ("CREATE TABLE t (a int) AS SELECT 1", "a int", "the SELECT gives the columns"),
        ("CREATE TABLE t PARTITIONED BY (country) AS SELECT 1", "country) AS", "partition key country is not among"),
        ("CREATE TABLE t PARTITIONED BY (country string) AS SELECT 1", "country s", "partition key country is not"),
        ("CREATE TABLE t STORED AS odd AS SELECT 1", "odd", "odd"),
        ("CREATE TABLE t AS VALUES (1)", "VALUES", "expected SELECT"),
        ("CREATE TABLE t LIKE other", "LIKE", "SHOW CREATE TABLE prints"),
    ],
)
def test_wrong_statements_are_refused_with_their_place(
    session: Session, statement: str, place: str, message: str
) -> None:
    with pytest.raises(CatalogError, match=message) as caught:
        session.execute(statement)
    assert caught.value.position is not None
    assert statement[caught.value.position :].startswith(place)
