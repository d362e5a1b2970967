"""Statements for migrations: refusals, error positions and reverts; without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog, Table
from catalog.errors import CatalogError, EngineUnavailableError
from catalog.migration.requests import MigrationRequest, OnDuplicate, OnUnusable
from catalog.operations.records import OperationKind
from catalog.statements.engine import NewOperation
from catalog.statements.results import as_text
from catalog.statements.session import Session
from tests.support.iceberg_tables import NAME, append, expected_rows, iceberg_rows, make_orders, migrate, write_rows


class Asked(EngineUnavailableError):
    """The calls of the engine."""


class AskingEngine:
    """Records its calls."""

    def __init__(self, _catalog: Catalog) -> None:
        self.closed = False

    def migrate(
        self,
        operation: NewOperation,
        table: Table,
        request: MigrationRequest,
        *,
        verified_partitions: int | None = None,
    ) -> Mapping[str, Any]:
        error = Asked("asked")
        error.args = (operation, table, request, verified_partitions)
        raise error

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def session(catalog: Catalog) -> Iterator[Session]:
    catalog.create_database("demo", if_not_exists=True)
    with Session(catalog, database="demo", start=AskingEngine, requested_by="ann") as opened:  # type: ignore[arg-type]
        yield opened


def asked(session: Session, text: str) -> tuple[str, MigrationRequest, int | None]:
    """Return the engine's call for a statement: table, request, partitions to verify."""
    with pytest.raises(Asked) as caught:
        session.execute(text)
    operation, table, request, verified = caught.value.args
    assert operation.requested_by == "ann"
    return table.full_name, request, verified


def refused(session: Session, text: str) -> tuple[str, str | None]:
    """Return the error's class, and the text at its position."""
    with pytest.raises(CatalogError) as caught:
        session.execute(text)
    place = caught.value.position
    return type(caught.value).__name__, None if place is None else text[place:]


MIGRATE = "CALL iceberg.system.migrate(schema_name => 'demo', table_name => '{}')"
REVERT = "CALL iceberg.system.revert('demo', 'orders'{})"


@pytest.fixture
def orders(catalog: Catalog, session: Session) -> Table:
    return make_orders(catalog)


@pytest.mark.usefixtures("orders")
def test_statements_ask_for_what_they_say(session: Session) -> None:
    assert asked(session, MIGRATE.format("orders")) == (NAME, MigrationRequest(), None)
    options = ", recursive_directory => 'true', timestamps => 'without zone', unusable_files => 'skip', "
    text = MIGRATE.format("orders")[:-1] + options + "verify => true, verified_partitions => 2)"
    request = MigrationRequest(
        recursive_directory="true", timestamps="without zone", unusable_files=OnUnusable.SKIP, verify=True
    )
    assert asked(session, text) == (NAME, request, 2)
    snapshot = MigrationRequest(kind=OperationKind.SNAPSHOT, target="demo.trial", verify=False)
    text = "CALL iceberg.system.snapshot(schema_name => 'demo', table_name => 'orders', target_table_name => 'trial', "
    assert asked(session, text + "verify => false)") == (NAME, snapshot, None)


def test_files_are_added_from_the_hive_table(catalog: Catalog, session: Session, orders: Table) -> None:
    make_orders(catalog, "demo.old")
    migrate(catalog)
    text = (
        "ALTER TABLE orders EXECUTE add_files_from_table(schema_name => 'demo', table_name => 'old', "
        "partition_filter => map(ARRAY['country'], ARRAY['nl']), duplicate_file => 'skip')"
    )
    request = MigrationRequest(
        kind=OperationKind.ADD_FILES,
        target="demo.orders",
        partitions={"country": "nl"},
        duplicate_files=OnDuplicate.SKIP,
    )
    assert asked(session, text) == ("demo.old", request, None)


