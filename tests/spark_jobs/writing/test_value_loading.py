"""Rows are added to existing and new partitions atomically, also if processes are killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

from catalog import Catalog, FileFormat, IndexDefinition, NewPartition
from catalog.errors import (
    CatalogError,
    CommitOutcomeUnknownError,
    ConflictError,
    InvalidPartitionError,
    InvalidRowsError,
    NotATableError,
    OperationConflictError,
    UnsupportedFormatError,
)
from catalog.files.filesystem import Folder
from catalog.model import OnInvalid
from catalog.operations.journal import Operations
from catalog.operations.records import OperationKind, OperationState
from catalog.partitions.adding import PartitionAdder
from tests.support.index_items import assert_every_partition_has_its_item

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

TABLE = "shop.orders"
State = dict[str, tuple[list[int], int | None, int | None]]


@pytest.fixture
def sqlite_catalog(sqlite_url: str, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.setenv("CALVE_CATALOG_URL", sqlite_url)
    with Catalog.open() as opened:
        yield opened


def create(catalog: Catalog, **definition: Any) -> None:
    catalog.create_database("shop", if_not_exists=True)
    catalog.create_table(
        TABLE,
        columns=[("id", "int"), ("amount", "double"), ("note", "varchar(5)")],
        **{
            "partition_keys": [("country", "string"), ("day", "int")],
            "indexes": [IndexDefinition("by_day", ("day",))],
            **definition,
        },
    )


def rows(spark: SparkSession, *values: tuple[Any, ...], names: str = "id int, country string, day int") -> DataFrame:
    # The DataFrame of VALUES in a statement, which needs no Python task.
    literals = ", ".join("(" + ", ".join("null" if v is None else repr(v) for v in row) + ")" for row in values)
    columns = [each.split() for each in names.split(", ")]
    text = ", ".join(f"cast(col{n + 1} AS {kind}) AS {name}" for n, (name, kind) in enumerate(columns))
    return spark.sql(f"SELECT {text} FROM VALUES {literals}")


def append(spark: SparkSession, catalog: Catalog, operation_id: str, frame: DataFrame) -> dict[str, Any]:
    from spark_jobs.writing.value_loading import append_rows

    return append_rows(spark, catalog, operation_id, TABLE, frame)


def ids_in(folder: str | Path) -> list[int]:
    found = [pyarrow.parquet.ParquetFile(path).read(["id"]) for path in sorted(Path(folder).glob("*.parquet"))]
    return sorted(value for table in found for value in table["id"].to_pylist())


def state(catalog: Catalog) -> State:
    """Return the rows of each partition, read without Spark; check that there are no other files."""
    table = catalog.get_table(TABLE)
    partitions = list(catalog.get_partitions(TABLE))
    for index in catalog.get_partition_indexes(TABLE):
        assert len(list(catalog.get_partitions(TABLE, f"{index.keys[0]} >= 0"))) == len(
            [each for each in partitions if each.values[1] is not None]
        )
    assert_every_partition_has_its_item(catalog, TABLE)
    files = {path for path in Path(table.location).rglob("*") if path.is_file()}
    known = {path for each in partitions for path in Path(each.location).glob("*.parquet")}
    assert files <= known
    return {each.name(table): (ids_in(each.location), each.file_count, each.row_count) for each in partitions}


def test_rows_go_to_new_partitions_and_to_those_that_exist(spark: SparkSession, catalog: Catalog) -> None:
    create(catalog)
    first = append(spark, catalog, "1", rows(spark, (1, "a", 1), (2, "a", 1), (3, "b/%", 2), (4, None, None)))
    assert first == {
        "rows": 4,
        "files": 3,
        "bytes": first["bytes"],
        "partitions_added": 3,
        "partitions_extended": 0,
    }
    null = "country=__HIVE_DEFAULT_PARTITION__/day=__HIVE_DEFAULT_PARTITION__"
    expected = {"country=a/day=1": ([1, 2], 1, 2), "country=b%2F%25/day=2": ([3], 1, 1), null: ([4], 1, 1)}
    assert state(catalog) == expected
    second = append(spark, catalog, "2", rows(spark, (5, "a", 1), (6, "", None), (7, "c", 1)))
    assert (second["partitions_added"], second["partitions_extended"]) == (1, 2)
    assert state(catalog) == {
        **expected,
        "country=a/day=1": ([1, 2, 5], 2, 3),
        null: ([4, 6], 2, 2),
        "country=c/day=1": ([7], 1, 1),
    }
    sizes = {each.size_bytes for each in catalog.get_partitions(TABLE, "country = 'a'")}
    assert sizes == {
        sum(path.stat().st_size for path in Path(each.location).glob("*.parquet"))
        for each in catalog.get_partitions(TABLE, "country = 'a'")
    }
    # It is idempotent.
    assert append(spark, catalog, "2", rows(spark, (5, "a", 1))) == second
    assert catalog.operations.get("2").state is OperationState.CLEANED
    assert not (Path(catalog.get_table(TABLE).location) / "_calve_staging").exists()


def test_values_are_written_as_their_keys_types_say(spark: SparkSession, sqlite_catalog: Catalog) -> None:
    sqlite_catalog.create_database("shop")
    keys = [("d", "date"), ("n", "bigint"), ("c", "char(3)"), ("_v", "varchar(3)")]
    sqlite_catalog.create_table(TABLE, columns=[("id", "int"), ("note", "string")], partition_keys=keys)
    frame = rows(
        spark,
        ("1", "2014-1-2", "007", "a  ", "x y"),
        ("2", "2014-01-02", "+7", "a", "x y"),
        names="ID string, D string, N string, C string, _V string",
    )
    assert append(spark, sqlite_catalog, "1", frame)["partitions_added"] == 1
    [partition] = sqlite_catalog.get_partitions(TABLE)
    assert partition.values == ("2014-01-02", "7", "a", "x y")
    assert (ids_in(partition.location), partition.row_count) == ([1, 2], 2)


@pytest.mark.long
def test_keys_of_every_type_are_written_in_one_spelling_and_found_in_others(
    spark: SparkSession, sqlite_catalog: Catalog
) -> None:
    from spark_jobs.reading.tables import read_table

    sqlite_catalog.create_database("shop")
    keys = [("at", "timestamp"), ("price", "decimal(5,2)"), ("ok", "boolean"), ("x", "double"), ("f", "float")]
    indexes = [IndexDefinition("by_at", ("at", "price", "ok", "x", "f"))]
    sqlite_catalog.create_table(TABLE, columns=[("id", "int")], partition_keys=keys, indexes=indexes)
    names = "id int, at string, price string, ok string, x string, f string"
    frame = rows(
        spark,
        (1, "2024-01-01", "1.5", "TRUE", "0", "1e2"),
        (2, "2024-01-01 00:00:00.0", "1.500", "true", "-0.0", "100"),
        (3, "2024-01-01 12:30:00.5", "-0.01", "False", "nan", "-inf"),
        (4, None, None, None, None, None),
        names=names,
    )
    report = append(spark, sqlite_catalog, "1", frame)
    assert (report["rows"], report["partitions_added"]) == (4, 3)
    assert {each.values for each in sqlite_catalog.get_partitions(TABLE)} == {
        ("2024-01-01 00:00:00", "1.50", "true", "0.0", "100.0"),
        ("2024-01-01 12:30:00.5", "-0.01", "false", "NaN", "-Infinity"),
        (None, None, None, None, None),
    }
    typed = "id int, at timestamp, price decimal(5,2), ok boolean, x double, f float"
    again = rows(spark, (5, "2024-01-01", "1.5", "true", "-0.0", "1e2"), names=typed)
    assert append(spark, sqlite_catalog, "2", again)["partitions_extended"] == 1
    one = "at = '2024-01-01' and price = 1.5 and ok = true and x = 0 and f = 100"
    [found] = sqlite_catalog.get_partitions(TABLE, one)
    assert (found.location.rpartition("/at=")[2], ids_in(found.location), found.row_count) == (
        "2024-01-01 00%3A00%3A00/price=1.50/ok=true/x=0.0/f=100.0",
        [1, 2, 5],
        3,
    )
    assert sorted(row.id for row in read_table(spark, TABLE, one, catalog=sqlite_catalog).collect()) == [1, 2, 5]
    assert_every_partition_has_its_item(sqlite_catalog, TABLE)
    for number, (text, said) in enumerate(
        [
            ("('noon', '1', 'true', '1')", "column at: 'noon' is no timestamp"),
            ("('2024-01-01', '1000', 'true', '1')", r"column price: '1000' is no decimal\(5,2\)"),
            ("('2024-01-01', '1', 'maybe', '1')", "column ok: 'maybe' is no boolean"),
            ("('2024-01-01', '1', 'true', 'one')", "column x: 'one' is no double"),
        ]
    ):
        wrong = spark.sql(f"SELECT 1 AS id, *, 0 AS f FROM VALUES {text} AS t(at, price, ok, x)")
        with pytest.raises(InvalidRowsError, match=said):
            append(spark, sqlite_catalog, f"wrong {number}", wrong)


def test_rows_that_do_not_fit_are_refused_and_leave_nothing(spark: SparkSession, sqlite_catalog: Catalog) -> None:
    create(sqlite_catalog)
    given = "id string, country string, day string, note string"
    cases: list[tuple[DataFrame, str]] = [
        (
            rows(spark, (1, "a"), names="id int, country string"),
            "day, which place the rows in partitions and are missing",
        ),
        (rows(spark, (1, "a", 1, 2), names="id int, country string, day int, x int"), "x, which the table does not"),
        (rows(spark, (1, "a", 1, 2), names="id int, country string, day int, ID int"), "id, twice"),
        (
            rows(spark, ("1", "a", "x", ""), ("2", "b", "1", ""), names=given),
            "1 row.* column day: 'x' is no int",
        ),
        (rows(spark, ("y", "a", "1", ""), names=given), "column id: 'y' is no int"),
        (rows(spark, ("1", "a", "1", "123456"), names=given), r"column note: '123456' is no varchar\(5\)"),
        (
            spark.sql("SELECT array(1) AS id, 'a' AS country, 1 AS day"),
            "column id of shop.orders has type int, to which array<int> cannot be converted",
        ),
    ]
    for number, (frame, said) in enumerate(cases):
        with pytest.raises(InvalidRowsError, match=said):
            append(spark, sqlite_catalog, str(number), frame)
    assert state(sqlite_catalog) == {}
    sqlite_catalog.create_partition_index(TABLE, "by_country", ["country"])
    reserved = rows(spark, (1, "a", 1), (2, "b", None)).selectExpr("id", "country || char(1) AS country", "day")
    with pytest.raises(InvalidPartitionError, match=r"'a.x01'.*expected string because partition index"):
        append(spark, sqlite_catalog, "index", reserved)
    assert state(sqlite_catalog) == {}
    # A failed append does not block others.
    assert append(spark, sqlite_catalog, "right", rows(spark, (1, "a", 1)))["rows"] == 1


@pytest.mark.long
def test_tables_without_keys_and_of_other_formats(spark: SparkSession, sqlite_catalog: Catalog) -> None:
    from spark_jobs.reading.tables import read_table

    for file_format in ("parquet", "csv", "orc"):
        keys = () if file_format == "parquet" else [("country", "string"), ("day", "int")]
        create(sqlite_catalog, partition_keys=keys, indexes=(), format=file_format)
        names = "id int, note string" if file_format == "parquet" else "id int, note string, country string, day int"
        given = [(1, "a"), (2, None), (3, 'b,"c')]
        frame = rows(spark, *[(*row, "x", 1)[: names.count(",") + 1] for row in given], names=names)
        for operation in ("1", "2"):
            report = append(spark, sqlite_catalog, f"{file_format}-{operation}", frame)
            assert (report["rows"], report["partitions_added"]) == (
                3,
                int(file_format != "parquet" and operation == "1"),
            )
        found = read_table(spark, TABLE, catalog=sqlite_catalog).select("id", "amount", "note").collect()
        assert sorted((tuple(row) for row in found), key=str) == sorted([(i, None, n) for i, n in given * 2], key=str)
        location = Path(sqlite_catalog.get_table(TABLE).location)
        sqlite_catalog.drop_table(TABLE, purge=True)
        assert not location.exists()


def test_no_rows_at_all(spark: SparkSession, sqlite_catalog: Catalog) -> None:
    create(sqlite_catalog)
    for number, frame in enumerate((rows(spark, (1, "a", 1)).where("id > 1"), rows(spark, (1, "a", 1)).limit(0))):
        assert append(spark, sqlite_catalog, str(number), frame)["rows"] == 0
    assert state(sqlite_catalog) == {}


def test_many_files_are_counted_in_tasks(
    spark: SparkSession, sqlite_catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(sqlite_catalog)
    monkeypatch.setattr("spark_jobs.sessions.footer_tasks._FILES_HERE", 2)
    monkeypatch.setattr("spark_jobs.sessions.footer_tasks._FILES_A_TASK", 2)
    frame = spark.range(60).selectExpr("id", "'c' || id % 3 AS country", "nullif(id % 2, 0) AS day")
    assert append(spark, sqlite_catalog, "1", frame)["partitions_added"] == 6
    assert append(spark, sqlite_catalog, "2", frame)["rows"] == 60
    assert {name: counts for name, (_, *counts) in state(sqlite_catalog).items()} == {
        f"country=c{c}/day={day}": [2, 20] for c in range(3) for day in ("1", "__HIVE_DEFAULT_PARTITION__")
    }


def test_where_the_files_of_new_and_moved_partitions_go(
    spark: SparkSession, sqlite_catalog: Catalog, tmp_path: Path
) -> None:
    create(sqlite_catalog)
    location = sqlite_catalog.get_table(TABLE).location
    append(spark, sqlite_catalog, "1", rows(spark, (1, "renamed", 1), (2, "dropped", 1), (3, "moved", 1)))
    sqlite_catalog.alter_partition(TABLE, ("renamed", "1"), rename_to=("other", "1"))
    sqlite_catalog.drop_partition(TABLE, {"country": "dropped"})
    sqlite_catalog.alter_partition(TABLE, ("moved", "1"), location=f"file://{tmp_path}/else where/%41")
    append(
        spark,
        sqlite_catalog,
        "2",
        rows(spark, *[(n + 4, c, 1) for n, c in enumerate(("renamed", "dropped", "moved", "other"))]),
    )
    found = {each.values[0]: each for each in sqlite_catalog.get_partitions(TABLE)}
    attempt = f"{sqlite_catalog.operations.get('2').folder}-1"
    assert {
        name: (each.location, ids_in(each.location.removeprefix("file://")), each.row_count)
        for name, each in found.items()
    } == {
        "renamed": (f"{location}/country=renamed/.day=1-{attempt}", [4], 1),
        "dropped": (f"{location}/_calve_versions/{attempt}/country=dropped/day=1", [5], 1),
        "moved": (f"file://{tmp_path}/else where/%41", [6], None),
        "other": (f"{location}/country=renamed/day=1", [1, 7], 2),
    }


@pytest.mark.long
def test_what_nothing_can_be_appended_to(spark: SparkSession, sqlite_catalog: Catalog) -> None:
    create(sqlite_catalog)
    frame = rows(spark, (1, "a", 1))
    append(spark, sqlite_catalog, "1", frame)
    with sqlite_catalog.storage.write() as connection:
        adder = PartitionAdder(connection, sqlite_catalog._definitions, TABLE, is_quarantined=True)
        adder.add([NewPartition(("q", "1"))], if_not_exists=False, on_invalid=OnInvalid.REFUSE)
    with pytest.raises(ConflictError, match=r"country=q/day=1 of shop\.orders is quarantined"):
        append(spark, sqlite_catalog, "2", rows(spark, (2, "q", 1), (3, "a", 1)))
    before = state(sqlite_catalog)
    sqlite_catalog.operations.begin("other", OperationKind.ADD_PARTITIONS, TABLE, is_exclusive=True)
    with pytest.raises(OperationConflictError, match="other"):
        append(spark, sqlite_catalog, "3", frame)
    assert state(sqlite_catalog) == before == {"country=a/day=1": ([1], 1, 1)}
    sqlite_catalog.create_table("shop.text", columns=[("id", "int")], format="textfile")
    sqlite_catalog.create_view("shop.v", "SELECT 1 AS id")
    from spark_jobs.reading.tables import read_table
    from spark_jobs.writing.value_loading import append_rows

    for name, error in (("shop.text", UnsupportedFormatError), ("shop.v", NotATableError)):
        with pytest.raises(error, match=name.replace(".", r"\.")):
            append_rows(spark, sqlite_catalog, "4", name, rows(spark, (1,), names="id int"))
        with pytest.raises(error, match=name.replace(".", r"\.")):
            read_table(spark, name, catalog=sqlite_catalog)


def test_partitions_of_other_formats_are_read_together(
    spark: SparkSession, sqlite_catalog: Catalog, tmp_path: Path
) -> None:
    from spark_jobs.reading.tables import read_table

    create(sqlite_catalog)
    append(spark, sqlite_catalog, "1", rows(spark, (1, "a", 1), (2, "b", 1)))
    location = sqlite_catalog.get_table(TABLE).location
    spark.sql("SELECT 3 AS id, 0.5D AS amount, 'x' AS note").write.orc(f"{location}/country=c/day=1")
    spark.sql("SELECT 4 AS id, 0.5D AS amount, 'x' AS note").write.orc(f"{tmp_path}/elsewhere")
    sqlite_catalog.add_partitions(TABLE, [NewPartition(("c", "1"), format=FileFormat.ORC)])
    sqlite_catalog.add_partitions(TABLE, [NewPartition(("d", "1"), location=f"{tmp_path}/elsewhere")])
    sqlite_catalog.alter_partition(TABLE, ("d", "1"), format="orc")
    found = read_table(spark, TABLE, "day = 1", catalog=sqlite_catalog).select("id", "country", "amount").collect()
    assert sorted(tuple(row) for row in found) == [(1, "a", None), (2, "b", None), (3, "c", 0.5), (4, "d", 0.5)]
    sqlite_catalog.alter_partition(TABLE, ("c", "1"), format="rcfile")
    with pytest.raises(UnsupportedFormatError, match=r"a partition of shop\.orders is stored as RCFILE"):
        read_table(spark, TABLE, catalog=sqlite_catalog)


# --- killed ---------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """An error that nothing catches."""


def die(*_: object, **__: object) -> None:
    raise Killed


def dying_after(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        function(*args, **kwargs)
        raise Killed

    return call


def dying_while_staging_is_deleted(delete: Callable[[Folder, str], None]) -> Callable[[Folder, str], None]:
    def call(folder: Folder, name: str) -> None:
        if name.startswith("_calve_staging/") and name.count("/") == 1:
            delete(folder, f"{name}/data")
            raise Killed
        delete(folder, name)

    return call


KILLS: dict[str, tuple[str, Any]] = {
    "written": ("spark_jobs.writing.value_loading.list_staged", die),
    "listed": ("catalog.loading.loading.Loading.publish", die),
    "registered": ("catalog.files.filesystem.Folder.move_files", die),
    "one moved": ("catalog.files.filesystem.Folder.move_files", dying_after(Folder.move_files)),
    "all moved": ("catalog.operations.journal.Operations.finish_job", die),
    "committed": ("catalog.files.filesystem.Folder.delete", dying_while_staging_is_deleted(Folder.delete)),
}
"""Point of an append → how to end the process there."""


def append_and_die(spark: SparkSession, catalog: Catalog, point: str, frame: DataFrame) -> None:
    """Interrupt an append at a point, which is the name of its operation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*KILLS[point])
        with pytest.raises(Killed):
            append(spark, catalog, point, frame)


