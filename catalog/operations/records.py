"""Operations and jobs as the journal has them, and the states that they pass through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

LEASE_MS = 15 * 60 * 1000
"""An unfinished operation that nobody has touched for so long no longer holds its table."""

SILENT_LEASE_MS = 24 * 60 * 60 * 1000
"""The same where an attempt has never given a sign of life, as one in its caller's own process may not."""

ABANDONED = "ABANDONED"
"""The failure code of such an operation."""


class OperationKind(StrEnum):
    """What an operation does."""

    ADD_PARTITIONS = "add_partitions"
    BUILD_INDEX = "build_index"
    VERIFY_INDEX = "verify_index"
    LOAD_ROWS = "load_rows"
    REBALANCE = "rebalance"
    APPEND_ROWS = "append_rows"
    REPAIR_TABLE = "repair_table"
    DROP_TABLE = "drop_table"
    DROP_PARTITIONS = "drop_partitions"
    COUNT_VALUES = "count_values"
    PROPOSE_CHANGES = "propose_changes"
    RUN_STATEMENT = "run_statement"
    IMPORT_TABLE = "import_table"
    MIGRATE = "migrate"
    REVERT = "revert"
    SNAPSHOT = "snapshot"
    ADD_FILES = "add_files"
    MAINTAIN_ICEBERG = "maintain_iceberg"


class OperationState(StrEnum):
    """Where an operation stands."""

    PLANNED = "PLANNED"
    RUNNING = "RUNNING"
    COMMITTED = "COMMITTED"
    CLEANED = "CLEANED"
    FAILED = "FAILED"


TRANSITIONS: Mapping[OperationState, frozenset[OperationState]] = {
    OperationState.PLANNED: frozenset({OperationState.RUNNING, OperationState.FAILED, OperationState.CLEANED}),
    OperationState.RUNNING: frozenset({OperationState.COMMITTED, OperationState.FAILED, OperationState.CLEANED}),
    OperationState.COMMITTED: frozenset({OperationState.CLEANED}),
    OperationState.FAILED: frozenset({OperationState.PLANNED, OperationState.RUNNING}),
    OperationState.CLEANED: frozenset(),
}
UNFINISHED = (OperationState.PLANNED, OperationState.RUNNING)
FINISHED = (OperationState.COMMITTED, OperationState.CLEANED)


class JobState(StrEnum):
    """Where the latest attempt at a step stands."""

    SUBMITTED = "SUBMITTED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


ALIVE = (JobState.SUBMITTED, JobState.RUNNING)


@dataclass(frozen=True)
class Operation:
    """One journaled change of the catalog and its files.

    Attributes:
        number: A short name for it; unique in the catalog, and never used again.
        table: What its table is called now; the name under which it began when no table has come of it, or the table
            was dropped.
        folder: A name that no other operation has, of this catalog or another; folders of its files begin with it.
        table_id: The identity of the table; None until the table exists.
        report: What its steps found and did, by step.
        heartbeat_at_ms: When somebody last worked on it.
    """

    id: str
    number: int
    kind: OperationKind
    table: str
    state: OperationState
    request: Mapping[str, Any]
    report: Mapping[str, Any]
    progress_done: int
    progress_total: int | None
    progress_note: str | None
    failure_code: str | None
    failure_detail: str | None
    requested_by: str | None
    created_at_ms: int
    heartbeat_at_ms: int
    folder: str
    table_id: int | None = None

    @property
    def is_committed(self) -> bool:
        """Say whether its change is in the catalog, so that no step before the commit has anything left to do."""
        return self.state in FINISHED


@dataclass(frozen=True)
class JobRun:
    """The latest attempt at one step of an operation.

    Attributes:
        silent_ms: Time since its last heartbeat when it was read, by the database's clock.
    """

    operation_id: str
    step: str
    attempt: int
    state: JobState
    heartbeat_at_ms: int
    silent_ms: int = field(compare=False)
    result: Mapping[str, Any]
    error_class: str | None
    error_message: str | None
    log_path: str | None
    host: str | None

    @property
    def is_alive(self) -> bool:
        """Say whether the attempt has neither ended nor been given up, as far as the catalog knows."""
        return self.state in ALIVE
