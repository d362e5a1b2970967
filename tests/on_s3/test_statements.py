"""A script of statements on S3, in one Spark session: each kind of rebalance and of migration."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog
from catalog.operations.failpoints import DIE_AT, Point
from standalone.unprivileged import python_probe, unprivileged_prefix
from tests.on_s3.conftest import iceberg_rows
from tests.support.object_store import StoreClient

if TYPE_CHECKING:
    from standalone.stack import Stack

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

DATABASE = "stated"
FORMATS = ("PARQUET", "ORC", "AVRO")

REBALANCES = {
    "ranges": """
        CREATE TABLE ranges (id bigint) PARTITIONED BY (v int) STORED BY 'carbondata'
            TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='10, 20');
        INSERT INTO ranges SELECT id, CAST(id AS int) FROM range(50);
        ALTER TABLE ranges ADD PARTITION ('30', '40');
        ALTER TABLE ranges SPLIT PARTITION (2) INTO ('15', '20');
        ALTER TABLE ranges MERGE PARTITION (1, 5);
        ALTER TABLE ranges DROP PARTITION (3);
        ALTER TABLE ranges DROP PARTITION (6) WITH DATA
    """,
    "lists": """
        CREATE TABLE lists (id bigint) PARTITIONED BY (v string) STORED BY 'carbondata'
            TBLPROPERTIES ('PARTITION_TYPE'='LIST', 'LIST_INFO'='0, 1, (2, 3), 4');
        INSERT INTO lists SELECT id, CAST(id % 7 AS string) FROM range(49);
        ALTER TABLE lists ADD PARTITION ('5');
        ALTER TABLE lists SPLIT PARTITION (3) INTO ('2', '3');
        ALTER TABLE lists MERGE PARTITION (1, 2);
        ALTER TABLE lists DROP PARTITION (4);
        ALTER TABLE lists DROP PARTITION (5) WITH DATA
    """,
    "hashes": """
        CREATE TABLE hashes (id bigint) PARTITIONED BY (v int) STORED BY 'carbondata'
            TBLPROPERTIES ('PARTITION_TYPE'='HASH', 'PARTITION_NUM'='3');
        INSERT INTO hashes SELECT id, CAST(id AS int) FROM range(40);
        ALTER TABLE hashes SET PARTITION_NUM 5
    """,
    "intervals": """
        CREATE TABLE intervals (id bigint) PARTITIONED BY (v int) STORED BY 'carbondata'
            TBLPROPERTIES ('PARTITION_TYPE'='RANGE_INTERVAL', 'RANGE_INFO'='10', 'INTERVAL'='10');
        INSERT INTO intervals SELECT id, CAST(id AS int) FROM range(35)
    """,
}
MIGRATION = """
    CREATE TABLE {table} (id bigint, note string) PARTITIONED BY (country string, year int) STORED AS {format};
    INSERT INTO {table} VALUES (1, 'a', 'nl', 2024), (2, 'b', 'nl', 2025), (3, NULL, 'de/at', 2024);
    CALL iceberg.system.migrate('stated', '{table}');
    SELECT * FROM {table} ORDER BY id
"""
OTHER_MIGRATIONS = """
    CALL iceberg.system.revert('stated', 'in_parquet');
    CALL iceberg.system.snapshot('stated', 'in_parquet', 'trial');
    CREATE TABLE more (id bigint, note string) PARTITIONED BY (country string, year int) STORED AS PARQUET;
    INSERT INTO more VALUES (4, 'd', 'fr', 2026);
    ALTER TABLE trial EXECUTE add_files_from_table(schema_name => 'stated', table_name => 'more');
    SELECT * FROM in_parquet ORDER BY id
"""
CHANGES = """
    CREATE TABLE {table} (id int, note string) PARTITIONED BY (day int) STORED AS {format};
    INSERT INTO {table} VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 2), (4, 'd', 3), (5, 'e', 4);
    INSERT INTO {table} VALUES (6, 'f', 1);
    DELETE FROM {table} WHERE note = 'b';
    UPDATE {table} SET note = 'new' WHERE id = 3;
    INSERT OVERWRITE {table} VALUES (7, 'g', 3);
    TRUNCATE TABLE {table} PARTITION (day = 4);
    ALTER TABLE {table} COMPACT;
    SELECT id, note, day FROM {table} ORDER BY id