@pytest.fixture
def started(spark: SparkSession, catalog: Catalog) -> State:
    create(catalog)
    append(spark, catalog, "first", rows(spark, (1, "a", 1), (2, "b", 1)))
    return state(catalog)


@pytest.mark.long
def test_a_killed_append_run_again_ends_as_an_undisturbed_one(
    spark: SparkSession, catalog: Catalog, started: State
) -> None:
    frame = rows(spark, (3, "a", 1), (4, "c", 1), (5, "d", 2))
    for number, point in enumerate(KILLS, 1):
        append_and_die(spark, catalog, point, frame)
        report = append(spark, catalog, point, frame)
        assert report["rows"] == 3
        assert state(catalog) == {
            **started,
            "country=a/day=1": ([1] + [3] * number, 1 + number, 1 + number),
            "country=c/day=1": ([4] * number, number, number),
            "country=d/day=2": ([5] * number, number, number),
        }, point
        assert catalog.operations.get(point).state is OperationState.CLEANED


@pytest.mark.long
def test_an_append_that_was_cancelled_is_undone_by_the_next_load(
    spark: SparkSession, catalog: Catalog, started: State
) -> None:
    frame = rows(spark, (3, "a", 1), (4, "c", 1))
    for point in [each for each in KILLS if each != "committed"]:
        append_and_die(spark, catalog, point, frame)
        with pytest.raises(OperationConflictError):
            append(spark, catalog, "next", frame)
        catalog.operations.fail(point, "CANCELLED", "by the test")
        assert catalog.repair_table(TABLE).added == 0
        assert state(catalog) == started, point
        assert not (Path(catalog.get_table(TABLE).location) / "country=c" / "day=1").exists()


