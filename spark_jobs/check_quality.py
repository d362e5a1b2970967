"""Quality check of the partitions that a load added or extended, by the rules of the table's entry.

An extended partition is checked twice: as it became, and the added rows alone. Many good rows would hide a few bad ones
in a ratio, and a few late rows are no partition with too few rows.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from catalog import Catalog
from catalog.loading.publishing import WRITTEN_BY
from catalog.loading.quality_pages import QualityPages
from catalog.operations.job_requests import CheckQualityJob
from catalog.operations.records import Operation
from catalog.partitions.quarantine import LoadedPartitions
from catalog.settings.environment import quality_pages
from catalog.settings.quality_rules import PartitionCheck, QualityRules
from spark_jobs.checking.expectations import validate
from spark_jobs.checking.failing_rows import with_samples
from spark_jobs.checking.learning import learned_checks, with_ages
from spark_jobs.checking.partition_summary import measures_of, summarise, usual_ratios, with_new_rows
from spark_jobs.checking.planned_checks import Check, planned_checks
from spark_jobs.sessions.session import run_job

if TYPE_CHECKING:
    import pandas

_SHOWN = 20
_MOST_EARLIER = 3_000
"""The number of earlier partitions among which those with the same keys are looked for."""

log = logging.getLogger("spark_jobs.check_quality")


def check_quality(spark: SparkSession, catalog: Catalog, job: CheckQualityJob) -> None:
    """Check all partitions of a load in one pass over their files, and record the result of each.

    Quarantined partitions that pass become visible in the same transaction. The report has `checked`, `passed`,
    `failed`, `released`, `failures` (the first 20, as strings), `row_count` (of the checked partitions) and
    `docs_path` (path or URI of the page of Data Docs; None if it could not be written).
    """
    loaded = catalog.loaded_partitions(job.operation_id, is_whole=True)
    table, partitions = loaded.table, loaded.partitions
    rules = QualityRules.from_config(job.rules, keys=table.key_names)
    operation = catalog.operations.get(job.operation_id)
    if not partitions:
        report: dict[str, Any] = {"checked": 0, "passed": 0, "failed": 0, "failures": [], "docs_path": None}
        catalog.quality.record(job.operation_id, job.step, job.attempt, [], report)
        return
    ratios = usual_ratios(catalog, table, rules.row_count, partitions)
    summary = summarise(spark, loaded, rules, ratios, catalog=catalog)
    summary, learned = _learned(catalog, loaded, rules, summary, operation)
    summary = with_new_rows(summary, _new_rows(spark, catalog, job, loaded, rules))
    pages = QualityPages(quality_pages())
    validation = validate(summary, table, rules, pages=pages, operation=operation, learned=learned)
    names = {partition.id: partition.name(table) for partition in partitions}
    by_id = {check.partition_id: check for check in validation.checks}
    failed = {number: check for number, check in by_id.items() if not check.passed}
    if table.scheme is None:
        by_column = {check.column: check for check in planned_checks(summary, table, rules)}
        by_id |= with_samples(spark, catalog, loaded, rules, by_column, failed)
    report = {
        "checked": len(partitions),
        "passed": len(partitions) - len(failed),
        "failed": len(failed),
        "failures": [
            f"{names[partition_id]}: {'; '.join(map(str, check.failures))}"
            for partition_id, check in list(failed.items())[:_SHOWN]
        ],
        "row_count": int(summary["row_count"].sum()),
        "docs_path": validation.page,
    }
    log.info("%s: %d of %d partitions passed", table.full_name, report["passed"], report["checked"])
    for failure in report["failures"]:
        log.warning("%s", failure)
    # Those of a scheme have no rows in the catalog whose checks could be stored: the report has the result.
    stored = partitions if table.scheme is None else ()
    measures = measures_of(summary)
    checks = (
        replace(by_id.get(partition.id, PartitionCheck(partition.id)), measures=measures.get(partition.id, {}))
        for partition in stored
    )
    catalog.quality.record(job.operation_id, job.step, job.attempt, checks, report)


def _learned(
    catalog: Catalog, loaded: LoadedPartitions, rules: QualityRules, summary: pandas.DataFrame, operation: Operation
) -> tuple[pandas.DataFrame, list[Check]]:
    """Return the summary with the columns of checks against earlier partitions, and these checks."""
    if rules.learn is None:
        return summary, []
    table, values = loaded.table, [partition.values for partition in loaded.partitions]
    summary = with_ages(summary, table, values, catalog.storage.now_ms())
    loaded_now = {partition.id for partition in loaded.partitions}
    limit = _MOST_EARLIER if rules.learn.per else rules.learn.last + len(loaded_now)
    measured = catalog.quality.measured_partitions(
        table.full_name, limit=min(limit, _MOST_EARLIER), without_operation=operation.number
    )
    earlier = [(names, check) for names, check in measured if check.partition_id not in loaded_now]
    return learned_checks(summary, values, table, rules.learn, earlier)


def _new_rows(
    spark: SparkSession, catalog: Catalog, job: CheckQualityJob, loaded: LoadedPartitions, rules: QualityRules
) -> pandas.DataFrame | None:
    """Return the summary of the rows that the load added; None if all its partitions were new."""
    operation = catalog.operations.get(job.operation_id)
    steps = [step for step in operation.report.values() if isinstance(step, dict)]
    if not any(step.get("partitions_extended") for step in steps):
        return None
    # Rules about partitions as they became are left out.
    rules = replace(rules, learn=None, unique=(), references={})
    if loaded.table.has_file_rows:
        return summarise(spark, catalog.loaded_partitions(job.operation_id), rules, {})
    written_by = next((step[WRITTEN_BY] for step in steps if step.get(WRITTEN_BY)), None)
    return None if written_by is None else summarise(spark, loaded, rules, {}, written_by=written_by)


if __name__ == "__main__":
    raise SystemExit(run_job(CheckQualityJob, check_quality))
