"""Verification of a rebalancing plan: compare the new files with the old ones before they become visible.

Both are read by their footers (`spark_jobs.checking.footers`), and not in the way that the rewrite read them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog
from catalog.datafiles.files import NewFile, Total
from catalog.datafiles.manifest import read_manifest
from catalog.errors import VerificationFailedError
from catalog.errors.base import first_of
from catalog.model import Table
from catalog.operations.job_requests import VerifyRewriteJob
from catalog.rebalancing.planning import RebalancePlan
from catalog.tables.schemes import PARTITION_FOLDER
from spark_jobs.checking.footers import frames_by_footers
from spark_jobs.reading.files import unreadable_file
from spark_jobs.reading.iceberg import read_live_rows
from spark_jobs.reading.paths import quoted
from spark_jobs.rows.placement import partition_id
from spark_jobs.rows.row_hashes import row_hash
from spark_jobs.sessions.session import run_job

log = logging.getLogger("spark_jobs.verify_rewrite")

_SHOWN = 10
_ID, _HASH, _IS_NEW = "calve/partition", "calve/hash", "calve/is_new"


@dataclass(frozen=True)
class Digest:
    """Number of rows of one partition, and a checksum of their values that does not depend on their order."""

    row_count: int
    checksum: int

    def __str__(self) -> str:
        """Return both as a readable string."""
        return f"{self.row_count:,} rows with the checksum {self.checksum}"


def verify_rewrite(spark: SparkSession, catalog: Catalog, job: VerifyRewriteJob) -> dict[str, Any]:
    """Compare the rows in the new files of each partition with the rows of the old files that belong there.

    Returns:
        `folder`, the plan's `fingerprint` and `reading`, `rows`, and `partitions`: for each partition with new rows
        `partition_id`, `rows`, `bytes`, `files`, and `checksum` as a string.

    Raises:
        PlanConflictError: The table changed after the plan was made.
        VerificationFailedError: The rows differ, or new files are missing.
    """
    return verify_plan(spark, catalog.rebalancing.plan_of(catalog.operations.get(job.operation_id)), job.folder)


def verify_plan(spark: SparkSession, plan: RebalancePlan, folder: str) -> dict[str, Any]:
    """Compare the rows in the new files of a plan with those of the old files; see `verify_rewrite`.

    Args:
        folder: The folder of the new files, below the table's location.

    Raises:
        VerificationFailedError: As for `verify_rewrite`.
    """
    written = list(read_manifest(plan.table, folder))
    _check_folders(plan, written)
    with _reading_errors(plan.table):
        if plan.has_deletes:
            # Iceberg applies the delete files; like footers, it does not depend on the readers that are verified.
            old = [read_live_rows(spark, plan.table, plan.rewritten)]
        else:
            old = frames_by_footers(spark, plan.table, [file.path for file in plan.rewritten])
        new = frames_by_footers(spark, plan.table, [file.path for file in written])
        hashed = [_hashed(rows, partition_id(plan.scheme), False) for rows in old]
        hashed += [_hashed(rows, _folder_id(rows), True) for rows in new]
        digests = _digests(reduce(DataFrame.union, hashed)) if hashed else {}
    _compare(plan, digests)
    totals = _totals(written)
    rows = sum(digest.row_count for _, digest in digests.values())
    log.info("%s: %d rows in %d new files equal the old rows", plan.table.full_name, rows, len(written))
    return {
        "folder": folder,
        "fingerprint": plan.fingerprint,
        "rows": rows,
        "reading": plan.reading,
        "partitions": [
            {
                "partition_id": number,
                "rows": digests[number][1].row_count,
                "bytes": totals[number].size_bytes,
                "files": totals[number].file_count,
                "checksum": str(digests[number][1].checksum),
            }
            for number in plan.scheme.ids
            if number in digests
        ],
    }


def _check_folders(plan: RebalancePlan, written: Sequence[NewFile]) -> None:
    """Check that the manifest lists each file for the partition of its folder."""
    for file in written:
        if f"/{PARTITION_FOLDER}={file.partition_id}/" not in file.path:
            raise VerificationFailedError(
                f"table {plan.table.full_name}: {file.path} is listed for partition {file.partition_id}; nothing was "
                "changed. Run the operation again"
            )


def _folder_id(rows: DataFrame) -> Column:
    path = rows.metadataColumn("_metadata")["file_path"]
    return f.regexp_extract(path, f".*/{PARTITION_FOLDER}=([0-9]+)/", 1).cast("int")


def _hashed(rows: DataFrame, partition: Column, is_new: bool) -> DataFrame:
    """Return a partition and a hash for each row."""
    row = row_hash((f.col(quoted(field.name)), field.dataType) for field in rows.schema)
    return rows.select(partition.alias(_ID), row.alias(_HASH), f.lit(is_new).alias(_IS_NEW))


def _digests(rows: DataFrame) -> dict[int, tuple[Digest, Digest]]:
    """Return the digests of each partition before and after the change."""
    hashed = f.col(f"`{_HASH}`").cast("decimal(20,0)")
    is_new = f.col(f"`{_IS_NEW}`")
    sums = rows.groupBy(f.col(f"`{_ID}`")).agg(
        f.count_if(~is_new), f.sum(f.when(~is_new, hashed)), f.count_if(is_new), f.sum(f.when(is_new, hashed))
    )
    return {
        number: (Digest(old_count, int(old_sum or 0)), Digest(new_count, int(new_sum or 0)))
        for number, old_count, old_sum, new_count, new_sum in sums.collect()
    }


@contextmanager
def _reading_errors(table: Table) -> Iterator[None]:
    """Translate errors of an unreadable file to VerificationFailedError, because a retry of the job would not help."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = unreadable_file(error)
        if found is None:
            raise
        raise VerificationFailedError(
            f"table {table.full_name}: {found[0]} cannot be read; nothing was changed. Run the operation again; "
            "if it fails again, restore the file"
        ) from error


def _compare(plan: RebalancePlan, digests: dict[int, tuple[Digest, Digest]]) -> None:
    problems = list(_differences(plan, digests))
    if problems:
        raise VerificationFailedError(
            f"table {plan.table.full_name}: the new files of {plan.change} do not have the rows of the old ones: "
            f"{first_of(problems, _SHOWN, separator='; ')}. Nothing was changed. Run the operation again; if it fails "
            "again, check whether the old files can be read"
        )


def _differences(plan: RebalancePlan, digests: dict[int, tuple[Digest, Digest]]) -> Iterator[str]:
    for number, (before, after) in sorted(digests.items()):
        if before != after:
            known = f" ({plan.scheme.text_of(number)})" if number in plan.scheme.ids else ""
            yield f"partition {number}{known} has {after}, but should have {before}"


def _totals(written: Sequence[NewFile]) -> dict[int, Total]:
    totals: dict[int, Total] = {}
    for file in written:
        before = totals.get(file.partition_id, Total())
        totals[file.partition_id] = before + Total(1, file.row_count, file.size_bytes)
    return totals


if __name__ == "__main__":
    raise SystemExit(run_job(VerifyRewriteJob, verify_rewrite))
