"""The source files of loads: which of them are new, and which a table has loaded or set aside."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from catalog.errors import NotFoundError, OperationReusedError, SourceFileError
from catalog.files.filesystem import FileInfo
from catalog.files.locations import file_spellings
from catalog.loading.schemes import require_scheme_settings
from catalog.loading.set_aside import files_set_aside, not_set_aside, paths_set_aside_by, set_aside
from catalog.model import LoadMode, SetAsideFile, Table
from catalog.model.identifiers import TableName
from catalog.operations.job_requests import SKIP
from catalog.operations.journal import Operations
from catalog.operations.records import Operation, OperationKind
from catalog.settings.places import allowed_files
from catalog.storage import Storage
from catalog.storage.bulk import among, batched
from catalog.storage.schema import SourceFileRow
from catalog.tables.checks import require_keys_of_new, require_loadable
from catalog.tables.definitions import Definitions

log = logging.getLogger(__name__)

STATEMENT_FILES = "source_files"
"""The field of an operation's request with the files of LOAD DATA."""
_SHOWN = 20
_PATHS = 1_000
"""Number of files in one statement, each with the paths under which it may be recorded."""

_Known = dict[str, set[tuple[int, int]]]
"""Path of a loaded file → the sizes and times with which it was loaded."""

Attempt = tuple[str, str, int]
"""An attempt at a step: the operation's id, the step, and the attempt's number."""


