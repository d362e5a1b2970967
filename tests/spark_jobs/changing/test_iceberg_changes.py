"""Statements that change rows of migrated tables, on each database: the same rows as DuckDB, and one commit each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog import Catalog
from catalog.errors import (
    AmbiguousMergeError,
    InvalidPartitionSpecError,
    InvalidQueryError,
    InvalidRowsError,
    InvalidValueError,
    LiteralTypeError,
    LocationNotAllowedError,
    PlanConflictError,
    RefusedStatementError,
    SourceFileError,
    TableNotFoundError,
    UnsupportedChangeError,
)
from catalog.iceberg.live_columns import with_live_columns
from catalog.statements.results import StatementResult
from catalog.statements.session import Session
from tests.support.effort import effort
from tests.support.iceberg_tables import iceberg_rows, make_orders, migrate, sql_catalog

if TYPE_CHECKING:
    from spark_jobs.statement_engine import SparkEngine

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

ROWS = """(1, 'n1', 'nl', 2024), (2, 'n2', 'nl', 2024), (3, 'n3', 'nl', 2025), (4, 'n4', 'de/at', 9),
(5, 'n5', 'de/at', 9), (6, 'n6', 'de/at', 9), (7, 'n7', NULL, 2025)"""
"""Those of `make_orders`."""
CHANGES = (
    "INSERT INTO orders VALUES (8, 'n8', 'fr', 2025), (9, NULL, NULL, 2025)",
    "DELETE FROM orders WHERE orders.id % 4 = 1",
    "DELETE FROM orders WHERE country = 'nl' AND year = 2025",
    "DELETE FROM orders WHERE id IN (SELECT id + 1 FROM doomed) AND note <> '{}'",
    "UPDATE orders SET note = upper(note) || '{x}', year = year + 1 WHERE country IS NULL OR id = 6",
    "UPDATE orders SET note = 'none' WHERE id = 99",
    "MERGE INTO orders AS t USING (SELECT * FROM (VALUES (2, 'm'), (4, 'gone'), (20, 'new')) AS v (id, text)) AS s "
    "ON t.id = s.id WHEN MATCHED AND s.text = 'gone' THEN DELETE WHEN MATCHED THEN UPDATE SET note = s.text "
    "WHEN NOT MATCHED THEN INSERT (id, note, country, year) VALUES (s.id, s.text, 'be', 1)",
    "INSERT INTO orders SELECT id + 100, note, country, year FROM orders WHERE id < 8",
    "DELETE FROM orders WHERE id = (SELECT max(id) AS m FROM orders)",
    "UPDATE orders SET note = '{y}' WHERE id IN (SELECT a.id FROM orders AS a JOIN orders AS b ON a.id = b.id + 100)",
    "MERGE INTO orders AS t USING (SELECT id - 100 AS id, note AS text FROM orders WHERE id > 100) AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET note = s.text || '!' WHEN NOT MATCHED BY SOURCE AND t.id = 20 THEN DELETE",
)

MERGE = "MERGE INTO orders t USING (SELECT 1 AS id) s ON t.id = s.id "


@pytest.fixture
def session(start: Callable[[Catalog], SparkEngine], catalog: Catalog) -> Iterator[Session]:
    """A session beside a migrated table, partitioned by country and year, and a Hive table `doomed`."""
    catalog.create_database("demo")
    make_orders(catalog)
    migrate(catalog)
    with Session(catalog, database="demo", start=start) as opened:
        opened.execute("CREATE TABLE doomed (id bigint) STORED AS PARQUET")
        opened.execute("INSERT INTO doomed VALUES (5), (6)")
        yield opened


@pytest.fixture
def change(session: Session, catalog: Catalog) -> Callable[[str], StatementResult]:
    """Run a change that makes at most one commit, after which Spark and PyIceberg read the same rows."""

    def change(text: str, commits: int | None = None) -> StatementResult:
        before = snapshots(catalog)
        answer = session.execute(text)
        made = snapshots(catalog) - before
        assert made in ((0, 1) if commits is None else (commits,))
        assert sorted(rows(session), key=repr) == by_pyiceberg(catalog)
        return answer

    return change


def rows(session: Session) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in session.execute("SELECT * FROM orders ORDER BY id, country").rows]


def by_pyiceberg(catalog: Catalog) -> list[tuple[Any, ...]]:
    return iceberg_rows(catalog.storage.url.render_as_string(hide_password=False))


def snapshots(catalog: Catalog) -> int:
    with sql_catalog(catalog.storage.url.render_as_string(hide_password=False)) as iceberg:
        return len(iceberg.load_table("demo.orders").metadata.snapshots)


@pytest.mark.long
def test_each_change_leaves_the_rows_that_duckdb_has(
    session: Session, change: Callable[..., StatementResult], catalog: Catalog
) -> None:
    model = duckdb.connect()
    model.execute("CREATE TABLE orders (id bigint, note text, country text, year int)")
    model.execute(f"INSERT INTO orders VALUES {ROWS}")
    model.execute("CREATE TABLE doomed AS SELECT * FROM (VALUES (5), (6)) AS v (id)")
    query = "SELECT * FROM orders ORDER BY id"
    assert rows(session) == model.execute(query).fetchall()
    counts = {}
    for text in effort((*CHANGES[:2], *CHANGES[4:7]), CHANGES):
        model.execute(text)
        answer = change(text)
        counts[text.split(" WHERE ")[-1]] = answer.rows[0]
        assert rows(session) == model.execute(query).fetchall(), text
    assert counts["id = 99"] == [0, 0, 0]
    # The Hive definition, which a revert restores, is as it was.
    assert [column.name for column in catalog.get_table("demo.orders").columns] == ["id", "note"]


@pytest.mark.long
def test_results_count_rows_and_files(change: Callable[..., StatementResult]) -> None:
    deleted = change("DELETE FROM orders WHERE id IN (4, 6)", 1)
    assert deleted.columns == ("rows", "files_removed", "files_written")
    assert deleted.rows == [[2, 1, 1]]
    assert change("UPDATE orders SET note = 'x' WHERE country = 'nl'", 1).rows == [[3, 2, 2]]
    merged = change(
        "MERGE INTO orders t USING doomed s ON t.id = s.id WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'six', 'x', 6)",
        1,
    )
    assert merged.columns == ("rows_inserted", "rows_updated", "rows_deleted")
    assert merged.rows == [[1, 0, 1]]
    assert change("TRUNCATE TABLE orders PARTITION (country='nl', year=2024)", 1).rows == [[2, 1, 0]]
    assert change("TRUNCATE TABLE orders", 1).rows == [[3, 3, 0]]
    assert change("TRUNCATE TABLE orders", 0).rows == [[0, 0, 0]]


@pytest.mark.long
def test_insert_overwrite_replaces_partitions(change: Callable[..., StatementResult], session: Session) -> None:
    change("INSERT OVERWRITE orders VALUES (10, 'a', 'nl', 2024), (11, 'b', 'be', 1)", 1)
    assert [row[0] for row in rows(session)] == [3, 4, 5, 6, 7, 10, 11]
    change("INSERT OVERWRITE orders PARTITION (country='de/at') SELECT id, note, year FROM orders WHERE id = 3", 1)
    assert sorted(rows(session), key=str) == [
        (10, "a", "nl", 2024),
        (11, "b", "be", 1),
        (3, "n3", "de/at", 2025),
        (3, "n3", "nl", 2025),
        (7, "n7", None, 2025),
    ]
    change("INSERT OVERWRITE orders PARTITION (country='nl', year=2024) SELECT id, note FROM orders WHERE false", 1)
    assert [row[0] for row in rows(session)] == [3, 3, 7, 11]
    with pytest.raises(InvalidPartitionSpecError, match="note is not a partition key of"):
        session.execute("TRUNCATE TABLE orders PARTITION (note='x')")


@pytest.mark.long
def test_compact_lets_iceberg_write_small_files_again(change: Callable[..., StatementResult], session: Session) -> None:
    values = ", ".join(f"({number}, 'x', '{country}', 1)" for number in (20, 30) for country in ("nl", "be"))
    for _ in range(5):
        session.execute(f"INSERT INTO orders VALUES {values}")
    before = rows(session)
    assert change("ALTER TABLE orders PARTITION (country='nl') COMPACT", 1).rows == [[1, 5, 1]]
    assert change("ALTER TABLE orders COMPACT", 1).rows == [[1, 5, 1]]
    assert change("ALTER TABLE orders COMPACT", 0).rows == [[0, 0, 0]]
    assert rows(session) == before


@pytest.mark.long
def test_what_is_refused_changes_nothing(session: Session, catalog: Catalog) -> None:
    before, was = rows(session), catalog.get_table("demo.orders").metadata_location
    for text, error, message in (
        ("INSERT INTO orders SELECT 1.5, 'x', 'y', 1", InvalidRowsError, "'1.5' is no bigint"),
        ("INSERT INTO orders VALUES (1, 'x', 'y')", InvalidValueError, "row 1 has 3 values for 4 columns"),
        ("UPDATE orders SET nothing = 1", InvalidRowsError, "column nothing of demo.orders does not exist"),
        ("UPDATE orders SET id = 'abc'", InvalidQueryError, "(?i)safely cast"),
        ("DELETE FROM orders WHERE reflect('java.lang.System', 'exit', 1) = ''", RefusedStatementError, "reflect"),
        ("DELETE FROM orders WHERE id IN (SELECT id FROM parquet.`/etc`)", TableNotFoundError, "does not exist"),
        (
            MERGE + "WHEN NOT MATCHED THEN INSERT VALUES (s.id)",
            InvalidRowsError,
            "INSERT has 1 values for the 4 columns",
        ),
        (
            MERGE + "WHEN MATCHED THEN UPDATE SET nothing = 1",
            InvalidRowsError,
            "column nothing of demo.orders does not",
        ),
        (MERGE + "WHEN NOT MATCHED THEN INSERT *", InvalidRowsError, "the source has no column note, country, year"),
        (
            "MERGE INTO orders t USING (SELECT 1 AS id UNION ALL SELECT 1) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET note = 'x'",
            AmbiguousMergeError,
            "several rows of the source match a row of table demo.orders",
        ),
    ):
        with pytest.raises(error, match=message):
            session.execute(text)
    assert rows(session) == before
    assert catalog.get_table("demo.orders").metadata_location == was


@pytest.mark.long
def test_a_table_that_deletes_its_metadata_early_is_not_changed(session: Session, catalog: Catalog) -> None:
    kept = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}
    with sql_catalog(catalog.storage.url.render_as_string(hide_password=False)) as iceberg:
        iceberg.load_table("demo.orders").transaction().set_properties(kept).commit_transaction()
    before = rows(session)
    for text in ("DELETE FROM orders WHERE id = 1", "CALL calve.system.forget('demo.orders', 'id = 1')"):
        with pytest.raises(UnsupportedChangeError, match=r"demo\.orders keeps only 2 earlier metadata files"):
            session.execute(text)
    assert rows(session) == before


def test_a_change_follows_a_commit_of_another_engine(
    session: Session, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made again over the new rows; if there is always another commit first, it is refused."""
    from spark_jobs.changing import iceberg_changes

    url = catalog.storage.url.render_as_string(hide_password=False)
    count, others = iceberg_changes._count, [0]

    def append_before(*arguments: Any) -> int:
        found = count(*arguments)
        if others[0]:
            others[0] -= 1
            with sql_catalog(url) as iceberg:
                table = iceberg.load_table("demo.orders")
                table.append(table.scan(row_filter="id = 1").to_arrow())
        return found

    monkeypatch.setattr(iceberg_changes, "_count", append_before)
    others[0] = 1
    assert session.execute("DELETE FROM orders WHERE id = 1").rows[0][0] == 2
    assert [row[0] for row in rows(session)] == [2, 3, 4, 5, 6, 7]
    session.execute("INSERT INTO orders VALUES (1, 'n1', 'nl', 2024)")
    before, others[0] = files(catalog), 3
    with pytest.raises(PlanConflictError, match="another engine has committed to the Iceberg table"):
        session.execute("UPDATE orders SET note = 'x' WHERE id = 1")
    assert [row[0] for row in rows(session)] == [1] * 8 + [2, 3, 4, 5, 6, 7]
    assert len([path for path in files(catalog) - before if path.suffix == ".parquet"]) == 3, "of the engine alone"


