"""The jobs that write the new files of a rebalancing plan, and compare them with the old ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog import Catalog
from catalog.errors import FencedError, PlanConflictError, VerificationFailedError
from catalog.model import Column
from catalog.operations.job_requests import RewritePartitionsJob, VerifyRewriteJob
from catalog.rebalancing.changes import AddPartitions, PartitionChange, SetPartitionCount, SplitPartition
from catalog.rebalancing.rebalancing import REWRITE, VERIFY
from catalog.tables.schemes import scheme_from_properties
from spark_jobs.reading.tables import read_table
from spark_jobs.rewrite_partitions import rewrite_partitions
from spark_jobs.sessions.session import configure
from spark_jobs.verify_rewrite import verify_rewrite
from spark_jobs.writing.scheme_loading import load_rows

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
"""For tests that do not depend on the database."""

TABLE, RUN = "shop.orders", "rebalance_partitions/run"
SPLIT = SplitPartition(1, ("50", "100"))
COLUMNS = [
    ("id", "bigint"),
    ("note", "string"),
    ("tags", "map<string,int>"),
    ("price", "decimal(10,2)"),
    ("amount", "int"),
]


@pytest.fixture
def make_table(catalog: Catalog, spark: Any) -> Callable[..., None]:
    """A function that creates the table with 300 rows, with amounts from 0 to 149 and nulls."""

    def make(properties: dict[str, str]) -> None:
        catalog.create_database("shop")
        scheme = scheme_from_properties(Column("amount", "int"), properties)
        catalog.create_table(TABLE, columns=COLUMNS, scheme=scheme)
        load(catalog, configure(spark), 300)

    return make


@pytest.fixture
def orders(make_table: Callable[..., None], catalog: Catalog) -> Catalog:
    make_table({"PARTITION_TYPE": "RANGE", "RANGE_INFO": "100, 120", "SORT_COLUMNS": "id"})
    return catalog


def load(catalog: Catalog, spark: Any, count: int, operation_id: str = "load") -> None:
    rows = spark.range(count).selectExpr(
        "id",
        "if(id % 7 = 0, null, concat('note ', id)) AS note",
        "map('a', cast(id AS int), 'b', cast(null AS int)) AS tags",
        "cast(id / 7 AS decimal(10,2)) AS price",
        "if(id % 11 = 0, null, cast(id % 150 AS int)) AS amount",
    )
    load_rows(spark, catalog, operation_id, TABLE, rows)


def replace(path: Path, table: pa.Table) -> None:
    """Rewrite a file, and delete the checksum file that Hadoop writes on a local disk."""
    pq.write_table(table, path)
    path.with_name(f".{path.name}.crc").unlink()


def contents(spark: Any, catalog: Catalog) -> list[str]:
    return sorted(
        row.line for row in read_table(spark, TABLE, catalog=catalog).selectExpr("to_json(struct(*)) AS line").collect()
    )


class Steps:
    """Runs the jobs of one operation like the tasks of the DAG."""

    def __init__(self, catalog: Catalog, spark: Any, change: PartitionChange) -> None:
        self.catalog = catalog
        self.spark = spark
        fingerprint = catalog.rebalancing.plan(TABLE, change).fingerprint
        self.operation = catalog.rebalancing.begin(RUN, TABLE, change, fingerprint=fingerprint)

    def job(self, job_type: Any, **fields: Any) -> Any:
        step = job_type.script
        attempt = self.catalog.operations.start_job(RUN, step)
        return job_type(operation_id=RUN, step=step, attempt=attempt, table=TABLE, **fields)

    def run(self, function: Callable[..., dict[str, Any]], job: Any) -> dict[str, Any]:
        result = function(self.spark, self.catalog, job)
        self.catalog.operations.finish_job(RUN, job.step, job.attempt, result)
        return result

    def rewrite(self) -> dict[str, Any]:
        return self.run(rewrite_partitions, self.job(RewritePartitionsJob))

    def verify(self, folder: str) -> dict[str, Any]:
        return self.run(verify_rewrite, self.job(VerifyRewriteJob, folder=folder))

    def files(self, folder: str) -> dict[str, Path]:
        """The new data files by partition, according to their folder."""
        root = Path(self.catalog.get_table(TABLE).location) / folder
        return {path.parent.name.partition("=")[2]: path for path in sorted(root.glob("*/*.parquet"))}


@pytest.mark.parametrize(
    ("properties", "change"),
    [
        ({"PARTITION_TYPE": "RANGE", "RANGE_INFO": "100, 120"}, SPLIT),
        ({"PARTITION_TYPE": "LIST", "LIST_INFO": "1, (2, 3)"}, AddPartitions(("(4, 5)", "6"))),
        ({"PARTITION_TYPE": "HASH", "PARTITION_NUM": "3"}, SetPartitionCount(4)),
    ],
    ids=["split of a range", "addition to a list", "another number"],
)
def test_verified_files_become_the_table(
    spark: Any, catalog: Catalog, make_table: Callable[..., None], properties: dict[str, str], change: PartitionChange
) -> None:
    make_table(properties)
    before = contents(spark, catalog)
    steps = Steps(catalog, spark, change)
    written = steps.rewrite()
    verified = steps.verify(written["folder"])
    assert contents(spark, catalog) == before
    report = catalog.rebalancing.commit_verified(RUN, {"approved_by": None})
    assert contents(spark, catalog) == before
    counts = {each.id: each.row_count for each in catalog.scheme_partitions(TABLE)}
    assert {each["partition_id"]: each["rows"] for each in verified["partitions"]}.items() <= counts.items()
    assert verified["rows"] == written["rows"] == report["rows_written"]
    after = {each["partition_id"]: each["after"] and each["after"]["rows"] for each in report["totals"]}
    assert {each: count for each, count in after.items() if count is not None}.items() <= counts.items()
    assert catalog.rebalancing.commit_verified(RUN) == report


@pytest.mark.long
@on_sqlite
def test_report_says_what_each_partition_held_and_holds(spark: Any, orders: Catalog) -> None:
    steps = Steps(orders, spark, SPLIT)
    steps.verify(steps.rewrite()["folder"])
    report = orders.rebalancing.commit_verified(RUN)
    totals = {each["partition_id"]: each for each in report["totals"]}
    assert list(totals) == [1, 3, 4]
    assert totals[1]["partition"] == "amount < 100"
    assert totals[4]["partition"] == "50 <= amount < 100"
    assert (totals[1]["after"], totals[3]["before"]) == (None, None)
    assert totals[1]["before"]["rows"] == totals[3]["after"]["rows"] + totals[4]["after"]["rows"]
    amounts = [each % 150 for each in range(300) if each % 11]
    assert totals[1]["before"]["rows"] == sum(each < 100 for each in amounts)


@pytest.mark.long
def test_each_attempt_writes_into_a_folder_of_its_own(spark: Any, orders: Catalog) -> None:
    steps = Steps(orders, spark, SPLIT)
    fenced = steps.job(RewritePartitionsJob)
    folder = rewrite_partitions(spark, orders, fenced)["folder"]
    written = steps.rewrite()
    assert written["folder"] != folder
    with pytest.raises(FencedError):
        orders.operations.finish_job(RUN, fenced.step, fenced.attempt, {"folder": folder})
    steps.verify(written["folder"])
    orders.rebalancing.commit_verified(RUN)
    files = orders.scan_files(TABLE, "_partition_id in (3, 4)").files
    assert {file.path.partition("/")[0] for file in files} == {written["folder"]}


@pytest.mark.long
@on_sqlite
def test_row_that_is_missing_fails_the_verification(spark: Any, orders: Catalog) -> None:
    steps = Steps(orders, spark, SPLIT)
    folder = steps.rewrite()["folder"]
    path = steps.files(folder)["3"]
    replace(path, pq.read_table(path).slice(1))
    with pytest.raises(
        VerificationFailedError, match=r"partition 3 \(amount < 50\) has \d+ rows .* should have \d+ rows"
    ):
        steps.verify(folder)


@on_sqlite
def test_value_that_differs_fails_the_verification(spark: Any, orders: Catalog) -> None:
    steps = Steps(orders, spark, SPLIT)
    folder = steps.rewrite()["folder"]
    path = steps.files(folder)["4"]
    table = pq.read_table(path)
    notes = ["another", *table.column("note").to_pylist()[1:]]
    position = table.column_names.index("note")
    replace(path, table.set_column(position, table.schema.field(position), [notes]))
    with pytest.raises(VerificationFailedError, match=r"partition 4 \(50 <= amount < 100\) has .*checksum"):
        steps.verify(folder)


@pytest.mark.long
@on_sqlite
def test_null_that_changes_places_with_a_value_fails_the_verification(spark: Any, catalog: Catalog) -> None:
    """Spark's hash ignores nulls."""
    catalog.create_database("shop")
    scheme = scheme_from_properties(Column("amount", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "100, 120"})
    columns = [("first", "string"), ("last", "string"), ("amount", "int")]
    catalog.create_table(TABLE, columns=columns, scheme=scheme)
    rows = configure(spark).sql("SELECT 'x' AS first, cast(null AS string) AS last, explode(array(10, 60)) AS amount")
    load_rows(spark, catalog, "load", TABLE, rows)
    steps = Steps(catalog, spark, SPLIT)
    folder = steps.rewrite()["folder"]
    path = steps.files(folder)["4"]
    table = pq.read_table(path)
    first, last, *others = table.columns
    replace(path, pa.table([last, first, *others], schema=table.schema))
    with pytest.raises(VerificationFailedError, match=r"partition 4 \(50 <= amount < 100\) has .*checksum"):
        steps.verify(folder)


