"""The regular clearing away of what nobody needs any more; needs the catalog and its files, but no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from calve_airflow.catalog_access import open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.operators.approval import Question, asked_by, key_of, require_approval
from calve_airflow.operators.summary import Outcome, SummaryOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.operations.approvals import Approval

VACUUM, EXPIRE, CLEAR = "vacuum", "expire_operations", "clear_failed_builds"
"""The tasks, in their order; one's failure stops no other."""


class VacuumOperator(FormOperator):
    """Deletes the files that no table has any more (`Catalog.vacuum`).

    Args:
        grace_hours: Files that were replaced or written since stay (templated); less than `GRACE` needs an approval.
        is_dry_run: Only say what would be deleted (templated).

    Returns:
        The report, as `catalog.maintenance.reports.VacuumReport.as_json`; what could not be deleted is in it, too.

    Raises:
        AirflowFailException: Nobody has approved the short grace period.
    """

    template_fields: Sequence[str] = ("grace_hours", "is_dry_run")

    def __init__(self, *, grace_hours: float, is_dry_run: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.grace_hours = grace_hours
        self.is_dry_run = is_dry_run

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete."""
        from catalog.maintenance.maintenance import GRACE
        from catalog.settings.fields import hours

        with open_catalog() as catalog:
            grace = hours("grace_hours", self.grace_hours)
            if grace < GRACE and not self.is_dry_run:
                grace += _since(require_approval(catalog, context, _key(VACUUM, grace)))
            report = catalog.vacuum(grace=grace, dry_run=self.is_dry_run)
        for line in str(report).splitlines():
            self.log.info("%s", line)
        for problem in report.problems:
            self.log.error("%s", problem)
        return report.as_json()


class ExpireOperationsOperator(FormOperator):
    """Ends operations that nobody works on any more, and forgets those that ended long ago.

    Args:
        retention_days: Operations that somebody has worked on since stay (templated); less than `RETENTION` needs an
            approval.
        is_dry_run: Only say what would be done (templated).

    Returns:
        The report, as `catalog.maintenance.reports.ExpiryReport.as_json`.

    Raises:
        AirflowFailException: Nobody has approved the short retention.
    """

    template_fields: Sequence[str] = ("retention_days", "is_dry_run")

    def __init__(self, *, retention_days: float, is_dry_run: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.retention_days = retention_days
        self.is_dry_run = is_dry_run

    def execute(self, context: Context) -> dict[str, Any]:
        """End and forget."""
        from catalog.maintenance.maintenance import RETENTION
        from catalog.settings.fields import days

        with open_catalog() as catalog:
            age = days("retention_days", self.retention_days)
            if age < RETENTION and not self.is_dry_run:
                age += _since(require_approval(catalog, context, _key(EXPIRE, age)))
            report = catalog.maintenance.expire_operations(older_than=age, dry_run=self.is_dry_run)
        for operation_id in report.abandoned:
            self.log.info("Nobody works on operation %s any more", operation_id)
        for problem in report.problems:
            self.log.error("%s", problem)
        return report.as_json()


class ClearFailedBuildsOperator(FormOperator):
    """Removes what builds and deletions of partition indexes that died have left.

    Args:
        is_dry_run: Only say what would be removed (templated).

    Returns:
        Table → names of the indexes of which something was there.
    """

    template_fields: Sequence[str] = ("is_dry_run",)

    def __init__(self, *, is_dry_run: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.is_dry_run = is_dry_run

    def execute(self, context: Context) -> dict[str, list[str]]:
        """Remove."""
        with open_catalog() as catalog:
            return catalog.maintenance.clear_failed_builds(dry_run=self.is_dry_run)


class SummariseMaintenanceOperator(SummaryOperator):
    """Says what was cleared away, table by table; fails if something could not be.

    Args:
        planned: Task → what it returned (templated); None for one that failed.
    """

    planned: Mapping[str, Any]

    def outcomes(self, context: Context, catalog: Catalog) -> list[Outcome]:
        """Look at what the tasks returned."""
        found = []
        for task, rows in ((VACUUM, _vacuumed), (EXPIRE, _expired), (CLEAR, _cleared)):
            report = self.planned[task]
            if report is None:
                said = f"{task} failed; its log says why"
                found.append(_outcome(task, None, said, said))
            else:
                found += rows(report)
        return found


def maintenance_question(catalog: Catalog, context: Context) -> Question | None:
    """Return what has to be approved before a run clears up; None when files and operations stay as long as usual."""
    from catalog.maintenance.maintenance import GRACE, RETENTION
    from catalog.settings.fields import days, hours

    form = context["params"]
    grace, age = hours("grace_hours", form["grace_hours"]), days("retention_days", form["retention_days"])
    short = []
    if grace < GRACE:
        subject = f"Delete replaced files after {form['grace_hours']} hours?"
        request = (
            f"a vacuum of all tables that leaves files for **{form['grace_hours']} hours** only: readers that began "
            "before may fail, and what was replaced since cannot be looked at any longer"
        )
        short.append((subject, request, _key(VACUUM, grace)))
    if age < RETENTION:
        subject = f"Forget ended operations after {form['retention_days']} days?"
        request = (
            f"a journal that keeps ended operations for **{form['retention_days']} days** only: who asked for them is "
            "forgotten, and a run that is cleared does its work again"
        )
        short.append((subject, request, _key(EXPIRE, age)))
    if form["dry_run"] or not short:
        return None
    subjects, requests, keys = zip(*short, strict=True)
    asked = f"{asked_by(context)} asks for {'; and for '.join(requests)}."
    return Question(" ".join(subjects), f"{asked}\n\nReject ends the run, and nothing is deleted.", keys)


def _key(task: str, kept: timedelta) -> str:
    """Return the key of a task that keeps files, or operations, for less than the usual time."""
    return key_of(task, kept.total_seconds())


def _outcome(task: str, table: str | None, said: str, failure: str | None = None) -> Outcome:
    return Outcome({"task": task, "table": table, "outcome": said}, failure)


def _vacuumed(report: Mapping[str, Any]) -> Iterator[Outcome]:
    done = "would be deleted" if report["dry_run"] else "deleted"
    for each in report["tables"]:
        files, size = each["retired_files"] + each["orphan_files"], each["retired_bytes"] + each["orphan_bytes"]
        said = [f"{files:,} file(s), {size:,} bytes" * bool(files)]
        said.append(f"{each['staging_folders']:,} staging folder(s)" * bool(each["staging_folders"]))
        yield _outcome(VACUUM, each["table"], f"{done}: {', '.join(filter(None, said))}")
    for table in report["purged"]:
        yield _outcome(VACUUM, table, f"{done}: the folder of the dropped table")
    for problem in report["problems"]:
        yield _outcome(VACUUM, None, problem, problem)


def _expired(report: Mapping[str, Any]) -> Iterator[Outcome]:
    would = "would be " if report["dry_run"] else ""
    for operation_id in report["abandoned"]:
        yield _outcome(EXPIRE, None, f"{would}given up, nobody works on it: {operation_id}")
    if report["removed"] or report["kept"]:
        said = f"{would}forgotten: {report['removed']:,} operation(s); as old, but with files: {report['kept']:,}"
        yield _outcome(EXPIRE, None, said)
    for problem in report["problems"]:
        yield _outcome(EXPIRE, None, problem, problem)


def _cleared(report: Mapping[str, Any]) -> Iterator[Outcome]:
    for table, names in report.items():
        yield _outcome(CLEAR, table, f"leftovers of partition index {', '.join(names)}")


def _since(approval: Approval) -> timedelta:
    """Return the time since an approval: what came after it was approved by nobody, however late the task runs."""
    return timedelta(milliseconds=approval.age_ms)
