"""Operators that remove obsolete files and records, without Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.xcom import BaseXCom

from calve_airflow.catalog_access import open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.operators.approval import Question, asked_by, code, key_of, require_approval
from calve_airflow.operators.rebalancing import size
from calve_airflow.operators.summary import Outcome, SummaryOperator
from calve_airflow.submitting.job_process import JobProcess
from catalog.settings.environment import jobs_folder

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.maintenance.reports import TableVacuum
    from catalog.operations.approvals import Approval

_SHOWN = 20

VACUUM, EXPIRE, CLEAR, CHECK = "vacuum", "expire_operations", "clear_failed_builds", "check_catalog"
"""The tasks in order; the failure of one does not prevent the others."""


class VacuumOperator(FormOperator):
    """Task that deletes the files that no table uses any longer (`Catalog.vacuum`).

    Args:
        grace_hours: Hours for which replaced or written files stay (templated); less than `GRACE` needs an approval.
        is_dry_run: Only report what would be deleted (templated).

    Returns:
        The report, as `catalog.maintenance.reports.VacuumReport.as_json`; also the XCom of a task that fails.

    Raises:
        AirflowFailException: The short grace period is not approved.
        FilesNotDeletedError: Files could not be deleted, as the report says; a retry continues.
    """

    template_fields: Sequence[str] = ("grace_hours", "is_dry_run")

    def __init__(self, *, grace_hours: float, is_dry_run: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.grace_hours = grace_hours
        self.is_dry_run = is_dry_run

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the files."""
        from catalog.model import GRACE
        from catalog.settings.fields import flag, hours

        with open_catalog() as catalog:
            grace, is_dry_run = hours("grace_hours", self.grace_hours), flag("is_dry_run", self.is_dry_run)
            if grace < GRACE and not is_dry_run:
                grace += _since(require_approval(catalog, context, _key(VACUUM, grace)))
            report = catalog.vacuum(grace=grace, dry_run=is_dry_run)
        for line in str(report).splitlines():
            self.log.info("%s", line)
        return _reported(context, report.as_json())