def test_an_append_that_fails_is_undone_at_once(
    spark: SparkSession, catalog: Catalog, started: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise CatalogError("no")

    with monkeypatch.context() as patch:
        patch.setattr(Operations, "finish_job", fail)
        with pytest.raises(CatalogError, match="no"):
            append(spark, catalog, "1", rows(spark, (3, "a", 1), (4, "c", 1)))
    assert state(catalog) == started
    assert catalog.operations.get("1").state is OperationState.FAILED
    assert append(spark, catalog, "1", rows(spark, (3, "a", 1)))["rows"] == 1


def test_an_append_whose_commit_has_an_unknown_outcome_says_so_and_is_not_undone(
    spark: SparkSession, catalog: Catalog, started: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = type(catalog.loading).publish

    def publish_and_lose_the_connection(*arguments: Any, **options: Any) -> None:
        publish(*arguments, **options)
        raise CommitOutcomeUnknownError("the connection was lost during a commit")

    with monkeypatch.context() as patch:
        patch.setattr(type(catalog.loading), "publish", publish_and_lose_the_connection)
        with pytest.raises(CommitOutcomeUnknownError):
            append(spark, catalog, "1", rows(spark, (3, "a", 1)))
    committed = state(catalog)
    assert committed != started
    assert append(spark, catalog, "1", rows(spark, (3, "a", 1)))["rows"] == 1
    assert state(catalog) == committed
