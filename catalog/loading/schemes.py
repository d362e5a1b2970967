"""Loads into tables with a partition scheme.

The job that writes the files of a load also finds the files whose rows they replace, which depends on the mode, and
reports both as a change of files. Its publication is one transaction, with one snapshot for other engines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection

from catalog.datafiles.committing import Committer, FileChange
from catalog.datafiles.files import Total
from catalog.datafiles.manifest import read_manifest
from catalog.errors import PlanConflictError, UnsupportedChangeError, VerificationFailedError
from catalog.loading.attempts import PublishAttempt
from catalog.model import Table
from catalog.operations.records import Operation
from catalog.settings.scheme_loads import unsuitable_settings

CHANGE, COUNTS = "change", "counts"
"""The fields of the report of the job that writes a load's files: the change of files, and its counts."""


def require_scheme_settings(table: Table, settings: Mapping[str, Any]) -> None:
    """Check that the settings of a load are those of a table with a partition scheme.

    Args:
        settings: As `Loading.discover` journals them.

    Raises:
        UnsupportedChangeError: They are not.
    """
    rules = settings.get("quality", {}).get("rules", {})
    if problems := list(unsuitable_settings(table, settings.get("request", {}), rules)):
        assert table.scheme is not None
        raise UnsupportedChangeError(
            f"table {table.full_name} has a partition scheme ({table.scheme.type} on {table.scheme.column}): "
            f"{'; '.join(problems)}"
        )


def load_counts(table: Table, change: FileChange, report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts of a load, in the fields that loads into other tables report, too.

    Args:
        change: The change whose files are written.
        report: With `rows_loaded`; and with `rows_outside` and `warning` if there are rows beyond the last range.
    """
    partition_ids, total = set[int](), Total()
    for file in read_manifest(table, change.folder) if change.folder is not None else ():
        partition_ids.add(file.partition_id)
        total += Total(1, file.row_count, file.size_bytes)
    new = partition_ids - {*change.before.ids}
    known = len(partition_ids) - len(new)
    return {
        "partitions": len(new),
        "partitions_extended": 0 if change.is_overwrite else known,
        "partitions_replaced": known if change.is_overwrite else 0,
        "partitions_removed": 0,
        "row_count": report["rows_loaded"],
        "file_count": total.file_count,
        "size_bytes": total.size_bytes,
        "refused": 0,
        "refused_rows": 0,
        "refused_reasons": [],
        "refused_folder": None,
        **{name: report[name] for name in ("rows_outside", "warning") if name in report},
    }


class SchemePublication:
    """One attempt at publishing the files in an attempt's folder."""

    def __init__(self, attempt: PublishAttempt) -> None:
        """Set the attempt at publishing its folder."""
        self._attempt = attempt
        self._committer = Committer(attempt.storage, attempt.definitions, attempt.operations)

    def commit(self, note: Callable[[Connection, Table, Operation], None]) -> dict[str, Any]:
        """Make the files visible in one transaction; return the report.

        Args:
            note: Records the source files of the load in this transaction.

        Raises:
            FencedError: The attempt is fenced, or a later attempt has written the load again.
            PlanConflictError: The files or partitions of the table changed since the files were written.
            VerificationFailedError: The folder is incomplete.
        """
        attempt = self._attempt
        written = self._written()
        change = FileChange.from_json(written[CHANGE])

        def prepare(connection: Connection) -> None:
            attempt.guard(connection)
            attempt.evolve(connection)

        def report(connection: Connection, table: Table) -> Mapping[str, Any]:
            note(connection, table, attempt.operation)
            return dict(written[COUNTS])

        try:
            full_report = self._committer.commit(
                attempt.operation.id, attempt.step, attempt.number, change, report, prepare
            )
        except PlanConflictError as error:
            raise PlanConflictError(
                f"the partitions or files of table {attempt.table.full_name} changed after the load had written its "
                "files; nothing was loaded. Run the load again, from the step that writes the files"
            ) from error
        return full_report

    def _written(self) -> Mapping[str, Any]:
        """Return the report of the job that wrote the folder."""
        for step in self._attempt.operation.report.values():
            if isinstance(step, dict) and step.get("staging") == self._attempt.folder and CHANGE in step:
                return step
        raise VerificationFailedError(
            f"table {self._attempt.table.full_name}: no job of load {self._attempt.operation.id} has reported the "
            f"folder {self._attempt.folder!r}; nothing was loaded. Run the load again"
        )