class ExpireOperationsOperator(FormOperator):
    """Task that ends abandoned operations and deletes the records of operations that ended long ago.

    Also deletes the logs, of the same age, of Spark jobs that were submitted on the host of the task.

    Args:
        retention_days: Days since its last change for which an ended operation stays (templated); less than
            `RETENTION` needs an approval.
        is_dry_run: Only report what would be done (templated).

    Returns:
        The report, as `catalog.maintenance.reports.ExpiryReport.as_json`; also the XCom of a task that fails.

    Raises:
        AirflowFailException: The short retention is not approved.
        FilesNotDeletedError: Something could not be removed, as the report says; a retry continues.
    """

    template_fields: Sequence[str] = ("retention_days", "is_dry_run")

    def __init__(self, *, retention_days: float, is_dry_run: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.retention_days = retention_days
        self.is_dry_run = is_dry_run

    def execute(self, context: Context) -> dict[str, Any]:
        """End and delete operations."""
        from catalog.maintenance.maintenance import RETENTION
        from catalog.settings.fields import days, flag

        with open_catalog() as catalog:
            age, is_dry_run = days("retention_days", self.retention_days), flag("is_dry_run", self.is_dry_run)
            if age < RETENTION and not is_dry_run:
                age += _since(require_approval(catalog, context, _key(EXPIRE, age)))
            report = catalog.maintenance.expire_operations(older_than=age, dry_run=is_dry_run)
        log_count = JobProcess.delete_old(jobs_folder(), age, is_dry_run=is_dry_run)
        self.log.info("Folders of old job logs on this host: %d", log_count)
        for operation_id in report.abandoned:
            self.log.info("Operation %s is abandoned", operation_id)
        return _reported(context, report.as_json())


class ClearFailedBuildsOperator(FormOperator):
    """Task that removes what failed builds and deletions of partition indexes left behind.

    Args:
        is_dry_run: Only report what would be removed (templated).

    Returns:
        Table → names of the indexes that had leftovers.
    """

    template_fields: Sequence[str] = ("is_dry_run",)

    def __init__(self, *, is_dry_run: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.is_dry_run = is_dry_run

    def execute(self, context: Context) -> dict[str, list[str]]:
        """Remove the leftovers."""
        from catalog.settings.fields import flag

        with open_catalog() as catalog:
            return catalog.maintenance.clear_failed_builds(dry_run=flag("is_dry_run", self.is_dry_run))


class CheckCatalogOperator(FormOperator):
    """Task that reports where the catalog differs from the files (`Maintenance.check`); findings do not fail it.

    Returns:
        The report, as `catalog.maintenance.findings.CatalogReport.as_json`.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Check the catalog, and log the findings."""
        with open_catalog() as catalog:
            report = catalog.maintenance.check()
        for line in str(report).splitlines():
            self.log.log(logging.WARNING if report.findings else logging.INFO, "%s", line)
        return report.as_json()


class SummariseMaintenanceOperator(SummaryOperator):
    """Task that reports what was removed, by table; fails if something could not be removed, or a task failed.

    Args:
        planned: Task → its return value (templated); None for a failed task.
    """

    planned: Mapping[str, Any]

    def outcomes(self, context: Context, catalog: Catalog) -> list[Outcome]:
        """Return the outcomes from the return values of the tasks."""
        outcomes = []
        for task, rows in ((VACUUM, _vacuumed), (EXPIRE, _expired), (CLEAR, _cleared), (CHECK, _checked)):
            report = self.planned[task]
            if report is None:
                failure = f"{task} failed; see its log"
                outcomes.append(_outcome(task, None, failure, failure))
            else:
                outcomes += rows(report)
        return outcomes


def maintenance_question(catalog: Catalog, context: Context) -> Question | None:
    """Return the question to approve before a run removes files and operations earlier than usual; None otherwise."""
    from catalog.maintenance.maintenance import RETENTION
    from catalog.model import GRACE
    from catalog.settings.fields import days, hours

    form = context["params"]
    grace, age = hours("grace_hours", form["grace_hours"]), days("retention_days", form["retention_days"])
    if form["dry_run"]:
        return None
    short = []
    if grace < GRACE:
        subject = f"Delete replaced files after {form['grace_hours']} hours?"
        request = (
            f"a vacuum of all tables that keeps files for only **{form['grace_hours']} hours**: readers that began "
            "earlier may fail, and replaced files can no longer be inspected"
        )
        short.append((subject, request, _files_without(catalog, grace), _key(VACUUM, grace)))
    if age < RETENTION:
        subject = f"Delete ended operations after {form['retention_days']} days?"
        request = (
            f"a journal that keeps ended operations for only **{form['retention_days']} days**: the record of who "
            "requested them is lost, and a cleared run repeats its work"
        )
        removed = catalog.maintenance.expire_operations(older_than=age, dry_run=True).removed
        short.append((subject, request, f"Now, **{removed:,} operations** would be deleted.", _key(EXPIRE, age)))
    if not short:
        return None
    subjects, requests, details, keys = zip(*short, strict=True)
    requested = "\n\n".join([f"{asked_by(context)} requests {'; and '.join(requests)}.", *details])
    return Question(" ".join(subjects), f"{requested}\n\nReject ends the run, and nothing is deleted.", keys)


def _files_without(catalog: Catalog, grace: timedelta) -> str:
    """Return which files a vacuum would delete now, as Markdown."""
    deleting = [table for table in catalog.vacuum(grace=grace, dry_run=True).tables if _file_count(table)]
    if not deleting:
        return "Now, the vacuum would delete no file."
    total = sum(deleting[1:], deleting[0])
    lines = [
        f"- {code(table.table)}: {_file_count(table):,} files, {size(_size(table))}" for table in deleting[:_SHOWN]
    ]
    more = [f"- and files of {len(deleting) - _SHOWN:,} more tables"] * (len(deleting) > _SHOWN)
    counts = f"**{_file_count(total):,} files** ({size(_size(total))})"
    return f"Now, the vacuum would delete {counts}:\n\n{chr(10).join([*lines, *more])}"


def _file_count(table: TableVacuum) -> int:
    return table.retired_files + table.orphan_files + table.metadata_files


def _size(table: TableVacuum) -> int:
    return table.retired_bytes + table.orphan_bytes + table.metadata_bytes


def _key(task: str, kept: timedelta) -> str:
    """Return the approval key of a task that keeps files or operations for less than the usual time."""
    return key_of(task, kept.total_seconds())


def _reported(context: Context, report: dict[str, Any]) -> dict[str, Any]:
    """Return a task's report after checking that it has no problems.

    Raises:
        FilesNotDeletedError: It has some; the last task of the run finds the report in the XCom.
    """
    from catalog.errors import FilesNotDeletedError

    if problems := report["problems"]:
        context["ti"].xcom_push(key=BaseXCom.XCOM_RETURN_KEY, value=report)
        raise FilesNotDeletedError("; ".join(problems))
    return report


def _outcome(task: str, table: str | None, outcome: str, failure: str | None = None) -> Outcome:
    return Outcome({"task": task, "table": table, "outcome": outcome}, failure)


def _vacuumed(report: Mapping[str, Any]) -> Iterator[Outcome]:
    # Not at the top: DAG files import this module, and the report's module imports PyArrow.
    from catalog.maintenance.reports import TableVacuum, deleted

    is_dry_run = report["dry_run"]
    for table in report["tables"]:
        for outcome in TableVacuum(**table).outcomes(is_dry_run=is_dry_run):
            yield _outcome(VACUUM, table["table"], outcome)
    for name in report["purged"]:
        yield _outcome(VACUUM, name, f"{deleted(is_dry_run=is_dry_run)}: the folder of the dropped table")
    for problem in report["problems"]:
        yield _outcome(VACUUM, None, problem, problem)


def _expired(report: Mapping[str, Any]) -> Iterator[Outcome]:
    would = "would be " if report["dry_run"] else ""
    for operation_id in report["abandoned"]:
        yield _outcome(EXPIRE, None, f"{would}ended, because it is abandoned: {operation_id}")
    if report["removed"] or report["kept"]:
        counts = f"{would}deleted: {report['removed']:,} operation(s); as old, but with files: {report['kept']:,}"
        yield _outcome(EXPIRE, None, counts)
    if report["quality_checks"] or report["quality_pages"]:
        counts = f"{report['quality_checks']:,} old quality check(s) and {report['quality_pages']:,} page(s)"
        yield _outcome(EXPIRE, None, f"{would}deleted: {counts}")
    for problem in report["problems"]:
        yield _outcome(EXPIRE, None, problem, problem)


def _cleared(report: Mapping[str, Any]) -> Iterator[Outcome]:
    for table, names in report.items():
        yield _outcome(CLEAR, table, f"leftovers of partition index {', '.join(names)}")


def _checked(_report: Mapping[str, Any]) -> Iterator[Outcome]:
    """Yield nothing: the findings, which are no failures, are in the log and the result of their own task."""
    yield from ()


def _since(approval: Approval) -> timedelta:
    """Return the time since an approval, which does not cover files that became obsolete after it."""
    return timedelta(milliseconds=approval.age_ms)
