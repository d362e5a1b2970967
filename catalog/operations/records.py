"""Operations and jobs as recorded in the journal, with their states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

LEASE_MS = 15 * 60 * 1000
"""An unfinished operation without a heartbeat for this time no longer holds its table."""

SILENT_LEASE_MS = 24 * 60 * 60 * 1000
"""The same for an attempt that never sent a heartbeat, as one in its caller's own process may not."""

ABANDONED = "ABANDONED"
"""Failure code of an abandoned operation, which had no heartbeat."""

DRY_RUN = "DRY_RUN"
"""Failure code of an operation that only looked at files."""


APPLICATION_LOCK = "application"
"""The lock of an application, in the folder of its first job; the job's own lock is another name of the same file."""

APPLICATION_LOG = "application.log"
"""The output of an application, in the folder of its first job; until this job ends, its log is the same file."""


class OperationKind(StrEnum):
    """The kinds of operations."""

    ADD_PARTITIONS = "add_partitions"
    BUILD_INDEX = "build_index"
    VERIFY_INDEX = "verify_index"
    LOAD_ROWS = "load_rows"
    REBALANCE = "rebalance"
    ROLL_BACK = "roll_back"
    APPEND_ROWS = "append_rows"
    CHANGE_ROWS = "change_rows"
    REPAIR_TABLE = "repair_table"
    SETTLE_VERSIONS = "settle_versions"
    MOVE_FOLDERS = "move_folders"
    DROP_TABLE = "drop_table"
    DROP_PARTITIONS = "drop_partitions"
    RELEASE_PARTITIONS = "release_partitions"
    COUNT_VALUES = "count_values"
    COMPACT_PARTITIONS = "compact_partitions"
    PROPOSE_CHANGES = "propose_changes"
    RUN_STATEMENT = "run_statement"
    IMPORT_TABLE = "import_table"
    MIGRATE = "migrate"
    REVERT = "revert"
    SNAPSHOT = "snapshot"
    ADD_FILES = "add_files"
    MAINTAIN_ICEBERG = "maintain_iceberg"


class OperationState(StrEnum):
    """The states of an operation."""

    PLANNED = "PLANNED"
    RUNNING = "RUNNING"
    COMMITTED = "COMMITTED"
    CLEANED = "CLEANED"
    FAILED = "FAILED"

    @property
    def label(self) -> str:
        """The state for people, for whom a committed operation has succeeded, whatever is left for it to remove."""
        return "SUCCEEDED" if self in FINISHED else self.value

    @property
    def same_for_people(self) -> tuple[OperationState, ...]:
        """The states with the same label."""
        return tuple(state for state in OperationState if state.label == self.label)


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
    """The states of the latest attempt at a step."""

    SUBMITTED = "SUBMITTED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


ALIVE = (JobState.SUBMITTED, JobState.RUNNING)


@dataclass(frozen=True)
class Operation:
    """One journaled change of the catalog and its files.

    Attributes:
        number: A short identifier; unique in the catalog and never reused.
        table: Current name of its table; the name when it started, if the table was not created or was dropped.
        folder: A name that is unique across operations and catalogs; the names of its folders start with it.
        table_id: The identity of the table; None until the table exists.
        table_exists: Whether the table exists now; false for Iceberg tables that engines made, which have no identity
            here.
        report: The results of its steps, by step.
        heartbeat_at_ms: Time of the last heartbeat.
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
    table_exists: bool = True

    @property
    def is_committed(self) -> bool:
        """Return whether its change is in the catalog, so that no step before the commit has work left."""
        return self.state in FINISHED


@dataclass(frozen=True)
class JobRun:
    """The latest attempt at one step of an operation.

    Attributes:
        heartbeat_at_ms: Time of its last heartbeat; of its end, if it succeeded.
        silent_ms: Time since its last heartbeat when it was read, by the database's clock.
        started_at_ms: Time at which the attempt was submitted; None for attempts of earlier versions.
        spark_application: Spark's id of the application that runs it; None without Spark, or before it runs.
        spark_ui: The address of the application's own page, while it runs; None if it has none.
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
    started_at_ms: int | None = None
    spark_application: str | None = None
    spark_ui: str | None = None

    @property
    def is_alive(self) -> bool:
        """Return whether the attempt is submitted or running, as far as the catalog knows."""
        return self.state in ALIVE

    def spark_page(self, history: str | None) -> str | None:
        """Return the address of its Spark application: that of a history server, otherwise its own while it runs.

        Args:
            history: The address of the history server; None if there is none.
        """
        if history and self.spark_application:
            return f"{history}/history/{self.spark_application}"
        return self.spark_ui if self.is_alive else None


@dataclass(frozen=True)
class JobKey:
    """One attempt at a step of an operation, and the script that it runs, without `.py`."""

    operation_id: str
    step: str
    attempt: int
    script: str


@dataclass(frozen=True)
class SparkApplication:
    """An application that accepts jobs.

    Attributes:
        id: A random name, never used twice.
        log_path: The log of its first job, on its host.
        job: The job that it runs or is to run; None if it is idle.
    """

    id: str
    log_path: str
    job: JobKey | None
