"""The catalog's database: schema, transactions, and errors if it is missing."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread
from uuid import uuid4

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, func, insert, inspect, select, text, update

from catalog import Catalog, IndexState, NewPartition, Table
from catalog.errors import CatalogUnavailableError, ConflictError, LocationInUseError
from catalog.files.locations import location_key
from catalog.iceberg.pointers import find_pointer
from catalog.model.partition_names import NULL_VALUE
from catalog.storage import Storage
from catalog.storage.schema import Base, IcebergTableRow, PartitionCheckRow, PartitionRow, PurgedFolderRow, TableRow
from catalog.storage.upgrade import downgrade, upgrade

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:planted@/db?host=a,b&port=x",
        "postgresql://u:planted@/db?host=a,b&port=1,2,3",
        "postgresql://127.0.0.1:1/db?host=a&host=b&port=1&password=planted",
        "postgresql://127.0.0.1:1/db?user=u&pass=planted",
        "postgresql://127.0.0.1:1/db?options=-c%20x=planted&nosuch=planted",
        "postgresql://127.0.0.1:1/db?oauth_client_secret=planted",
        "postgresql://u:planted@127.0.0.1:1/db\ud800",
        "postgresql://u:planted@127.0.0.1:1/d%00b",
        "postgresql://u:planted@127.0.0.1:99999999/db",
        "sqlite:///x.db?timeout=planted",
        "sqlite:///x.db?check_same_thread=planted",
        "sqlite:///x\0.db?password=planted",
    ],
)
def test_a_wrong_url_is_named_without_its_secrets(url: str) -> None:
    with pytest.raises(CatalogUnavailableError, match="catalog") as refused:
        Catalog.open(url).list_databases()
    assert "planted" not in str(refused.value)


def test_the_error_of_a_statement_shows_no_value(storage: Storage) -> None:
    secret = str(uuid4())
    with pytest.raises(Exception, match="no_such_table") as failed, storage.read() as connection:
        connection.execute(text("SELECT :secret FROM no_such_table"), {"secret": secret})
    assert secret not in "".join(traceback.format_exception(failed.value))


@pytest.fixture
def storage(catalog_url: str) -> Iterator[Storage]:
    """The database of a fresh catalog."""
    storage = Storage(catalog_url)
    yield storage
    storage.close()


def tables(storage: Storage) -> set[str]:
    with storage.read() as connection:
        return {name for name in inspect(connection).get_table_names() if name.startswith(("calve_", "iceberg_"))}


@pytest.mark.long
def test_the_schema_goes_up_and_down_and_up_again(storage: Storage, catalog_url: str) -> None:
    created = tables(storage)
    assert {table.name for table in Base.metadata.sorted_tables} <= created
    downgrade(storage, "base")
    assert tables(storage) == {"calve_alembic_version"}
    with pytest.raises(CatalogUnavailableError, match="calve init"):
        Catalog.open(catalog_url)
    for _ in range(2):
        upgrade(storage)
        assert tables(storage) == created
    with Catalog.open(catalog_url, warehouse="/warehouse") as catalog:
        catalog.create_database("demo")


def test_the_revisions_make_the_schema_that_the_code_expects(storage: Storage) -> None:
    with storage.read() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": "calve_alembic_version"})
        assert compare_metadata(context, Base.metadata) == []


def test_going_down_and_up_again_loses_no_partition_and_gives_no_id_twice(catalog: Catalog, flights: Table) -> None:
    catalog.add_partitions("demo.flights", [NewPartition(["JFK", str(year), None]) for year in range(2010, 2014)])
    last = max(partition.id for partition in catalog.get_partitions("demo.flights"))
    catalog.drop_partitions("demo.flights", "year = 2013")
    kept = sorted(catalog.get_partitions("demo.flights"))
    with catalog.storage.write() as connection:
        checks = [
            {"partition_id": each.id, "operation_number": 1, "passed": True, "failures": [], "checked_at_ms": 1}
            for each in kept
        ]
        connection.execute(insert(PartitionCheckRow), checks)

    downgrade(catalog.storage, "0003")
    upgrade(catalog.storage)

    assert sorted(catalog.get_partitions("demo.flights")) == kept
    with catalog.storage.read() as connection:
        assert connection.scalar(select(func.count()).select_from(PartitionCheckRow)) == len(kept)
    catalog.add_partitions("demo.flights", [NewPartition(["JFK", "2013", None])])
    assert catalog.get_partition("demo.flights", ["JFK", "2013", None]).id > last


@pytest.mark.long
def test_indexes_jobs_and_sources_survive_the_renumbering_of_rows(catalog: Catalog, flights: Table) -> None:
    catalog.add_partitions("demo.flights", [NewPartition(["JFK", str(year), None]) for year in range(2010, 2014)])
    index = catalog.create_partition_index("demo.flights", "by_year", ["year"])
    catalog.repair_table("demo.flights", operation_id="r1")
    catalog.create_view("demo.v", "SELECT 1")
    before = catalog.operations.get_job("r1", "repair")

    downgrade(catalog.storage, "0007")
    upgrade(catalog.storage)

    assert catalog.get_partition_indexes("demo.flights") == [index]
    assert before is not None
    # Earlier versions do not record when an attempt started.
    assert catalog.operations.get_job("r1", "repair") == replace(before, started_at_ms=None)
    assert catalog.build_partition_index("demo.flights", "by_year").state is IndexState.ACTIVE
    catalog.delete_partition_index("demo.flights", "by_year")
    assert catalog.create_partition_index("demo.flights", "by_year", ["year"]).id > index.id
    with catalog.storage.read() as connection:
        keys = connection.execute(select(TableRow.name, TableRow.location_key).order_by(TableRow.name)).all()
    assert [tuple(row) for row in keys] == [("flights", location_key(flights.location)), ("v", None)]


def test_a_partition_of_an_empty_text_keeps_its_folder(catalog: Catalog, flights: Table) -> None:
    catalog.add_partitions("demo.flights", [NewPartition(["JFK", "2013", None]), NewPartition(["LGA", "2013", None])])
    downgrade(catalog.storage, "0009")
    with catalog.storage.write() as connection:
        packed = PartitionRow.packed_values
        connection.execute(update(PartitionRow).where(packed.like("JFK/%")).values(packed_values=f"/2013/{NULL_VALUE}"))
    upgrade(catalog.storage)
    locations = {partition.values[0]: partition.location for partition in catalog.get_partitions("demo.flights")}
    keys = flights.key_names
    assert locations[""].startswith(f"{flights.location}/{keys[0]}=/{keys[1]}=2013")
    assert locations["LGA"].startswith(f"{flights.location}/{keys[0]}=LGA/{keys[1]}=2013")


@pytest.mark.long
def test_tables_that_came_before_their_locations_were_kept_get_their_keys(catalog: Catalog, flights: Table) -> None:
    downgrade(catalog.storage, "0011")
    with catalog.storage.write() as connection:
        connection.execute(update(TableRow).values(location_key=None))
    upgrade(catalog.storage)
    with pytest.raises(LocationInUseError, match=r"demo\.flights"):
        catalog.create_table("demo.t", columns=[("x", "int")], location=flights.location)


@pytest.mark.long
def test_the_keys_of_remote_locations_are_written_again(
    catalog: Catalog, flights: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        location = f"abfss://c@a.dfs.core.windows.net/t{number}"
        catalog.create_table(f"demo.t{number}", columns=[("x", "int")], location=location)
    downgrade(catalog.storage, "0019")
    purge = {"operation_number": 1, "location": "hdfs://nn/x"}
    row = TableRow
    with catalog.storage.write() as connection:
        for number in range(5):
            old = f"abfss://c@a.dfs.core.windows.net/t{number}/".encode()
            connection.execute(update(row).where(row.name == f"t{number}").values(location_key=old))
        for old in (b"hdfs://nn/x/", b"hdfs://NN/x/"):
            connection.execute(insert(PurgedFolderRow), [{**purge, "location_key": old}])
    upgrade(catalog.storage)
    with catalog.storage.read() as connection:
        for name, location, key in connection.execute(select(row.name, row.location, row.location_key)):
            assert key == location_key(location), name
        assert connection.execute(select(PurgedFolderRow.location_key, PurgedFolderRow.location)).all() == [
            (location_key("hdfs://nn/x"), "hdfs://nn/x")
        ]
    with pytest.raises(LocationInUseError, match=r"demo\.t4"):
        catalog.create_table("demo.t", columns=[("x", "int")], location="abfs://c@a.dfs.core.windows.net/t4/x")


@pytest.mark.long
def test_pointers_of_other_catalogs_survive_going_down_and_up_again(storage: Storage) -> None:
    row = {"table_namespace": "db", "table_name": "t", "metadata_location": "/t", "iceberg_type": "TABLE"}
    with storage.write() as connection:
        connection.execute(insert(IcebergTableRow), [{"catalog_name": each, **row} for each in ("calve", "theirs")])
    downgrade(storage, "0006")
    assert "iceberg_tables" in tables(storage)
    assert "iceberg_namespace_properties" not in tables(storage)
    upgrade(storage)
    with storage.read() as connection:
        assert list(connection.scalars(select(IcebergTableRow.catalog_name))) == ["theirs"]


def test_tables_of_an_older_iceberg_catalog_are_completed(storage: Storage) -> None:
    downgrade(storage, "0006")
    with storage.write() as connection:
        columns = ", ".join(
            f"{name} varchar(255) NOT NULL" for name in ("catalog_name", "table_namespace", "table_name")
        )
        more = "metadata_location varchar(1000), previous_metadata_location varchar(1000)"
        key = "PRIMARY KEY (catalog_name, table_namespace, table_name)"
        connection.execute(text(f"CREATE TABLE iceberg_tables ({columns}, {more}, {key})"))
        values = "'calve', 'db', 't', '/t', NULL"
        connection.execute(text(f"INSERT INTO iceberg_tables VALUES ({values})"))
    upgrade(storage)
    with storage.read() as connection:
        assert find_pointer(connection, "db", "t") == "/t"


def test_the_tables_of_pointers_are_those_that_pyiceberg_makes(storage: Storage, tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalogBaseTable

    theirs = create_engine(f"sqlite:///{tmp_path}/theirs.db")
    SqlCatalogBaseTable.metadata.create_all(theirs)
    for name in ("iceberg_tables", "iceberg_namespace_properties"):
        with storage.read() as connection, theirs.connect() as other:
            ours, expected = inspect(connection), inspect(other)
            for found in (ours, expected):
                found.clear_cache()
            shapes = [
                (
                    [(each["name"], str(each["type"]), each["nullable"]) for each in found.get_columns(name)],
                    found.get_pk_constraint(name)["constrained_columns"],
                )
                for found in (ours, expected)
            ]
            assert shapes[0] == shapes[1]
    theirs.dispose()


def test_initialising_twice_keeps_what_is_there(catalog: Catalog, catalog_url: str) -> None:
    with Catalog.initialise(catalog_url) as again:
        assert [database.name for database in again.list_databases()] == ["demo"]


def test_a_schema_of_another_revision_is_not_used(catalog: Catalog, catalog_url: str) -> None:
    with catalog.storage.write() as connection:
        connection.execute(text("UPDATE calve_alembic_version SET version_num = '9999'"))
    with pytest.raises(CatalogUnavailableError, match="9999"):
        Catalog.open(catalog_url)


def test_several_may_initialise_at_once(catalog_url: str, storage: Storage) -> None:
    downgrade(storage, "base")
    together, errors = Barrier(3), []

    def initialise() -> None:
        together.wait()
        try:
            Catalog.initialise(catalog_url).close()
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=initialise) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    Catalog.open(catalog_url).close()


# --- not there ------------------------------------------------------------------------------------------------------


def test_a_catalog_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALVE_CATALOG_URL", raising=False)
    with pytest.raises(CatalogUnavailableError, match="CALVE_CATALOG_URL is not set"):
        Catalog.open()


def test_the_environment_names_the_catalog(catalog_url: str) -> None:
    with Catalog.open() as catalog:
        assert catalog.storage.url.database in catalog_url


@pytest.mark.parametrize("url", ["mysql://user:secret@host/db", "nonsense", "", "sqlite", "postgresql+nothing://"])
def test_other_databases_are_refused_without_showing_the_password(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALVE_CATALOG_URL", raising=False)
    with pytest.raises(CatalogUnavailableError) as refused:
        Catalog.open(url)
    assert "secret" not in str(refused.value)


def test_a_database_without_schema_says_how_to_get_one(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    with pytest.raises(CatalogUnavailableError, match="calve init"):
        Catalog.open(f"sqlite:///{tmp_path}/empty.db")


@pytest.mark.parametrize("name", ["typo.db", "no/folder/calve.db"])
def test_a_file_that_does_not_exist_is_not_created_by_readers(tmp_path: Path, name: str) -> None:
    with pytest.raises(CatalogUnavailableError, match=f"no catalog at .*{name}; .*calve init"):
        Catalog.open(f"sqlite:///{tmp_path}/{name}")
    assert list(tmp_path.iterdir()) == []
    with Catalog.initialise(f"sqlite:///{tmp_path}/{name}"), Catalog.open(f"sqlite:///{tmp_path}/{name}") as catalog:
        assert catalog.list_databases() == []


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:secret@127.0.0.1:1/calve",
        "postgresql://user:secret@no-such-host.invalid/calve",
        "postgresql://user@127.0.0.1:1/calve?password=secret",
        "postgresql://127.0.0.1:1/calve?user=user&password=secret&sslpassword=secret",
        "sqlite:////proc/nothing/calve.db",
    ],
)
def test_a_database_that_cannot_be_reached_is_named_without_its_password(url: str) -> None:
    with pytest.raises(CatalogUnavailableError, match=r"/calve|/proc/nothing") as refused:
        Catalog.open(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:a@planted@127.0.0.1:1/calve",
        "postgresql://user:a@planted/b@127.0.0.1:1/calve",
        "postgresql://user:a@b/planted@127.0.0.1:1/calve",
        "postgresql://user:a@b?planted@127.0.0.1:1/calve",
        "postgresql://user:a@b?planted@127.0.0.1:1/calve?sslmode=require",
    ],
)
def test_half_a_password_is_not_shown(url: str) -> None:
    with pytest.raises(CatalogUnavailableError, match="write each @ of the password as %40") as refusal:
        Catalog.open(url)
    assert "planted" not in str(refusal.value)


@pytest.mark.parametrize("url", ["postgresql://me:a%40b@127.0.0.1:1/x", "postgresql://me@server:a@127.0.0.1:1/x"])
def test_an_escaped_password_and_a_user_of_a_server_are_taken(url: str) -> None:
    with pytest.raises(CatalogUnavailableError, match="cannot be reached"):
        Catalog.open(url)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear catalog, " * 100)
    with pytest.raises(CatalogUnavailableError, match=r"letter\.txt"):
        Catalog.open(f"sqlite:///{tmp_path}/letter.txt")


# --- transactions ---------------------------------------------------------------------------------------------------


def test_an_error_leaves_nothing_of_its_transaction(catalog: Catalog) -> None:
    def stumble() -> None:
        with catalog.storage.write() as connection:
            connection.execute(text("UPDATE calve_database SET name = 'changed'"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stumble()
    assert [database.name for database in catalog.list_databases()] == ["demo"]


def test_who_reads_sees_one_state_while_others_write(catalog: Catalog, flights: Table) -> None:
    count = text("SELECT count(*) FROM calve_partition")
    with catalog.storage.read() as connection:
        assert connection.scalar(count) == 0
        catalog.add_partitions("demo.flights", [NewPartition(["JFK", "2013", None])])
        assert connection.scalar(count) == 0
    with catalog.storage.read() as connection:
        assert connection.scalar(count) == 1


def test_two_that_wait_for_each_other_end_with_a_conflict_that_may_be_tried_again(postgres_url: str) -> None:
    with Catalog.open(postgres_url, warehouse="/warehouse") as catalog:
        catalog.create_database("demo")
        ids = [catalog.create_table(f"demo.{name}", columns=[("v", "int")]).id for name in "ab"]
        together, outcomes = Barrier(2), []

        def lock(first: int, second: int) -> None:
            try:
                with catalog.storage.write() as connection:
                    catalog.storage.lock_table(connection, first, exclusive=True)
                    together.wait()
                    catalog.storage.lock_table(connection, second, exclusive=True)
                outcomes.append("held")
            except ConflictError as error:
                outcomes.append("conflict" if error.retryable else "failed")

        threads = [Thread(target=lock, args=pair) for pair in (ids, ids[::-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(outcomes) == ["conflict", "held"]


def test_who_wants_a_table_exclusively_comes_before_those_who_ask_later_to_share_it(postgres_url: str) -> None:
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    order: list[bool] = []
    with Catalog.open(postgres_url, warehouse="/warehouse") as catalog:
        catalog.create_database("demo")
        table = catalog.create_table("demo.t", columns=[("v", "int")])

        def hold(exclusive: bool) -> None:
            with catalog.storage.write() as connection:
                catalog.storage.lock_table(connection, table.id, exclusive=exclusive)
                order.append(exclusive)

        def wait_for(thread: Thread, count: int) -> None:
            with catalog.storage.engine.connect() as connection:
                while thread.is_alive() and connection.scalar(waiting) != count:
                    pass

        with catalog.storage.write() as connection:
            catalog.storage.lock_table(connection, table.id, exclusive=False)
            threads = [Thread(target=hold, args=(exclusive,)) for exclusive in (True, False)]
            for count, thread in enumerate(threads, 1):
                thread.start()
                wait_for(thread, count)
        for thread in threads:
            thread.join()
    assert order == [True, False]


def test_a_locked_sqlite_catalog_is_a_conflict_that_may_be_tried_again(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.storage.engine._BUSY_TIMEOUT_MS", 50)
    with (
        Catalog.open(sqlite_url) as catalog,
        catalog.storage.write(),
        pytest.raises(ConflictError, match="try again"),
    ):
        catalog.create_database("demo", location="/demo")