@pytest.mark.long
@on_sqlite
def test_row_in_the_file_of_another_partition_fails_the_verification(spark: Any, orders: Catalog) -> None:
    steps = Steps(orders, spark, SPLIT)
    folder = steps.rewrite()["folder"]
    files = steps.files(folder)
    third, fourth = (pq.read_table(files[each]) for each in ("3", "4"))
    replace(files["3"], fourth)
    replace(files["4"], third)
    with pytest.raises(VerificationFailedError, match=r"partition 3 .*; partition 4 "):
        steps.verify(folder)


@on_sqlite
def test_file_that_cannot_be_read_fails_the_verification(spark: Any, orders: Catalog) -> None:
    steps = Steps(orders, spark, SPLIT)
    folder = steps.rewrite()["folder"]
    path = steps.files(folder)["3"]
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(VerificationFailedError, match=rf"{path.name} cannot be read; nothing was changed"):
        steps.verify(folder)


@pytest.mark.long
@on_sqlite
def test_folder_without_its_list_fails_the_verification(spark: Any, orders: Catalog) -> None:
    steps = Steps(orders, spark, SPLIT)
    folder = steps.rewrite()["folder"]
    assert orders.rebalancing.is_written(RUN)
    shutil.rmtree(Path(orders.get_table(TABLE).location) / folder)
    assert not orders.rebalancing.is_written(RUN)
    with pytest.raises(VerificationFailedError, match="is missing or incomplete"):
        steps.verify(folder)


