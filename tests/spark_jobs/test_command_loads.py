"""`calve load` on a real session: the same files, reports and records as those of the DAG's tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import Result

from catalog import Catalog, IndexState, PartitionState
from catalog.errors import SourceFileError
from catalog.operations.records import OperationKind, OperationState
from tests.support.commands import calve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

TABLE = "shop.orders"
HEADER = "id,amount,country,day\n"


@pytest.fixture(autouse=True)
def shared_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command's engine use the tests' session, and leave it running."""
    monkeypatch.setattr("spark_jobs.statement_engine.start_session", lambda *_arguments: spark)
    monkeypatch.setattr("spark_jobs.statement_engine.SparkEngine.close", lambda self: None)


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    (folder / "a.csv").write_text(f"{HEADER}1,10,DE,2026-01-01\n2,5.5,US,2026-01-01\n")
    return folder


@pytest.fixture
def listed(landing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of the table."""
    (tmp_path / "tables.yaml").write_text(f"""tables:
  {TABLE}:
    source: {landing}/*.csv
    keys: {{country: string, day: date}}
    columns: {{amount: "decimal(9,2)"}}
    indexes: {{by_day: [day, country]}}
    mode: append
    bad_files: skip
    quality: {{on_failure: quarantine, columns: {{amount: {{min: 0}}}}}}
""")
    monkeypatch.setenv("CALVE_TABLES", str(tmp_path / "tables.yaml"))


def load(*arguments: str) -> Result:
    return calve("load", *arguments)


def rows(spark: SparkSession, catalog: Catalog) -> list[tuple[Any, ...]]:
    from spark_jobs.reading.tables import read_table

    frame = read_table(spark, TABLE, catalog=catalog).selectExpr("id", "cast(amount AS double)", "country", "day")
    return sorted((row.id, row.amount, row.country, str(row.day)) for row in frame.collect())


@pytest.mark.long
@pytest.mark.usefixtures("listed")
def test_a_listed_table_is_loaded_checked_and_indexed_like_by_its_dag(
    spark: SparkSession, catalog: Catalog, landing: Path
) -> None:
    (landing / "b.csv").write_text(f"{HEADER}3,-1,FR,2026-01-02\n")
    (landing / "c.csv").write_text(f"{HEADER}4,many,FR,2026-01-02\n")
    done = load(TABLE, "--dry-run")
    assert done.stdout.splitlines()[:2] == [
        "2 file(s) would be loaded: 3 partition(s) with 3 row(s)",
        "inferred types: id bigint",
    ]
    assert catalog.list_tables() == []

    done = load(TABLE)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "2 file(s) loaded, 3 row(s): 3 partition(s) added"
    assert lines[2:4] == [
        "1 file(s) set aside until they change, with 1 bad row(s):",
        f"  {landing}/c.csv, line 2: column amount: 'many' is no decimal(9,2)",
    ]
    assert lines[4].startswith("quality: 1 of 3 partition(s) failed their checks, and are quarantined; the report is /")
    assert rows(spark, catalog) == [(1, 10.0, "DE", "2026-01-01"), (2, 5.5, "US", "2026-01-01")]
    [hidden] = catalog.get_partitions(TABLE, state=PartitionState.QUARANTINED)
    assert hidden.values == ("FR", "2026-01-02")
    assert catalog.get_partition_index(TABLE, "by_day").state is IndexState.ACTIVE

    dry, operation = reversed(catalog.operations.list(TABLE))
    assert (operation.kind, operation.state) == (OperationKind.ADD_PARTITIONS, OperationState.CLEANED)
    assert (operation.requested_by, dry.state) == ("calve load", OperationState.CLEANED)
    assert operation.report.keys() == {"validate_source", "write_partitions", "register", "check_quality"}
    settings = catalog.loading.settings_of(operation.id)
    assert settings["request"].items() >= {"mode": "append", "bad_files": "skip", "dry_run": False}.items()

    # The DAG has nothing to load either; neither has another spelling of the source.
    assert catalog.loading.discover("dag/run", TABLE, f"{landing}/*.csv", settings=settings) == []
    assert (
        load(TABLE, str(landing)).stdout == f"{TABLE} already has all files, or has set them aside; nothing to load\n"
    )

    (landing / "late.csv").write_text(f"{HEADER}5,1,DE,2026-01-01\n")
    (landing / "c.csv").write_text(f"{HEADER}4,4,IT,2026-01-02\n")
    report = json.loads(load(TABLE, "--json").stdout)
    assert (report["table"], report["file_count"], report["registered"]["row_count"]) == (TABLE, 2, 2)
    assert (report["registered"]["partitions"], report["registered"]["partitions_extended"]) == (1, 1)
    assert report["checked"]["passed"] == 2
    assert [row[0] for row in rows(spark, catalog)] == [1, 2, 4, 5]


@pytest.mark.long
@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_file_that_changed_after_it_was_loaded_does_not_stop_the_others(
    spark: SparkSession, catalog: Catalog, landing: Path
) -> None:
    nothing = f"{TABLE} already has all files, or has set them aside; nothing to load\n"
    assert load(TABLE).exit_code == 0
    (landing / "a.csv").write_text(f"{HEADER}1,11,DE,2026-01-01\n")
    (landing / "b.csv").write_text(f"{HEADER}3,7,FR,2026-01-02\n")
    lines = load(TABLE).stdout.splitlines()
    assert lines[:2] == [
        "1 file(s) loaded, 1 row(s): 1 partition(s) added",
        "1 file(s) set aside until they change, with 0 bad row(s):",
    ]
    assert lines[2].startswith(f"  {landing}/a.csv: the file changed after it was loaded. Deliver new rows in ")
    loaded = [(1, 10.0, "DE", "2026-01-01"), (2, 5.5, "US", "2026-01-01"), (3, 7.0, "FR", "2026-01-02")]
    assert rows(spark, catalog) == loaded
    assert [file.path for file in catalog.set_aside_files(TABLE)] == [f"{landing}/a.csv"]
    assert load(TABLE).stdout == nothing

    (landing / "a.csv").write_text(f"{HEADER}1,12,DE,2026-01-01\n")
    alone = load(TABLE)
    assert alone.exit_code == 1
    assert f"none of the 1 source file(s) can be loaded: {landing}/a.csv: the file changed after" in alone.stderr
    assert load(TABLE).stdout == nothing
    assert "1 file(s) changed after they were loaded" in load(TABLE, "--bad-files", "fail").stderr
    assert load(TABLE, "--mode", "replace").exit_code == 0
    assert rows(spark, catalog) == [(1, 12.0, "DE", "2026-01-01"), *loaded[1:]]
    assert catalog.set_aside_files(TABLE) == []


@pytest.mark.long
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_table_of_the_catalog_needs_no_entry(
    spark: SparkSession, catalog: Catalog, landing: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    catalog.create_database("shop")
    columns, keys = [("id", "bigint"), ("amount", "decimal(9,2)")], [("country", "string"), ("day", "date")]
    catalog.create_table(TABLE, columns=columns, partition_keys=keys)
    monkeypatch.setattr("catalog.settings.table_config.tables_path", lambda: tmp_path / "none.yaml")
    monkeypatch.chdir(landing)
    text = "id;amount;country;day\n1;1.5;DE;2026-01-01\n"
    Path("semicolons.txt").write_text(text)
    assert load(TABLE, "semicolons.txt", "a.csv").exit_code == 1
    assert load(TABLE, "semicolons.txt", "--option", "sep=;").exit_code == 0
    assert load(TABLE, "a.csv", "--mode", "append").exit_code == 0
    assert [row[0] for row in rows(spark, catalog)] == [1, 1, 2]

    Path("semicolons.txt").write_text(text.replace("1.5", "2.25"))
    refused = load(TABLE, "semicolons.txt", "--option", "sep=;")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("SourceFileError: source ")
    assert f"1 file(s) changed after they were loaded into {TABLE}: {landing}/semicolons.txt" in refused.stderr
    assert load(TABLE, "semicolons.txt", "--option", "sep=;", "--mode", "replace").exit_code == 0
    assert rows(spark, catalog) == [(1, 2.25, "DE", "2026-01-01"), (2, 5.5, "US", "2026-01-01")]

    Path("merged.csv").write_text(f"{HEADER}2,7,FR,2026-01-02\n")
    rule = ("--mode", "merge", "--merge", '{"keys": ["id"]}')
    assert load(TABLE, "merged.csv", *rule).stdout.splitlines()[0] == (
        "1 file(s) loaded, 1 row(s): 1 partition(s) added, 1 partition(s) removed"
    )
    assert [row[2] for row in rows(spark, catalog)] == ["DE", "FR"]


@pytest.mark.long
@pytest.mark.parametrize("file_format", ["parquet", "csv", "iceberg"])
def test_a_table_without_keys_is_loaded(spark: SparkSession, catalog: Catalog, landing: Path, file_format: str) -> None:
    catalog.create_database("shop")
    columns = [("id", "bigint"), ("amount", "double"), ("country", "string"), ("day", "date")]
    catalog.create_table(TABLE, columns=columns, format=file_format)
    done = load(TABLE, f"{landing}/*.csv")
    assert done.exit_code == 0, done.stderr
    assert [row[0] for row in rows(spark, catalog)] == [1, 2]


@pytest.mark.long
@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_failed_checks_fail_the_command_if_the_entry_says_so(catalog: Catalog, landing: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables.yaml"
    tables.write_text(tables.read_text().replace("quarantine", "fail"))
    (landing / "a.csv").write_text(f"{HEADER}3,-1,FR,2026-01-02\n")
    done = load(TABLE)
    assert done.exit_code == 1
    assert "quality: 1 of 1 partition(s) failed their checks; the report is" in done.stdout
    assert len(list(catalog.get_partitions(TABLE))) == 1


@pytest.mark.usefixtures("listed", "catalog")
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((TABLE, "none.csv"), 1, "SourceFileError: source .*none.csv"),
        ((TABLE, ""), 2, "a SOURCE is empty"),
        (("shop.other", "a.csv"), 1, "TableNotFoundError: table shop.other does not exist; for a new table, name its"),
        (("shop.other",), 1, "InvalidConfigurationError: table shop.other is not in .*; give its source"),
        ((TABLE, "a.csv", "--option", "sep"), 2, "--option is 'sep'; write a name and a value"),
        ((TABLE, "a.csv", "--option", "path=/etc"), 1, "InvalidConfigurationError: .*path, which say where files are"),
        ((TABLE, "a.csv", "--column", "amount"), 2, "--column is 'amount'; write a name and a type"),
        ((TABLE, "a.csv", "--column", "amount flot"), 1, "columns.amount: type 'flot' is not known"),
        ((TABLE, "a.csv", "--merge", "{"), 2, "--merge is no JSON"),
        ((TABLE, "a.csv", "--mode", "merge"), 1, "InvalidConfigurationError: .*merge"),
        (("shop.other", "a.csv", "--key", "day"), 1, "InvalidConfigurationError: .*key 'day' has no type"),
    ],
)
def test_wrong_requests_are_told(
    landing: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, message: str
) -> None:
    monkeypatch.chdir(landing)
    done = load(*arguments)
    assert done.exit_code == code
    assert re.search(message, done.stderr), done.stderr


@pytest.mark.usefixtures("listed", "catalog")
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_a_source_that_only_airflow_renders_has_to_be_given(tmp_path: Path) -> None:
    tables = tmp_path / "tables.yaml"
    tables.write_text(tables.read_text().replace("/*.csv", "/{{ ds }}/*.csv"))
    done = load(TABLE)
    assert done.exit_code == 2
    assert "which only Airflow renders; give a SOURCE" in done.stderr


@pytest.mark.usefixtures("shared_spark")
def test_the_steps_of_a_load_by_its_dag_and_by_the_command_are_one_journal(
    make_loader: Callable[..., Any], catalog: Catalog, landing: Path
) -> None:
    make_loader(TABLE, {"country": "string", "day": "date"}).load(landing / "a.csv")
    assert "nothing to load" in load(TABLE, str(landing)).stdout
    (landing / "a.csv").write_text(HEADER)
    with pytest.raises(SourceFileError, match="changed after"):
        catalog.loading.discover("again", TABLE, str(landing))


@pytest.mark.long
@pytest.mark.usefixtures("listed")
def test_a_first_load_that_is_refused_leaves_no_table(
    catalog: Catalog, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs import write_partitions

    def changed(files: Any) -> None:
        raise SourceFileError("a file changed while it was loaded")

    monkeypatch.setattr(write_partitions, "_require_unchanged", changed)
    refused = load(TABLE)
    assert (refused.exit_code, "SourceFileError: a file changed" in refused.stderr) == (1, True)
    assert catalog.list_tables() == []


@pytest.mark.long
@pytest.mark.usefixtures("listed")
def test_a_later_load_that_is_refused_leaves_the_table(
    catalog: Catalog, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs import write_partitions

    assert load(TABLE).exit_code == 0
    (landing / "b.csv").write_text(f"{HEADER}3,1,FR,2026-01-02\n")
    with monkeypatch.context() as patched:
        patched.setattr(write_partitions, "_require_unchanged", lambda files: 1 / 0)
        assert load(TABLE).exit_code == 1
    assert len(list(catalog.get_partitions(TABLE))) == 2


@pytest.mark.long
@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("file_format", ["parquet", "iceberg"])
def test_readers_never_miss_a_row_that_a_merge_moves_to_a_new_partition(
    spark: SparkSession,
    catalog: Catalog,
    landing: Path,
    tmp_path: Path,
    file_format: str,
) -> None:
    tables = tmp_path / "tables.yaml"
    entry = f"mode: merge\n    merge: {{keys: [id], delete: amount = 9}}\n    format: {file_format}"
    tables.write_text(tables.read_text().replace("mode: append", entry))
    assert load(TABLE).exit_code == 0
    # Its partition would be quarantined, and the former one has no rows left.
    (landing / "b.csv").write_text(f"{HEADER}1,-1,DE,2026-01-02\n")
    done = load(TABLE)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "1 file(s) loaded, 1 row(s): 1 partition(s) added, 1 partition(s) removed"
    assert lines[1].startswith("quality: 1 of 1 partition(s) failed their checks; the report is /")
    expected = [(1, -1.0, "DE", "2026-01-02"), (2, 5.5, "US", "2026-01-01")]
    assert rows(spark, catalog) == expected
    assert not list(catalog.get_partitions(TABLE, state=PartitionState.QUARANTINED))
    # Nothing moves: the new partition is hidden, and what is deleted is gone.
    (landing / "c.csv").write_text(f"{HEADER}2,9,US,2026-01-01\n3,-1,FR,2026-01-02\n")
    done = load(TABLE)
    assert "quality: 1 of 1 partition(s) failed their checks, and are quarantined; the report" in done.stdout
    assert rows(spark, catalog) == expected[:1]
    assert catalog.release_partitions(TABLE) == 1
    assert rows(spark, catalog) == [*expected[:1], (3, -1.0, "FR", "2026-01-02")]
