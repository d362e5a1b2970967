"""Publication of a load with the settings that it has journaled, for all that run its steps: tasks and `calve load`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.errors import VerificationFailedError
from catalog.loading.loading import Loading
from catalog.loading.replacing import Removed
from catalog.model import LoadMode, OnInvalid
from catalog.operations.job_requests import SKIP, ValidateSourceJob, WritePartitionsJob
from catalog.operations.journal import Operations
from catalog.operations.records import Operation
from catalog.partitions.snapshots import ReplacedFiles
from catalog.settings.quality_rules import OnFailure
from catalog.tables.evolution import Evolution

VALIDATE, WRITE = ValidateSourceJob.script, WritePartitionsJob.script
"""The steps whose reports a publication needs."""

MOVES_ROWS = "moves_rows"
"""The field of the report of `WRITE` whether rows move from partitions that readers see to new ones."""

REPLACED = "replaced"
"""The field of the report of `WRITE` with the files that a merge has read and replaces (`ReplacedFiles`)."""


def register(loading: Loading, operations: Operations, operation_id: str, step: str) -> dict[str, Any]:
    """Make a load visible whose files are written; repeated after its commit, return the same report.

    Args:
        step: The step of the publication.

    Returns:
        The report of `Loading.publish`, and of `validate` the files that are `set_aside`, the rows and values that are
        `discarded`, and the `evolution` of the table's columns.

    Raises:
        VerificationFailedError: The load has written no files.
        CatalogError: As `Loading.publish`.
    """
    operation = operations.get(operation_id)
    staged = operation.report.get(WRITE)
    if staged is None:
        raise VerificationFailedError(f"load {operation_id} has written no files yet; run its step {WRITE}")
    if operation.is_committed:
        # The try that committed may have died before it removed its staged files.
        return {**loading.publish(operation_id, step, 0, staged["staging"]), **_reported_by_validate(operation)}
    settings = loading.settings_of(operation_id)
    request, rules = settings["request"], settings["quality"]["rules"]
    # Readers would lose rows that move to a partition which they do not see.
    is_quarantined = rules.get("on_failure") == OnFailure.QUARANTINE and not staged.get(MOVES_ROWS)
    with operations.attempt(operation_id, step) as attempt:
        report = loading.publish(
            operation_id,
            step,
            attempt,
            staged["staging"],
            on_invalid=OnInvalid.SKIP if request["invalid_partitions"] == SKIP else OnInvalid.REFUSE,
            is_quarantined=is_quarantined,
            mode=LoadMode(request["mode"]) if request.get("mode") else None,
            removed=removed_by(staged),
            evolution=Evolution.from_json(staged.get("evolution")),
            replaced=ReplacedFiles(**staged[REPLACED]) if staged.get(REPLACED) else None,
        )
    return {**report, **_reported_by_validate(operation)}


def removed_by(staged: Mapping[str, Any]) -> Removed:
    """Return the partitions that a load removes, of the report of `WRITE`."""
    return {int(number): tuple(values) for number, values in (staged.get("removed") or {}).items()}


def _reported_by_validate(operation: Operation) -> dict[str, Any]:
    """Return what `validate` has reported besides partitions; less for loads that earlier versions have validated."""
    report = operation.report.get(VALIDATE, {})
    return {name: report[name] for name in ("set_aside", "discarded", "evolution") if name in report}