def test_nothing_is_committed_that_was_not_verified(spark: Any, orders: Catalog) -> None:
    steps = Steps(orders, spark, SPLIT)
    folder = steps.rewrite()["folder"]
    with pytest.raises(VerificationFailedError, match="were not verified"):
        orders.rebalancing.commit_verified(RUN)
    steps.verify(folder)
    steps.job(VerifyRewriteJob, folder=folder)
    with pytest.raises(VerificationFailedError, match="were not verified"):
        orders.rebalancing.commit_verified(RUN)
    assert orders.get_table(TABLE).scheme.ids == (0, 1, 2)  # type: ignore[union-attr]


@pytest.mark.long
def test_files_that_cannot_be_used_are_written_again(spark: Any, orders: Catalog) -> None:
    steps = Steps(orders, spark, SPLIT)
    steps.rewrite()
    orders.rebalancing.discard_written(RUN, "they differ")
    assert not orders.rebalancing.is_written(RUN)
    again = steps.rewrite()
    assert again["folder"] == f"{steps.operation.folder}-3"
    assert orders.rebalancing.is_written(RUN)


@pytest.mark.long
def test_change_of_the_table_is_a_conflict_for_each_step(spark: Any, orders: Catalog) -> None:
    steps = Steps(orders, spark, SPLIT)
    folder = steps.rewrite()["folder"]
    steps.verify(folder)
    orders.operations.fail(RUN, "TEST", "cancelled")
    load(orders, spark, 20, "another load")
    for job, function in (
        (steps.job(RewritePartitionsJob), rewrite_partitions),
        (steps.job(VerifyRewriteJob, folder=folder), verify_rewrite),
    ):
        with pytest.raises(PlanConflictError, match="changed since the plan"):
            function(spark, orders, job)
    with pytest.raises(PlanConflictError, match="changed since the plan"):
        orders.rebalancing.commit_verified(RUN)


def test_names_of_the_steps_are_those_of_the_jobs() -> None:
    assert (RewritePartitionsJob.script, VerifyRewriteJob.script) == (REWRITE, VERIFY)
