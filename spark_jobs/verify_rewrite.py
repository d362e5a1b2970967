"""Compare the new files of a rebalancing plan with the old ones, before anybody reads them.

Both are read as their footers say (`spark_jobs.checking.footers`), not as the rewrite has read them.
"""

from __future__ import annotations

import logging
import re
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
from catalog.model import Table
from catalog.operations.job_requests import VerifyRewriteJob
from catalog.rebalancing.planning import RebalancePlan
from catalog.tables.schemes import PARTITION_FOLDER
from spark_jobs.checking.footers import frames_by_footers
from spark_jobs.reading.sources import quoted
from spark_jobs.rows.placement import partition_id
from spark_jobs.rows.row_hashes import row_hash
from spark_jobs.sessions.session import run_job

log = logging.getLogger("spark_jobs.verify_rewrite")

_SHOWN = 10
_UNREADABLE = re.compile(r"\[FAILED_READ_FILE[^\]]*\] [^\n]*? file (\S+?)\.(?:\s|$)")
_ID, _HASH, _IS_NEW = "calve/partition", "calve/hash", "calve/is_new"


@dataclass(frozen=True)
class Digest:
    """Rows of one partition: how many, and a sum over their values that does not depend on their order."""

    row_count: int
    checksum: int

    def __str__(self) -> str:
        """Return both for people."""
        return f"{self.row_count:,} rows with the checksum {self.checksum}"


def verify_rewrite(spark: SparkSession, catalog: Catalog, job: VerifyRewriteJob) -> dict[str, Any]:
    """Compare, for each new partition, the rows of the new files with those of the old files that belong there.

    Returns:
        `folder`, the plan's `fingerprint`, `rows`, and `partitions`: of each that rows were written for
        `partition_id`, `rows`, `bytes`, `files`, and `checksum` as text.

    Raises:
        PlanConflictError: The table is not any more as the plan expects it.
        VerificationFailedError: They differ, or the new files are not all there.
    """
    plan = catalog.rebalancing.plan_of(catalog.operations.get(job.operation_id))
    written = list(read_manifest(plan.table, job.folder))
    _check_folders(plan, written)
    with _reading_errors(plan.table):
        old = frames_by_footers(spark, plan.table, [file.path for file in plan.rewritten])
        new = frames_by_footers(spark, plan.table, [file.path for file in written])
        hashed = [_hashed(rows, partition_id(plan.scheme), False) for rows in old]
        hashed += [_hashed(rows, _folder_id(rows), True) for rows in new]
        digests = _digests(reduce(DataFrame.union, hashed)) if hashed else {}
    _compare(plan, digests)
    totals = _totals(written)
    rows = sum(digest.row_count for _, digest in digests.values())
    log.info("%s: %d rows in %d new files are those of before", plan.table.full_name, rows, len(written))
    return {
        "folder": job.folder,
        "fingerprint": plan.fingerprint,
        "rows": rows,
        "partitions": [
            {
                "partition_id": each,
                "rows": digests[each][1].row_count,
                "bytes": totals[each].size_bytes,
                "files": totals[each].file_count,
                "checksum": str(digests[each][1].checksum),
            }
            for each in plan.scheme.ids
            if each in digests
        ],
    }


def _check_folders(plan: RebalancePlan, written: Sequence[NewFile]) -> None:
    """Make sure that the list gives each file to the partition whose rows its folder is for."""
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
    """Return what each partition has before and after."""
    hashed = f.col(f"`{_HASH}`").cast("decimal(20,0)")
    is_new = f.col(f"`{_IS_NEW}`")
    found = rows.groupBy(f.col(f"`{_ID}`")).agg(
        f.count_if(~is_new), f.sum(f.when(~is_new, hashed)), f.count_if(is_new), f.sum(f.when(is_new, hashed))
    )
    return {
        number: (Digest(old_count, int(old_sum or 0)), Digest(new_count, int(new_sum or 0)))
        for number, old_count, old_sum, new_count, new_sum in found.collect()
    }


@contextmanager
def _reading_errors(table: Table) -> Iterator[None]:
    """Say of a file that cannot be read that it is not what it should be; the same job again would not help."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = _UNREADABLE.search(str(error))
        if found is None:
            raise
        raise VerificationFailedError(
            f"table {table.full_name}: {found.group(1)} cannot be read; nothing was changed. Run the operation again; "
            "if it fails again, bring the file back"
        ) from error


def _compare(plan: RebalancePlan, digests: dict[int, tuple[Digest, Digest]]) -> None:
    problems = list(_differences(plan, digests))
    if problems:
        more = f"; and {len(problems) - _SHOWN:,} more" if len(problems) > _SHOWN else ""
        raise VerificationFailedError(
            f"table {plan.table.full_name}: the new files of {plan.change} do not hold the rows of the old ones: "
            f"{'; '.join(problems[:_SHOWN])}{more}. Nothing was changed. Run the operation again; if it fails again, "
            "look whether the old files can be read"
        )


def _differences(plan: RebalancePlan, digests: dict[int, tuple[Digest, Digest]]) -> Iterator[str]:
    for number, (before, after) in sorted(digests.items()):
        if before != after:
            known = f" ({plan.scheme.text_of(number)})" if number in plan.scheme.ids else ""
            yield f"partition {number}{known} has {after}, and {before} belong there"


def _totals(written: Sequence[NewFile]) -> dict[int, Total]:
    totals: dict[int, Total] = {}
    for file in written:
        before = totals.get(file.partition_id, Total())
        totals[file.partition_id] = before + Total(1, file.row_count, file.size_bytes)
    return totals


if __name__ == "__main__":
    raise SystemExit(run_job(VerifyRewriteJob, verify_rewrite))