@pytest.mark.long
def test_columns_and_keys_are_those_of_the_metadata(session: Session, catalog: Catalog) -> None:
    url = catalog.storage.url.render_as_string(hide_password=False)
    live = with_live_columns(catalog.get_table("demo.orders"))
    assert ([column.name for column in live.columns], live.key_names) == (["id", "note"], ("country", "year"))
    with sql_catalog(url) as iceberg, iceberg.load_table("demo.orders").update_schema() as schema:
        from pyiceberg.types import IntegerType, ListType

        schema.add_column("tags", ListType(0, IntegerType(), element_required=False))
    live = with_live_columns(catalog.get_table("demo.orders"))
    assert [(column.name, column.type) for column in live.columns][-1] == ("tags", "array<int>")
    assert live.key_names == ()
    session.execute("INSERT INTO orders SELECT 50, 'x', 'nl', 2024, array(1, 2)")
    assert rows(session)[-1] == (50, "x", "nl", 2024, [1, 2])


@pytest.mark.long
def test_a_refused_change_leaves_the_files_as_they_were(session: Session, catalog: Catalog) -> None:
    """Also those of snapshots that are older than the table's properties say."""
    url = catalog.storage.url.render_as_string(hide_password=False)
    with sql_catalog(url) as iceberg:
        first = iceberg.load_table("demo.orders").metadata.current_snapshot_id
    session.execute("DELETE FROM orders WHERE id = 1")
    with sql_catalog(url) as iceberg, iceberg.load_table("demo.orders").transaction() as transaction:
        transaction.set_properties({"history.expire.max-snapshot-age-ms": "1"})
    before = files(catalog)
    with pytest.raises(InvalidRowsError, match="is no bigint"):
        session.execute("INSERT INTO orders SELECT 1.5, 'x', 'y', 1")
    left = files(catalog) - before
    assert {path.suffix for path in left} <= {".json", ".crc"}
    assert before <= files(catalog)
    assert len(iceberg_rows(url, snapshot_id=first)) == 7