class SourceFiles:
    """The source files of the loads of one catalog."""

    def __init__(self, storage: Storage, definitions: Definitions, operations: Operations) -> None:
        """Set the storage, the definitions in it, and the journal."""
        self._storage = storage
        self._definitions = definitions
        self._operations = operations

    def discover(
        self,
        operation_id: str,
        table: str,
        source: str | Sequence[str],
        *,
        reload: bool = False,
        mode: LoadMode | None = None,
        is_dry_run: bool = False,
        settings: Mapping[str, Any] | None = None,
        requested_by: str | None = None,
    ) -> list[FileInfo]:
        """Return the source files to load, and journal the operation unless there are none.

        A retry lists the source again, unless the operation has committed.

        Args:
            source: A file, a folder, or a glob; or several of them.
            reload: Include files that were loaded before, even if they have changed since.
            mode: With REPLACE and MERGE, files that changed after they were loaded are loaded again, and named in the
                log.
            is_dry_run: Do not reserve the table for the operation.
            settings: Settings for the load's later steps (`settings_of`), as JSON values; `request` has the fields of
                `SourceJob`. Files that were set aside with the same ones, and have not changed since, are left out.

        Raises:
            NotATableError, UnsupportedFormatError: The table cannot be loaded.
            InvalidTableError: The table does not exist, and the settings name no partition keys.
            UnsupportedChangeError: The table has a partition scheme, and the settings are not for such a table.
            LocationNotAllowedError: The source lies outside all allowed folders.
            SourceFileError: The source does not exist, or a file changed after it was loaded, and bad files are not
                skipped.
            OperationConflictError: Another operation is running on the table.
            OperationReusedError: The operation id belongs to another load, which has committed.
        """
        known = self._known_table(table)
        if known is not None and known.scheme is not None and settings:
            require_scheme_settings(known, settings)
        sources = [source] if isinstance(source, str) else list(source)
        files = list({file.path: file for part in sources for file in allowed_files(part)}.values())
        changed: list[str] = []
        operation = self._operations.find(operation_id)
        arguments = {"source": source if isinstance(source, str) else sources, "reload": reload, "dry_run": is_dry_run}
        if operation is not None and operation.is_committed:
            _require_same(operation, table, arguments)
            return self.source_files(operation)
        if known is None and settings:
            require_keys_of_new(table, settings["request"]["keys"])
        if known is not None and not reload:
            named = ", ".join(sources)
            read_as = (settings or {}).get("request", {})
            files, changed = self._new_files(known, named, files, mode, sets_aside=read_as.get("bad_files") == SKIP)
            files = self._not_set_aside(known, named, files, read_as)
        if files:
            found = {file.path for file in files}
            request = {
                **arguments,
                "files": [asdict(file) for file in files],
                "changed": [path for path in changed if path in found],
                "settings": dict(settings or {}),
            }
            self._operations.begin(
                operation_id,
                OperationKind.ADD_PARTITIONS,
                table,
                request,
                is_exclusive=not is_dry_run,
                requested_by=requested_by,
            )
        elif operation is not None:
            self._operations.fail(operation_id, "NOTHING_TO_LOAD", f"all files of {', '.join(sources)} are loaded")
        return files

    def new_for_statement(self, table: Table, source: str, files: Sequence[FileInfo]) -> list[FileInfo]:
        """Return the files that a statement LOAD DATA loads: those that the table does not have yet.

        Raises:
            SourceFileError: It has all of them, or one of them changed after it was loaded.
        """
        known = self._known_files(table, files)
        what = f"source {source}: {{:,}} file(s) {{}} loaded into {table.full_name}: {{}}"
        todo = "replaces their partitions, and OPTIONS('RELOAD'='true') adds their rows again"
        if changed := _changed(known, files):
            said = what.format(len(changed), "changed after they were", ", ".join(changed[:_SHOWN]))
            raise SourceFileError(f"{said}. Deliver new rows in new files; LOAD DATA with OVERWRITE {todo}")
        new = [file for file in files if _same_path(file.path) not in known]
        if files and not new:
            said = what.format(len(files), "were already", ", ".join(file.path for file in files[:_SHOWN]))
            raise SourceFileError(f"{said}. LOAD DATA with OVERWRITE {todo}")
        return new

    @staticmethod
    def files_of_statement(operation: Operation) -> list[FileInfo] | None:
        """Return the files that a statement LOAD DATA loads; None for other statements."""
        files = operation.request.get(STATEMENT_FILES)
        return None if files is None else [FileInfo(**fields) for fields in files]

    def settings_of(self, operation_id: str) -> dict[str, Any]:
        """Return the settings that `discover` has journaled with a load."""
        return dict(self._operations.get(operation_id).request.get("settings") or {})

    def needs_packages(self, request: Mapping[str, Any]) -> bool:
        """Return whether a job of a load needs Spark's packages: to read Avro files, or what other engines deleted.

        Args:
            request: With `table`, and `source_format` and `format` if it reads source files.
        """
        if "avro" in (request.get("source_format"), request.get("format")):
            return True
        known = self._known_table(request["table"])
        return known is not None and known.needs_packages

    @staticmethod
    def discovered_files(operation: Operation) -> list[FileInfo]:
        """Return the source files that a load has found, including those that it sets aside."""
        return [FileInfo(**fields) for fields in operation.request["files"]]

    @staticmethod
    def changed_files(operation: Operation) -> list[str]:
        """Return the paths of the source files that a load has found, and sets aside, because they had changed."""
        return list(operation.request.get("changed", ()))

    def source_files(self, operation: Operation, connection: Connection | None = None) -> list[FileInfo]:
        """Return the source files of a load, without those that it has set aside."""
        with nullcontext(connection) if connection is not None else self._storage.read() as own:
            aside = paths_set_aside_by(own, operation)
        return [file for file in self.discovered_files(operation) if file.path not in aside]

    def set_aside(
        self, table: Table, attempt: Attempt, refused: Sequence[SetAsideFile], request: Mapping[str, Any]
    ) -> None:
        """Record which files of a load are set aside; a repeated call replaces what the load recorded before.

        Args:
            refused: The files; the other files of the load are no longer set aside.
            request: The fields of `SourceJob` with which they were read.

        Raises:
            FencedError: The attempt is fenced.
        """
        with self._storage.write() as connection:
            operation = self._operations.guard(connection, *attempt)
            set_aside(connection, table, operation, self.discovered_files(operation), refused, request)

    def set_aside_files(self, table: Table | None) -> list[SetAsideFile]:
        """Return the files that loads of a table, or of all tables, have set aside, by table and path."""
        with self._storage.read() as connection:
            return files_set_aside(connection, table)

    def _note_load(self, connection: Connection, table: Table, operation: Operation) -> None:
        self._note_sources(connection, table, operation, self.source_files(operation, connection))

    def note_statement(self, connection: Connection, table: Table, operation: Operation) -> None:
        """Record the files of a statement LOAD DATA as loaded, in the transaction that makes its rows visible."""
        self._note_sources(connection, table, operation, self.files_of_statement(operation) or ())

    def _known_table(self, name: str) -> Table | None:
        try:
            table = self._definitions.get_hive_table(name)
        except NotFoundError:
            return None
        require_loadable(table)
        return table

    def _new_files(
        self, table: Table, source: str, files: Sequence[FileInfo], mode: LoadMode | None, *, sets_aside: bool
    ) -> tuple[list[FileInfo], list[str]]:
        """Return the files that are not loaded in their present state, and the paths of those to set aside.

        Args:
            sets_aside: Whether bad files are set aside; files that changed after they were loaded are bad, unless the
                mode says what becomes of their former rows.
        """
        known = self._known_files(table, files)
        changed = _changed(known, files)
        again = set(changed)
        new = [file for file in files if file.path in again or _same_path(file.path) not in known]
        what = f"{len(changed):,} file(s) changed after they were loaded into {table.full_name}"
        if changed and mode in (LoadMode.REPLACE, LoadMode.MERGE):
            done = "their partitions are replaced" if mode is LoadMode.REPLACE else "they are merged again"
            log.warning("%s; %s: %s", what, done, ", ".join(changed[:_SHOWN]))
        elif changed and not sets_aside:
            raise SourceFileError(
                f"source {source}: {what}: {', '.join(changed[:_SHOWN])}. Deliver new rows in new files; or drop the "
                "partitions with rows of these files and load them with `reload`; or set `mode` to replace, to replace "
                "their partitions; or set `bad_files` to skip, to load the other files"
            )
        elif changed:
            return new, changed
        return new, []

    def _known_files(self, table: Table, files: Sequence[FileInfo]) -> _Known:
        """Return those of the files that were loaded, by their normalized paths."""
        known: _Known = {}
        with self._storage.read() as connection:
            for batch in batched(files, _PATHS):
                query = select(SourceFileRow.__table__).where(
                    SourceFileRow.table_id == table.id, among(connection, SourceFileRow.path, _spellings(batch))
                )
                for row in connection.execute(query):
                    known.setdefault(_same_path(row.path), set()).add((row.size_bytes, row.modified_at_ms))
        return known

    def _not_set_aside(
        self, table: Table, source: str, files: list[FileInfo], request: Mapping[str, Any]
    ) -> list[FileInfo]:
        to_try = not_set_aside(self._storage, table, files, request)
        if len(to_try) < len(files):
            log.warning(
                "%s: %d file(s) of %s are set aside until they, or the settings to read them, change",
                *(table.full_name, len(files) - len(to_try), source),
            )
        return to_try

    def _note_sources(
        self, connection: Connection, table: Table, operation: Operation, files: Iterable[FileInfo]
    ) -> None:
        for batch in batched(files, _PATHS):
            connection.execute(
                delete(SourceFileRow).where(
                    SourceFileRow.table_id == table.id, among(connection, SourceFileRow.path, _spellings(batch))
                )
            )
            connection.execute(
                insert(SourceFileRow),
                [{"table_id": table.id, "operation_number": operation.number, **asdict(file)} for file in batch],
            )


def _require_same(operation: Operation, table: str, arguments: Mapping[str, Any]) -> None:
    """Check that a load has this table and these arguments."""
    is_same = TableName.parse(table) == TableName.parse(operation.table)
    if not is_same or any(operation.request.get(name) != value for name, value in arguments.items()):
        raise OperationReusedError(operation.id, f"loading {operation.table} from {operation.request.get('source')}")


def _changed(known: _Known, files: Iterable[FileInfo]) -> list[str]:
    """Return the paths of the files that changed after they were loaded."""
    return [
        file.path
        for file in files
        if (versions := known.get(_same_path(file.path))) and (file.size_bytes, file.modified_at_ms) not in versions
    ]


def _same_path(path: str) -> str:
    """Return the normalized spelling of a file's path: a source may be spelled in another way than before."""
    return file_spellings(path)[0]


def _spellings(files: Iterable[FileInfo]) -> list[str]:
    """Return all paths under which files may be recorded."""
    return list({spelling for file in files for spelling in (file.path, *file_spellings(file.path))})
