"""Operations as the pages tell them: their progress, and what they change, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalog import Catalog
from catalog.errors import CatalogError
from catalog.operations.dry_runs import plan_of
from catalog.operations.records import DRY_RUN, UNFINISHED, JobRun, Operation, OperationKind
from catalog.rebalancing.rebalancing import COMMIT
from catalog.rebalancing.totals import TOTALS
from catalog.settings.secret_names import is_name_of_secret
from catalog.statements.splitting import replace_literals

_MIGRATIONS = (OperationKind.MIGRATE, OperationKind.SNAPSHOT, OperationKind.ADD_FILES)
_SHOWN = 200
_HIDDEN = "***"


@dataclass(frozen=True)
class Progress:
    """The progress of an operation's running step.

    Attributes:
        done, total: Finished and all units; `total` is None while it is unknown.
        unit: The name of the units, such as `partitions`.
        per_second: Units a second since the step started; None before the first one.
        silent_seconds: Time since the last heartbeat.
    """

    step: str
    done: int
    total: int | None
    unit: str
    per_second: float | None
    silent_seconds: float

    @property
    def seconds_left(self) -> float | None:
        """The time left at this rate, in seconds; None if it is unknown."""
        if self.per_second is None or self.total is None:
            return None
        return max(0, self.total - self.done) / self.per_second

    @property
    def percentage(self) -> float | None:
        """The finished part in percent, rounded down, so that only what is done is 100."""
        return 100 * self.done // self.total if self.total else None


def progress_of(operation: Operation, jobs: Sequence[JobRun]) -> Progress | None:
    """Return the progress of the step that runs; None if none does."""
    alive = [job for job in jobs if job.is_alive]
    if not alive or operation.state not in UNFINISHED:
        return None
    job = alive[-1]
    done = operation.progress_done
    seconds = 0.0 if job.started_at_ms is None else (job.heartbeat_at_ms - job.started_at_ms) / 1000
    return Progress(
        job.step,
        done,
        operation.progress_total,
        operation.progress_note or "",
        done / seconds if done and seconds > 0 else None,
        job.silent_ms / 1000,
    )


def shown(operation: Operation, values: Any, name: str = "") -> Any:
    """Return a request or report without passwords, and without the rows that a statement has returned.

    Args:
        operation: The operation.
        values: The whole request or report, or a part of it.
        name: The part's name.
    """
    is_statement = operation.kind is OperationKind.RUN_STATEMENT
    if isinstance(values, Mapping):
        return {field_name: shown(operation, value, str(field_name)) for field_name, value in values.items()}
    if is_name_of_secret(name) and values is not None:
        return _HIDDEN
    if is_statement and isinstance(values, str):
        return replace_literals(values, lambda _: f"'{_HIDDEN}'")
    if isinstance(values, list | tuple):
        if is_statement and name == "rows":
            return f"{len(values):,}"
        return [shown(operation, value, name) for value in values]
    return values


@dataclass(frozen=True)
class Part:
    """A partition before and after a change; each is None if the partition does not exist then.

    Attributes:
        before, after: `bytes` and `files`, and `rows` if they are known.
        targets: Where its rows go, while the totals afterwards are unknown.
    """

    name: str
    before: Mapping[str, int] | None
    after: Mapping[str, int] | None
    targets: str = ""


@dataclass(frozen=True)
class Change:
    """The change that an operation makes.

    Attributes:
        statement: The change as a statement.
        parts: Partitions before and after; at most `_SHOWN`.
        part_count: The number of all these partitions.
        is_made: Whether the change was made; otherwise it is planned.
        is_dry_run: Whether it was planned by a dry run, which does not make it.
        figures: Name → number of what is moved, written and deleted.
        columns: Columns with their types before and after.
        problem: Why it cannot be shown.
    """

    statement: str = ""
    parts: Sequence[Part] = ()
    part_count: int = 0
    is_made: bool = False
    is_dry_run: bool = False
    figures: Mapping[str, Any] = field(default_factory=dict)
    columns: Sequence[Any] = ()
    problem: str = ""

    @property
    def measure(self) -> str:
        """The measure of the bars: rows, or files if no rows are known."""
        return "rows" if any("rows" in (part.before or part.after or {}) for part in self.parts) else "files"

    @property
    def largest(self) -> int:
        """The largest value of the measure before or after, at least 1."""
        sides = [side for part in self.parts for side in (part.before, part.after) if side]
        return max([1, *(side[self.measure] for side in sides)])


_FIGURES = (
    *("rows_moved", "bytes_moved", "files_read", "files_written", "files_reassigned", "rows_deleted", "bytes_deleted"),
    *("files_deleted", "partitions_left", "estimated_seconds"),
)
_FIGURES_OF_MIGRATION = ("files", "rows", "bytes", "partitions", "manifests", "estimated_seconds")


def change_of(catalog: Catalog, operation: Operation) -> Change | None:
    """Return what an operation changes; None if operations of its kind show no plan, or if it has failed."""
    try:
        if operation.kind is OperationKind.REBALANCE:
            return _rebalance(catalog, operation)
        if operation.kind in _MIGRATIONS:
            return _migration(catalog, operation)
        if operation.kind is OperationKind.COMPACT_PARTITIONS:
            return _compaction(operation)
    except CatalogError as error:
        return Change(problem=str(error))
    return None


def _rebalance(catalog: Catalog, operation: Operation) -> Change | None:
    if COMMIT in operation.report:
        made = operation.report[COMMIT]
        parts = [
            Part(f"{total['partition_id']}: {total['partition']}", total["before"], total["after"])
            for total in made[TOTALS]
        ]
        return Change(made["statement"], parts[:_SHOWN], len(parts), is_made=True, figures=_figures(made))
    planned = plan_of(operation)
    is_dry_run = planned is not None
    if planned is None:
        if operation.state not in UNFINISHED:
            return None
        planned = catalog.rebalancing.plan_of(operation).as_json()
    names = planned["partitions_after"]
    parts = [
        Part(
            f"{part['partition_id']}: {part['partition']}",
            {name: part[name] for name in ("rows", "bytes", "files")},
            None,
            ", ".join(f"{target}: {names[str(target)]}" for target in part["targets"]) or "deleted",
        )
        for part in planned["partitions"][:_SHOWN]
    ]
    count = len(planned["partitions"])
    return Change(planned["statement"], parts, count, is_dry_run=is_dry_run, figures=_figures(planned))


def _compaction(operation: Operation) -> Change | None:
    statement = f"ALTER TABLE {operation.table} COMPACT"
    planned = plan_of(operation)
    if planned is not None:
        parts = [
            Part(
                part["partition"],
                {"bytes": part["bytes"], "files": part["files"]},
                {"bytes": part["bytes"], "files": part["files_after"]},
            )
            for part in planned.get("partitions", ())
        ]
        count = planned.get("partition_count", 0)
        return Change(planned["statement"], parts, count, is_dry_run=True, figures=_figures(planned))
    made = operation.report.get(OperationKind.COMPACT_PARTITIONS)
    if made and "files_before" in made:
        names = ("partitions", "files_before", "files", "bytes")
        figures = {name: made[name] for name in names if made.get(name) is not None}
        return Change(statement, is_made=True, figures=figures)
    chosen = operation.request.get("partitions")
    if operation.state not in UNFINISHED or chosen is None:
        return None
    return Change(statement, figures={"partitions": len(chosen), "bytes_moved": sum(size for _, size in chosen)})


def _figures(report: Mapping[str, Any]) -> dict[str, Any]:
    return {name: report[name] for name in _FIGURES if name in report}


def _migration(catalog: Catalog, operation: Operation) -> Change:
    from catalog.iceberg.layout import TypeRules, layout_of
    from catalog.migration.migrations import FLIP, STAGE
    from catalog.migration.requests import MigrationOperation

    request = MigrationOperation.of(operation).parsed_request
    layout = layout_of(catalog.get_table(operation.table), TypeRules(request.timestamps))
    planned = plan_of(operation)
    found = {**(planned or {}), **operation.report.get(STAGE, {}), **operation.report.get(FLIP, {})}
    target = request.target or operation.table
    return Change(
        f"Hive table {operation.table} → Iceberg table {target}",
        is_made=operation.is_committed,
        is_dry_run=operation.failure_code == DRY_RUN,
        figures={name: found[name] for name in _FIGURES_OF_MIGRATION if found.get(name) is not None},
        columns=layout.describe(),
    )