def files(catalog: Catalog) -> set[Path]:
    return {path for path in Path(catalog.get_table("demo.orders").location).rglob("*") if path.is_file()}


@pytest.mark.long
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_after_the_commit_keeps_the_files(
    session: Session, catalog: Catalog, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    from catalog.datafiles import committing
    from catalog.operations.failpoints import Point

    def reached(point: Point) -> None:
        if point is Point.COMMITTED:
            raise error

    with monkeypatch.context() as patch:
        patch.setattr(committing, "reached", reached)
        with pytest.raises(error):
            session.execute("UPDATE orders SET note = 'x' WHERE id = 1")
    assert rows(session)[0] == (1, "x", "nl", 2024)


@pytest.mark.long
def test_a_file_is_loaded_once(session: Session, catalog: Catalog, tmp_path: Path) -> None:
    source = tmp_path / "orders.csv"
    source.write_text("id,note,country,year\n50,x,nl,2024\n")
    statement = f"LOAD DATA INPATH '{source}' INTO TABLE orders"
    assert session.execute(statement).rows == [[1]]
    with pytest.raises(SourceFileError, match="loaded"):
        session.execute(statement)
    assert len(rows(session)) == 8


@pytest.mark.long
def test_files_of_a_former_partition_spec_are_not_overlooked(session: Session, catalog: Catalog) -> None:
    url = catalog.storage.url.render_as_string(hide_password=False)
    with sql_catalog(url) as iceberg, iceberg.load_table("demo.orders").update_spec() as spec:
        spec.remove_field("country")
    before = rows(session)
    for text in (
        "INSERT OVERWRITE orders VALUES (99, 'new', 'nl', 2025)",
        "INSERT OVERWRITE orders SELECT 99, 'new', 'nl', 2025",
    ):
        with pytest.raises(UnsupportedChangeError, match="has files of a former partition spec"):
            session.execute(text)
    assert rows(session) == before
    session.execute("INSERT OVERWRITE orders PARTITION (year=2025) SELECT 99, 'new', 'nl'")
    assert [row[0] for row in rows(session)] == [1, 2, 4, 5, 6, 99]
    session.execute("DELETE FROM orders WHERE id < 99")
    session.execute("INSERT OVERWRITE orders VALUES (100, 'newer', 'fr', 2025)")
    assert [row[0] for row in rows(session)] == [100]


@pytest.mark.long
def test_a_table_that_another_engine_has_dropped_is_named(session: Session, catalog: Catalog) -> None:
    with sql_catalog(catalog.storage.url.render_as_string(hide_password=False)) as iceberg:
        iceberg.drop_table("demo.orders")
    for text in ("DELETE FROM orders WHERE id = 1", "ALTER TABLE orders COMPACT", "SELECT * FROM orders"):
        with pytest.raises(TableNotFoundError, match=r"another engine has dropped or renamed .* demo\.orders"):
            session.execute(text)
    session.execute("CALL iceberg.system.revert(schema_name => 'demo', table_name => 'orders', lose_data => true)")
    assert len(rows(session)) == 7


@pytest.mark.long
def test_strings_are_compared_with_the_columns_of_the_metadata(session: Session, catalog: Catalog) -> None:
    url = catalog.storage.url.render_as_string(hide_password=False)
    # Iceberg finds columns by their names in files of Hive.
    session.execute("UPDATE orders SET note = upper(note)")
    with sql_catalog(url) as iceberg:
        from pyiceberg.types import DateType, StringType

        with iceberg.load_table("demo.orders").update_schema() as schema:
            schema.rename_column("id", "number").rename_column("note", "text")
        with iceberg.load_table("demo.orders").update_schema() as schema:
            schema.add_column("id", StringType()).add_column("day", DateType())
    merge = "MERGE INTO orders t USING (SELECT 1 AS k) s ON t.number = s.k AND (t.id IS NULL OR t.id <> 'abc') "
    merged = session.execute(merge + "WHEN MATCHED THEN UPDATE SET id = 'new', day = current_date() - INTERVAL 1 DAY")
    assert merged.rows == [[0, 1, 0]]
    for text in ("DELETE FROM orders WHERE {}", "CALL calve.system.forget('orders', \"{}\")"):
        with pytest.raises(LiteralTypeError, match="'yesterday' is not a value"):
            session.execute(text.format("day = 'yesterday'"))
    assert session.execute("SELECT count(*) FROM orders").rows == [[7]]


@pytest.mark.long
def test_types_that_only_iceberg_has_are_written(session: Session, catalog: Catalog) -> None:
    url = catalog.storage.url.render_as_string(hide_password=False)
    with sql_catalog(url) as iceberg, iceberg.load_table("demo.orders").update_schema() as schema:
        from pyiceberg.types import FixedType, UUIDType

        schema.add_column("key", UUIDType()).add_column("code", FixedType(2))
    key = "8c9a2f00-0a52-4f0b-9d3c-0f6a3a0b7c11"
    session.execute(f"INSERT INTO orders VALUES (8, 'n8', 'nl', 2024, '{key}', X'00FF')")
    session.execute(f"INSERT INTO orders SELECT 9, 'n9', 'nl', 2024, '{key}', NULL")
    assert [row[4:] for row in rows(session)[-2:]] == [(key, "00ff"), (key, None)]
    assert [(row[0], str(row[4]), row[5]) for row in iceberg_rows(url, row_filter="id > 7")] == [
        (8, key, b"\x00\xff"),
        (9, key, None),
    ]


def test_no_statement_reads_a_file_outside_the_allowed_folders(
    session: Session, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret" / "salaries.parquet"
    secret.parent.mkdir()
    columns = {"id": pa.array([100_000]), "note": ["of ann"], "country": ["nl"], "year": pa.array([2024], pa.int32())}
    pq.write_table(pa.table(columns), secret)
    with sql_catalog(str(catalog.storage.url.render_as_string(hide_password=False))) as iceberg:
        iceberg.load_table("demo.orders").add_files([str(secret)])
    assert [100_000] in session.execute("SELECT id FROM orders").rows
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", str(catalog.get_table("demo.doomed").location))
    for text in (
        *("SELECT * FROM orders", "SELECT count(*) FROM demo.orders.position_deletes"),
        *("UPDATE orders SET note = 'x' WHERE id = 1", "DELETE FROM orders WHERE id = 1"),
        f"{MERGE} WHEN MATCHED THEN DELETE",
        "INSERT INTO doomed SELECT id FROM orders",
        "ALTER TABLE orders COMPACT",
    ):
        with pytest.raises(LocationNotAllowedError, match="secret"):
            session.execute(text)
    assert session.execute("SELECT count(*) FROM demo.orders.snapshots").rows == [[2]]