@pytest.mark.usefixtures("orders")
def test_what_cannot_be_migrated_is_refused_before_the_engine_starts(catalog: Catalog, session: Session) -> None:
    text = MIGRATE.format("none")
    assert refused(session, text) == ("TableNotFoundError", text[text.index("'none'") :])
    session.execute("CREATE VIEW looks AS SELECT * FROM orders")
    assert refused(session, MIGRATE.format("looks")) == ("NotATableError", "'looks')")
    session.execute("CREATE TABLE texts (a int) STORED AS TEXTFILE")
    assert refused(session, MIGRATE.format("texts")) == ("UnsupportedFormatError", "'texts')")
    session.execute(
        "CREATE TABLE logs (a int) PARTITIONED BY (k string) STORED BY 'carbondata' "
        "TBLPROPERTIES ('PARTITION_TYPE'='HASH', 'NUM_PARTITIONS'='2')"
    )
    assert refused(session, MIGRATE.format("logs")) == ("UnsupportedChangeError", "'logs')")
    session.execute("CREATE TABLE odd (_file int) STORED AS PARQUET")
    assert refused(session, MIGRATE.format("odd")) == ("ReservedColumnError", "'odd')")
    migrate(catalog)
    assert refused(session, MIGRATE.format("orders")) == ("AlreadyIcebergError", "'orders')")
    assert catalog.operations.list(NAME)[0].kind is OperationKind.MIGRATE


def test_errors_of_adding_files_point_at_the_table_that_they_are_about(
    catalog: Catalog, session: Session, orders: Table
) -> None:
    make_orders(catalog, "demo.old")
    add = "ALTER TABLE orders EXECUTE add_files_from_table('demo', 'old'{})"
    assert refused(session, add.format("")) == ("NotIcebergTableError", add.format("")[len("ALTER TABLE ") :])
    migrate(catalog)
    name, place = refused(session, add.format(", map(ARRAY['town'], ARRAY['x'])"))
    assert (name, place) == ("InvalidPartitionSpecError", "map(ARRAY['town'], ARRAY['x']))")
    name, place = refused(session, add.format("").replace("'old'", "'older'"))
    assert (name, place) == ("TableNotFoundError", "'older')")
    name, place = refused(session, add.format("").replace("orders", "others"))
    assert (name, place) == ("TableNotFoundError", add.format("").replace("orders", "others")[len("ALTER TABLE ") :])


@pytest.mark.usefixtures("orders")
def test_a_snapshot_needs_a_name_and_a_database_that_are_free(catalog: Catalog, session: Session) -> None:
    text = "CALL iceberg.system.snapshot('demo', 'orders', 'taken')"
    make_orders(catalog, "demo.taken")
    assert refused(session, text) == ("TableAlreadyExistsError", "'taken')")
    text = "CALL iceberg.system.snapshot('demo', 'orders', 'trial', 'fail', 'nowhere')"
    assert refused(session, text) == ("DatabaseNotFoundError", "'trial', 'fail', 'nowhere')")


@pytest.mark.usefixtures("orders")
def test_a_table_is_reverted_without_an_engine(catalog: Catalog, catalog_url: str, session: Session) -> None:
    metadata = migrate(catalog)["metadata_location"]
    assert iceberg_rows(catalog_url) == expected_rows()
    said = as_text(session.execute(REVERT.format("")))
    assert said == [f"demo.orders is a Hive table again; its Iceberg metadata was {metadata}"]
    assert not catalog.get_table(NAME).is_iceberg
    assert len(list(catalog.get_partitions(NAME))) == 4
    assert refused(session, REVERT.format("")) == ("NotIcebergTableError", "'orders')")


@pytest.mark.usefixtures("orders")
def test_what_was_written_since_is_lost_only_when_told(catalog: Catalog, catalog_url: str, session: Session) -> None:
    migrate(catalog)
    append(catalog_url, [8, 9])
    assert refused(session, REVERT.format("")) == ("DataWrittenError", "'orders')")
    answer = session.execute(
        REVERT.format(", lose_data => true").replace(
            "'demo', 'orders'", "schema_name => 'demo', table_name => 'orders'"
        )
    )
    assert (answer.rows[0][0], answer.rows[0][2:]) == ("demo.orders", [2, 0])
    assert "1 commit(s) since the migration are lost: 2 row(s) added and 0 deleted" in "\n".join(as_text(answer))


def test_a_statement_done_again_has_the_same_answer(catalog: Catalog, session: Session, orders: Table) -> None:
    migrate(catalog)
    first = session.execute(REVERT.format(""), operation_id="run/statement-1")
    migrate(catalog, operation_id="m2")
    assert session.execute(REVERT.format(""), operation_id="run/statement-1") == first
    assert catalog.get_table(NAME).is_iceberg


def test_a_refused_statement_holds_no_table(catalog: Catalog, session: Session, tmp_path: Path, orders: Table) -> None:
    asked(session, MIGRATE.format("orders"))
    write_rows(orders.location, [1], "country=nl/year=2024/part-9.parquet")
    session.execute("ALTER TABLE orders ADD PARTITION (country='fr', year='1')")
    assert len(list(catalog.get_partitions(NAME))) == 5
