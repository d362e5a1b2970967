"""Loads in the caller's process: the steps of the DAG `add_partitions`, one after another, in the same journal.

A load that an error ends before its commit is failed, and the next load of the table undoes it, as after a failed run
of the DAG; a table that it has created is dropped. One that was killed, or that was committed and not checked, is
continued by the next load of the table on the same host; steps that it has finished are not repeated.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from catalog.catalog import Catalog
from catalog.errors import CatalogError, CatalogUnavailableError, NotFoundError
from catalog.loading.registering import VALIDATE, WRITE, register
from catalog.model import IndexState, LoadMode
from catalog.model.identifiers import DEFAULT_DATABASE, normalise_identifier
from catalog.operations.job_requests import CREATED_TABLE, CheckQualityJob
from catalog.operations.local_locks import LocalLock
from catalog.operations.records import UNFINISHED, JobState, Operation, OperationKind, OperationState
from catalog.settings.table_config import TableConfig
from catalog.statements.context import Context
from catalog.statements.engine import Engine, start_engine
from catalog.statements.execution.indexes import build_index

log = logging.getLogger(__name__)

_PREFIX = "load__"
_REGISTER, _CHECK = "register", CheckQualityJob.script


@dataclass(frozen=True)
class LoadReport:
    """The reports of the steps of a load; that of a step that was not needed is empty.

    Attributes:
        operation_id: The load; None if there is nothing to load.
        file_count: Number of new files.
        is_continued: An earlier process began the load.
        indexes: The partition indexes that were built, with their states.
        quarantined: Number of new partitions that failed their check, and are hidden.
    """

    table: str
    operation_id: str | None = None
    file_count: int = 0
    is_dry_run: bool = False
    is_continued: bool = False
    validated: Mapping[str, Any] = field(default_factory=dict)
    registered: Mapping[str, Any] = field(default_factory=dict)
    indexes: Mapping[str, str] = field(default_factory=dict)
    checked: Mapping[str, Any] = field(default_factory=dict)
    rules: Mapping[str, Any] = field(default_factory=dict)
    quarantined: int = 0


class TableLoads:
    """Loads files into tables; not thread-safe."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        start: Callable[[Catalog], Engine] = start_engine,
        requested_by: str | None = None,
        on_step: Callable[[str], object] = lambda step: None,
    ) -> None:
        """Use a catalog.

        Args:
            start: Starts the engine if there are files to load.
            requested_by: The requester, for the journal of operations.
            on_step: Called with the name of each step before it runs.
        """
        self._catalog = catalog
        self._context = Context(catalog, DEFAULT_DATABASE, start, requested_by, None)
        self._requested_by = requested_by
        self._on_step = on_step

    def close(self) -> None:
        """Stop the engine, if it was started; the catalog stays open."""
        self._context.close()

    def load(
        self, config: TableConfig, sources: Sequence[str], *, reload: bool = False, dry_run: bool = False
    ) -> Iterator[LoadReport]:
        """Load the new files of sources; yield the report, after those of loads of the table that were killed.

        Args:
            sources: Files, folders or globs.
            reload: Include files that were loaded before.
            dry_run: Only check the files.

        Raises:
            CatalogError: As the steps of the DAG.
        """
        settings = config.load_settings(dry_run=dry_run)
        request = {"source": list(sources), "reload": reload, "dry_run": dry_run, "settings": settings}
        continued = None
        for left in [] if dry_run else self._left(config.table):
            completed = None
            with LocalLock(self._catalog.storage, left) as lock:
                operation = self._catalog.operations.get(left)
                if operation.is_committed and not self._has_table(operation):
                    lock.discard()
                elif operation.is_committed:
                    # By the present rules: those of then may name a column that the table does not have.
                    completed = self._completed(operation, lock, settings["quality"])
                elif operation.state in UNFINISHED and _is_same(operation.request, request):
                    continued = left
                else:
                    reason = "its process was killed, and another load of the table began"
                    self._catalog.operations.fail(left, "REPLACED", reason)
                    lock.discard()
            if completed is not None:
                yield completed
        operation_id = continued or f"{_PREFIX}{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}__{uuid4().hex[:12]}"
        with LocalLock(self._catalog.storage, operation_id) as lock:
            try:
                with self._catalog.operations.failing(operation_id):
                    report = self._loaded(config, request, operation_id, lock, is_continued=continued is not None)
            except BaseException:
                with suppress(CatalogUnavailableError):
                    self._clean_up(operation_id, lock)
                raise
        yield report

    def _left(self, table: str) -> list[str]:
        """Return the loads of a table whose processes on this host were killed, oldest first."""
        operations = self._catalog.operations.list(table)
        return [
            operation.id
            for operation in reversed(operations)
            if operation.kind is OperationKind.ADD_PARTITIONS
            and operation.id.startswith(_PREFIX)
            and LocalLock(self._catalog.storage, operation.id).is_left
        ]

    def _has_table(self, operation: Operation) -> bool:
        """Return whether the table of a load has not been dropped since."""
        try:
            return self._catalog.get_table(operation.table).id == operation.table_id
        except NotFoundError:
            return False

    def _loaded(
        self, config: TableConfig, request: Mapping[str, Any], operation_id: str, lock: LocalLock, *, is_continued: bool
    ) -> LoadReport:
        files = self._catalog.loading.discover(
            operation_id,
            config.table,
            request["source"],
            reload=request["reload"],
            mode=LoadMode(config.mode) if config.mode else None,
            is_dry_run=request["dry_run"],
            settings=request["settings"],
            requested_by=self._requested_by,
        )
        if not files:
            lock.discard()
            return LoadReport(config.table, is_dry_run=request["dry_run"])
        operation = self._catalog.operations.get(operation_id)
        validated = self._step(operation, VALIDATE, request["settings"]["request"])
        if request["dry_run"]:
            lock.discard()
            return LoadReport(config.table, operation_id, len(files), is_dry_run=True, validated=validated)
        self._step(operation, WRITE, request["settings"]["request"])
        return self._completed(operation, lock, request["settings"]["quality"], is_continued=is_continued)

    def _completed(
        self, operation: Operation, lock: LocalLock, quality: Mapping[str, Any], *, is_continued: bool = True
    ) -> LoadReport:
        """Publish a load whose files are written, and do what comes after; repeat nothing that is done.

        Args:
            quality: The request of the check.
        """
        self._on_step(_REGISTER)
        registered = register(self._catalog.loading, self._catalog.operations, operation.id, _REGISTER)
        settings = self._catalog.loading.settings_of(operation.id)
        indexes = self._build_indexes(operation.table, settings["indexes"])
        checked = self._step(operation, _CHECK, quality)
        lock.discard()
        operation = self._catalog.operations.get(operation.id)
        report = operation.report
        return LoadReport(
            operation.table,
            operation.id,
            len(operation.request["files"]),
            is_continued=is_continued,
            validated=report.get(VALIDATE, {}),
            registered=registered,
            indexes=indexes,
            checked=checked,
            rules=quality["rules"],
            quarantined=self._catalog.count_quarantined([operation]).get(operation.id, 0),
        )

    def _step(self, operation: Operation, step: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        job = self._catalog.operations.get_job(operation.id, step)
        if job is not None and job.state is JobState.SUCCEEDED:
            return job.result
        self._on_step(step)
        conf = self._catalog.loading.settings_of(operation.id)["spark"]["conf"]
        return self._context.engine.run_step(operation, step, request, conf)

    def _build_indexes(self, table: str, indexes: Mapping[str, Sequence[str]]) -> dict[str, str]:
        known = {index.name: index for index in self._catalog.get_partition_indexes(table)} if indexes else {}
        states = {}
        for name, keys in indexes.items():
            index = known.get(normalise_identifier(name, "partition index"))
            if index is None or index.state is not IndexState.ACTIVE:
                states[name] = str(build_index(self._context, table, name, keys).state)
        return states

    def _clean_up(self, operation_id: str, lock: LocalLock) -> None:
        """Remove what a failed load has left; one that is committed, or run by another process, is continued later."""
        operation = self._catalog.operations.find(operation_id)
        if operation is None or operation.state is OperationState.FAILED:
            lock.discard()
        if operation is not None and operation.state is OperationState.FAILED:
            self._drop_new_table(operation)

    def _drop_new_table(self, operation: Operation) -> None:
        """Drop the table that a failed load has created, unless others use it: a failed load changes nothing.

        Not done after a failed run of the DAG, which can be cleared and then needs the table.
        """
        if operation.table_id is None or not operation.report.get(VALIDATE, {}).get(CREATED_TABLE):
            return
        try:
            self._catalog.drop_table(operation.table, purge=True, unused_id=operation.table_id)
        except CatalogError as error:
            # Others use it, or it is dropped; the error of the load tells what was wrong.
            log.warning("%s: the table that the load created is left: %s", operation.table, error)


def _is_same(request: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two loads have the same sources and settings; new files in the sources do not matter."""
    return all(
        json.dumps(request.get(name), sort_keys=True) == json.dumps(value, sort_keys=True)
        for name, value in other.items()
    )
