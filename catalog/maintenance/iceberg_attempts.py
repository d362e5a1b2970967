"""Deleting the metadata of Iceberg tables that did not come to be, or that are Hive tables again.

A migration's stage writes into the folder of its attempt (`catalog.migration.staging`), and a metadata file beside it.
The folder is judged by its operation:

| the operation | the attempt that was committed | other attempts |
| --- | --- | --- |
| COMMITTED, CLEANED | stays while an Iceberg table has it; goes when the table is a Hive table again | go |
| FAILED | | go: a retry writes into another one |
| at work | | go if their attempt has failed |
| not known, or older than the table | stays: somebody else left it there | stays |

Of a folder that stays, the metadata go that no Iceberg table has: of appends that were killed, or that another commit
came before. Nothing goes that is younger than the grace period. Only these folders are looked into and only metadata
is in them: no data file is ever touched, and neither is what engines have written beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, select

from catalog.files import FileInfo, Folder
from catalog.iceberg.pointers import pointer_locations
from catalog.maintenance.judging import Verdict, Writer, created_at_ms, judge, read_writers
from catalog.maintenance.reports import TableVacuum, Tally
from catalog.migration.staging import attempt_metadata, attempt_names, forget_staged
from catalog.model import Table
from catalog.operations import FINISHED, OperationKind
from catalog.purging import comparable, is_within
from catalog.storage import Storage
from catalog.storage.schema import OperationRow

_METADATA = (".avro", ".metadata.json")
_KINDS = (OperationKind.SNAPSHOT, OperationKind.ADD_FILES)


@dataclass(frozen=True)
class _Attempt:
    """The folder of an attempt, below a location."""

    location: str
    name: str
    number: int
    attempt: int


def metadata_locations(connection: Connection, table: Table) -> set[str]:
    """Return where migrations of a table have written metadata: its own location, and those of their targets."""
    query = select(OperationRow.request).where(OperationRow.table_id == table.id, OperationRow.kind.in_(_KINDS))
    return {table.location, *(location for request in connection.scalars(query) if (location := request["location"]))}


def operation_numbers(location: Folder) -> set[int]:
    """Return the migrations that have the folder of an attempt below a location."""
    return {number for _, number, _ in attempt_names(location)}


def delete_old_metadata(storage: Storage, table: Table, cutoff_ms: int, tally: Tally, *, is_dry_run: bool) -> None:
    """Delete what migrations of a table, or into it, have written, and what no Iceberg table has.

    Args:
        cutoff_ms: What was written, or worked on, since stays.

    Raises:
        OSError, ValueError: The file system refuses.
    """
    with storage.read() as connection:
        locations = metadata_locations(connection, table)
    for location in sorted(locations):
        folder = Folder(location)
        attempts = [_Attempt(location, *each) for each in attempt_names(folder)]
        for attempt in attempts:
            _delete(storage, table, folder, attempt, cutoff_ms, tally, is_dry_run)


def _delete(
    storage: Storage,
    table: Table,
    folder: Folder,
    attempt: _Attempt,
    cutoff_ms: int,
    tally: Tally,
    is_dry_run: bool,
) -> None:
    files = folder.all_files(attempt.name)
    first = folder.file_info(attempt_metadata(attempt.location, attempt.name))
    gone = [*files, *([] if first is None else [first])]
    if any(file.modified_at_ms > cutoff_ms for file in gone):
        return
    with storage.read() as connection:
        verdict, unknown = _judged(connection, table, attempt, files, cutoff_ms)
    if verdict is Verdict.KEEP or (verdict is Verdict.SWEEP and not unknown):
        return
    if verdict is Verdict.SWEEP:
        # No commit can come to have them: it has what was there when it began, and what it writes itself.
        gone = unknown
        if not is_dry_run:
            for each in unknown:
                folder.delete_file(each.path)
    elif not is_dry_run:
        with storage.write() as connection:
            if _judged(connection, table, attempt, files, cutoff_ms, hold=True)[0] is not Verdict.DELETE:
                return
            # Without the list of what was staged nobody can commit it any more, should the operation go on.
            forget_staged(folder, attempt.name)
        if first is not None:
            folder.delete_file(attempt_metadata(attempt.location, attempt.name))
        folder.delete(attempt.name)
    size = sum(file.size_bytes for file in gone)
    tally.add(TableVacuum(table.full_name, orphan_files=len(gone), orphan_bytes=size))


def _judged(
    connection: Connection,
    table: Table,
    attempt: _Attempt,
    files: Iterable[FileInfo],
    cutoff_ms: int,
    *,
    hold: bool = False,
) -> tuple[Verdict, list[FileInfo]]:
    """Return what becomes of an attempt's folder, and the metadata among its files that no Iceberg table has."""
    writer = read_writers(connection, {attempt.number}, hold=hold).get(attempt.number)
    metadata = {comparable(f"{attempt.location}/{each.path}"): each for each in files if each.path.endswith(_METADATA)}
    unknown = dict(metadata)
    for path in _known_files(connection, attempt, writer):
        unknown.pop(path, None)
        if not unknown:
            break
    verdict = judge(
        attempt.attempt,
        writer,
        has_known_files=len(unknown) < len(metadata),
        table_created_at_ms=_since(connection, table, attempt),
        cutoff_ms=cutoff_ms,
    )
    return verdict, list(unknown.values())


def _since(connection: Connection, table: Table, attempt: _Attempt) -> int:
    # A target was created by the operation itself, or has nothing to do with when the table was created.
    return created_at_ms(connection, table) if attempt.location == table.location and not table.is_iceberg else 0


def _known_files(connection: Connection, attempt: _Attempt, writer: Writer | None) -> Iterator[str]:
    """Yield the metadata of the Iceberg tables that may have an attempt's, by their comparable paths."""
    if writer is None or writer.state not in FINISHED:
        return
    report = connection.scalar(select(OperationRow.report).where(OperationRow.number == attempt.number)) or {}
    if report.get("stage", {}).get("folder") != attempt.name:
        return
    here = comparable(attempt.location)
    for pointer in pointer_locations(connection).values():
        if is_within(comparable(pointer), here):
            yield from map(comparable, _files_of(pointer))


def _files_of(pointer: str) -> Iterable[str]:
    # Imported late: only few tables are looked into so far.
    from catalog.iceberg.metadata import metadata_files

    return metadata_files(pointer)