"""
SCHEME_CHANGES = """
    CREATE TABLE changed_scheme (id int, note string) PARTITIONED BY (day int) STORED BY 'carbondata'
        TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='2, 3, 4');
    INSERT INTO changed_scheme VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 2), (4, 'd', 3), (5, 'e', 4);
    INSERT INTO changed_scheme VALUES (6, 'f', 1);
    DELETE FROM changed_scheme WHERE note = 'b';
    MERGE INTO changed_scheme t USING (SELECT 3 AS id, 'new' AS note, 2 AS day) s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET note = s.note WHEN NOT MATCHED THEN INSERT *;
    INSERT OVERWRITE changed_scheme VALUES (7, 'g', 3);
    UPDATE changed_scheme SET day = 1 WHERE id = 5;
    TRUNCATE TABLE changed_scheme PARTITION (_partition_id = 0);
    DELETE FROM changed_scheme WHERE id = 5;
    ALTER TABLE changed_scheme COMPACT;
    SELECT id, note, day FROM changed_scheme ORDER BY id
"""
CHANGED = [[1, "a", 1], [3, "new", 2], [6, "f", 1], [7, "g", 3]]
ROWS = [[1, "a", "nl", 2024], [2, "b", "nl", 2025], [3, None, "de/at", 2024]]


def table_of(file_format: str) -> str:
    return f"in_{file_format.lower()}"


@pytest.fixture(scope="module")
def outcomes(stack: Stack, catalog: Catalog) -> list[dict[str, Any]]:
    """The outcomes of all statements, which `calve sql` runs as the user of the stack."""
    catalog.create_database(DATABASE)
    migrations = [MIGRATION.format(table=table_of(name), format=name) for name in FORMATS]
    changes = [CHANGES.format(table=f"changed_{name.lower()}", format=name) for name in ("PARQUET", "ICEBERG")]
    script = ";".join([*REBALANCES.values(), *migrations, OTHER_MIGRATIONS, *changes, SCHEME_CHANGES])
    ended = run(stack, script)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return [json.loads(line) for line in ended.stdout.splitlines()]


def run(stack: Stack, script: str, point: Point | None = None) -> subprocess.CompletedProcess[str]:
    """Run statements by `calve sql` as the user of the stack.

    Args:
        point: Where the process is killed; None for nowhere.
    """
    is_own = stack.home.stat().st_uid == os.geteuid()
    prefix = () if is_own else unprivileged_prefix([python_probe(sys.executable, "import catalog")])
    assert prefix is not None
    command = [sys.executable, "-m", "catalog.cli", "sql", "--json", "--database", DATABASE, "--file", "-"]
    return subprocess.run(
        [*prefix, *command],
        input=script,
        env={**stack.environment, **({} if point is None else {DIE_AT: point})},
        cwd=stack.home,
        capture_output=True,
        text=True,
        check=False,
    )


def rows_of(outcomes: list[dict[str, Any]], statement: str) -> list[list[Any]]:
    return next(outcome["rows"] for outcome in outcomes if outcome["statement"] == statement)


@pytest.mark.parametrize(
    ("table", "ids", "partition_ids"),
    [
        ("ranges", {*range(15), *range(20, 50)}, {0, 7, 4}),
        ("lists", {number for number in range(49) if number % 7 != 5}, {0, 8, 6, 7}),
        ("hashes", {*range(40)}, {0, 1, 2, 3, 4}),
        ("intervals", {*range(35)}, {0, 1, 2, 3, 4}),
    ],
)
def test_partitions_have_the_rows_that_the_changes_left(
    outcomes: list[dict[str, Any]], catalog: Catalog, stack: Stack, table: str, ids: set[int], partition_ids: set[int]
) -> None:
    assert sorted(row["id"] for row in iceberg_rows(stack, f"{DATABASE}.{table}")) == sorted(ids)
    partitions = catalog.scheme_partitions(f"{DATABASE}.{table}")
    assert {partition.id for partition in partitions} == partition_ids
    assert sum(partition.row_count for partition in partitions) == len(ids)


@pytest.mark.parametrize("file_format", FORMATS)
def test_hive_tables_of_each_format_are_migrated(
    outcomes: list[dict[str, Any]], catalog: Catalog, file_format: str
) -> None:
    table = table_of(file_format)
    assert rows_of(outcomes, f"CALL iceberg.system.migrate('{DATABASE}', '{table}')")[0][2] == len(ROWS)
    assert rows_of(outcomes, f"SELECT * FROM {table} ORDER BY id") == ROWS
    assert catalog.get_table(f"{DATABASE}.{table}").is_iceberg is (file_format != "PARQUET")


def test_a_snapshot_has_the_rows_of_a_reverted_table_and_the_files_of_another(
    outcomes: list[dict[str, Any]], stack: Stack
) -> None:
    assert rows_of(outcomes[::-1], "SELECT * FROM in_parquet ORDER BY id") == ROWS
    trial = sorted(list(row.values()) for row in iceberg_rows(stack, f"{DATABASE}.trial"))
    assert trial == [*ROWS, [4, "d", "fr", 2026]]


@pytest.mark.parametrize("table_format", ["parquet", "iceberg", "scheme"])
def test_changed_rows_are_those_of_the_statements(outcomes: list[dict[str, Any]], table_format: str) -> None:
    assert rows_of(outcomes, f"SELECT id, note, day FROM changed_{table_format} ORDER BY id") == CHANGED


def test_after_the_grace_period_the_folders_have_exactly_the_current_files(
    outcomes: list[dict[str, Any]], catalog: Catalog, store: StoreClient
) -> None:
    name = f"{DATABASE}.changed_parquet"
    for _ in range(2):
        assert catalog.vacuum(name, grace=timedelta(0)).problems == ()
    root = catalog.get_table(name).location
    prefix = root.removeprefix("s3://lake/")
    keys = [key.removeprefix(f"{prefix}/") for key in store.objects(f"{prefix}/") if not key.endswith("/")]
    folders = sorted(key.rpartition("/")[0] for key in keys)
    assert folders == ["day=1", "day=2", "day=3"]
    assert {partition.location: partition.row_count for partition in catalog.get_partitions(name)} == {
        f"{root}/day=1": 2,
        f"{root}/day=2": 1,
        f"{root}/day=3": 1,
    }


KILLED = {
    "scheme": ("MERGE INTO {} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = 'z'", 0),
    "iceberg": ("DELETE FROM {} WHERE note = 'a'", -1),
    "parquet": ("UPDATE {} SET note = 'z' WHERE id = 1", 0),
}


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        *[("scheme", point) for point in (Point.FILES_WRITTEN, Point.MANIFEST_WRITTEN, Point.CHANGED)],
        *[("iceberg", point) for point in (Point.LISTED, Point.CHANGED)],
        *[("parquet", point) for point in (Point.RESERVED, Point.MOVED, Point.CHANGED)],
    ],
)
def test_a_change_that_is_killed_is_undone(
    outcomes: list[dict[str, Any]], catalog: Catalog, stack: Stack, store: StoreClient, kind: str, point: Point
) -> None:
    name = f"{DATABASE}.changed_{kind}"
    before = counts(catalog, name)
    ended = run(stack, KILLED[kind][0].format(name), point)
    assert ended.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), ended.stderr[-4000:]
    assert counts(catalog, name) == before
    for operation in catalog.operations.list(name):
        catalog.operations.fail(operation.id, "TEST", "cancelled by the test")
    for _ in range(2):
        assert catalog.vacuum(name, grace=timedelta(0)).problems == ()
    assert counts(catalog, name) == before
    prefix = catalog.get_table(name).location.removeprefix("s3://lake/")
    data = [key for key in store.objects(f"{prefix}/") if key.endswith(".parquet")]
    assert len(data) == sum(files for files, _ in before.values())


@pytest.mark.parametrize("kind", KILLED)
def test_a_change_after_killed_ones_is_made(
    outcomes: list[dict[str, Any]], catalog: Catalog, stack: Stack, kind: str
) -> None:
    name, (statement, more) = f"{DATABASE}.changed_{kind}", KILLED[kind]
    before = counts(catalog, name)
    ended = run(stack, statement.format(name))
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert sum(rows for _, rows in counts(catalog, name).values()) == sum(rows for _, rows in before.values()) + more


def counts(catalog: Catalog, name: str) -> dict[Any, tuple[int, int]]:
    """Return the numbers of files and rows of each partition."""
    if catalog.get_table(name).scheme is not None:
        return {part.id: (part.file_count, part.row_count) for part in catalog.scheme_partitions(name)}
    return {part.values: (part.file_count or 0, part.row_count or 0) for part in catalog.get_partitions(name)}
