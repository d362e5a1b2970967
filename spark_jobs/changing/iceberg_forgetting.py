"""Deletion of rows for good from Iceberg tables whose snapshots the catalog does not record, such as migrated ones.

    delete    the files with such rows get new ones in one snapshot, without delete files
    remove    at once: all former snapshots, and the files that only they have, also manifests with bounds of columns
    prove     the rows of the current snapshot are searched; all other files that the snapshots or the table's folder
              have are left, since they may have such rows

The removal can be repeated: data files are deleted before the manifests that name them, and these before their lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Table
from catalog.errors import UnsupportedChangeError
from catalog.files.filesystem import Folder, in_parallel, is_hidden
from catalog.files.locations import comparable
from catalog.iceberg.live_columns import with_live_columns
from catalog.iceberg.metadata import read_metadata
from catalog.iceberg.places import HIDDEN_METADATA, METADATA
from catalog.iceberg.reachability import Reachability
from catalog.maintenance.iceberg_upkeep import sharing_tables
from catalog.operations.failpoints import Point, reached
from catalog.operations.records import Operation, OperationKind, OperationState
from catalog.settings.load_keys import RANDOM_FUNCTIONS
from spark_jobs.changing import iceberg_changes
from spark_jobs.changing.changed_rows import check_alone
from spark_jobs.changing.literals import check_literals
from spark_jobs.changing.private_tables import PRIVATE, PrivateTable, private_table
from spark_jobs.queries.query import as_parameters
from spark_jobs.reading.iceberg import read_iceberg, read_metadata_file, require_allowed_files
from spark_jobs.reading.paths import quoted, quoted_table
from spark_jobs.sessions.java_classes import java_class
from spark_jobs.sessions.session import attempt_here

FORGET = "forget"
"""The step of the removal and the proof, in the operation of the deletion."""

SEARCH = "search"
"""The step of the operation that reserves the table meanwhile."""

_EXPIRE = "expire"
_FILE = "calve/file"
_MOST_EARLIER = 1_000
_MANIFEST_SIZE = "commit.manifest.target-size-bytes"
_SHOWN = 5


def forget_in_iceberg(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    name: str,
    where: str,
    *,
    at_once: bool,
    requested_by: str | None,
) -> dict[str, Any]:
    """Delete the rows of an Iceberg table that meet a condition for good; see `forget_rows`.

    Raises:
        UnsupportedChangeError: The table shares files with another table, or the condition reads another table.
        LiteralTypeError: As for `delete_rows`.
        OperationConflictError: As for `forget_rows`.
        PlanConflictError: Another engine commits to the table meanwhile; the call can be repeated.
    """
    check_alone(spark, where, without=RANDOM_FUNCTIONS)
    table = catalog.get_table(name)
    check_literals(spark, with_live_columns(table), where)
    with catalog.storage.read() as connection:
        sharing = sharing_tables(connection, table, catalog.list_tables())
    if sharing:
        raise UnsupportedChangeError(
            f"table {table.full_name} shares files with {', '.join(sharing)}, which may have the same rows; drop the "
            "snapshot of the two, or delete the rows there by DELETE, and expire the snapshots"
        )
    request = {"change": FORGET, "where": where}
    kind = OperationKind.CHANGE_ROWS
    operation = catalog.operations.begin(
        operation_id, kind, table.full_name, request, is_exclusive=True, requested_by=requested_by
    )
    deletion = iceberg_changes.delete(spark, catalog, operation, where, for_good=True)
    operation = catalog.operations.get(operation_id)
    if FORGET in operation.report:
        return dict(operation.report[FORGET])
    with attempt_here(catalog, operation, FORGET) as attempt:
        # A revert needs the files that are removed.
        search = begin_search(catalog, operation)
        with attempt_here(catalog, search, SEARCH) as search_attempt:
            deleted = _without_former(spark, catalog, operation) if at_once else 0
            searched, left = _proof(spark, catalog, catalog.get_table(name), where)
            holders = [(reason, files) for reason, files in left if files]
            report = {
                "rows_deleted": deletion["rows"],
                "partitions_changed": deletion["partitions_changed"],
                "files_deleted": deleted,
                "files_searched": searched,
                "files_left": sum(len(files) for _, files in holders),
                "rows_left": sum(sum(files.values()) for _, files in holders),
                "left": [[reason, len(files), sorted(files)[:_SHOWN]] for reason, files in holders],
                "problems": [],
            }
            finish_search(catalog, (operation, attempt), (search, search_attempt), report)
    return report


def begin_search(catalog: Catalog, operation: Operation) -> Operation:
    """Reserve the table of a deletion, which has ended, for the removal and the search of files.

    Raises:
        OperationConflictError: Another operation works on the table.
    """
    return catalog.operations.begin(
        search_id(operation.id),
        OperationKind.CHANGE_ROWS,
        operation.table,
        {"change": SEARCH},
        is_exclusive=True,
        requested_by=operation.requested_by,
    )


def search_id(operation_id: str) -> str:
    """Return the id of the operation that reserves the table of a deletion while its files are searched."""
    return f"{operation_id}-search"


def finish_search(
    catalog: Catalog, deletion: tuple[Operation, int], search: tuple[Operation, int], report: Mapping[str, Any]
) -> None:
    """Record the report of a deletion, and end its search, in one transaction.

    Args:
        deletion, search: Each operation, and the number of its attempt.
    """
    with catalog.storage.write() as connection:
        catalog.operations.finish_job(deletion[0].id, FORGET, deletion[1], report, connection=connection)
        catalog.operations.finish_job(search[0].id, SEARCH, search[1], {}, connection=connection)
        for state in (OperationState.COMMITTED, OperationState.CLEANED):
            catalog.operations.advance(connection, search[0].id, state)
        reached(Point.CHANGED)


def _without_former(spark: SparkSession, catalog: Catalog, operation: Operation) -> int:
    """Expire all former snapshots, and delete the files that only they have; return the number of files."""
    if _EXPIRE not in operation.report:
        with attempt_here(catalog, operation, _EXPIRE) as attempt:
            table = catalog.get_table(operation.table)
            with private_table(spark, catalog, table) as target:
                _rewrite_manifests(spark, target)
                expiry = target.java.expireSnapshots().retainLast(1).cleanExpiredFiles(False)
                expiry.expireOlderThan(_now(spark)).commit()
                report = {"before": table.metadata_location}
                catalog.committer.commit_metadata(operation.id, _EXPIRE, attempt, table, target.location, report)
        operation = catalog.operations.get(operation.id)
    # A deletion that was interrupted after its expiry has left files that no snapshot names.
    former = (
        other.report[_EXPIRE]["before"]
        for other in catalog.operations.list(operation.table, limit=_MOST_EARLIER)
        if _EXPIRE in other.report and FORGET not in other.report
    )
    return sum(
        _remove(spark, catalog, catalog.get_table(operation.table), before) for before in former if _exists(before)
    )


def _remove(spark: SparkSession, catalog: Catalog, table: Table, before: str) -> int:
    """Delete the files that snapshots of former metadata have, and the current one does not; return their number."""
    after = str(table.metadata_location)
    for location in (before, after):
        require_allowed_files(spark, catalog, table, location, "all_files")
    lists, manifests = _lists(read_metadata(before)) - _lists(read_metadata(after)), set[str]()
    count = 0
    if all(in_parallel(_exists, lists)):
        manifests = _paths(spark, before, "all_manifests", "path") - _paths(spark, after, "all_manifests", "path")
        if all(in_parallel(_exists, manifests)):
            data = _paths(spark, before, "all_files", "file_path") - _paths(spark, after, "all_files", "file_path")
            reachability = Reachability(catalog.storage)
            count = _delete(data - set(reachability.reached(data, besides=(table.full_name,))))
            reached(Point.FILES_DELETED)
    return count + _delete(manifests) + _delete(lists)


def _rewrite_manifests(spark: SparkSession, target: PrivateTable) -> None:
    """Write the current manifests again: they name the removed files, with bounds of columns, until then."""
    snapshot = target.java.currentSnapshot()
    if snapshot is None:
        return
    manifests = snapshot.allManifests(target.java.io())
    before = target.java.properties().get(_MANIFEST_SIZE)
    is_single = manifests.size() == 1
    if is_single:
        # Iceberg leaves a single manifest as it is, unless it has more than the target size.
        half = manifests.get(0).length() // 2 + 1
        target.java.updateProperties().set(_MANIFEST_SIZE, str(half)).commit()
    spark.sql(f"CALL {PRIVATE}.system.rewrite_manifests(table => '{target.sql_name}')")
    if is_single:
        properties = target.java.updateProperties()
        (properties.remove(_MANIFEST_SIZE) if before is None else properties.set(_MANIFEST_SIZE, before)).commit()


def _proof(
    spark: SparkSession, catalog: Catalog, table: Table, where: str
) -> tuple[int, list[tuple[str, dict[str, int]]]]:
    """Return the number of data files that were searched, and the files that have or may have such rows.

    Returns:
        The files by reason, each with the number of rows that were found in it.
    """
    location = str(table.metadata_location)
    require_allowed_files(spark, catalog, table, location, "all_files")
    rows = read_iceberg(spark, catalog, table)
    metadata = read_metadata(location)
    condition, parameters = as_parameters(spark, catalog, where, quoted_table(table))
    given: dict[str, Any] = {**parameters, "calve_rows": rows.select("*", f.col("_file").alias(_FILE))}
    sql = f"SELECT {quoted(_FILE)}, count(*) FROM {{calve_rows}} AS {quoted(table.name)} WHERE (\n{condition}\n)"
    found = {comparable(path): count for path, count in spark.sql(f"{sql} GROUP BY 1", **given).collect()}
    current = read_metadata_file(spark, location, "files")
    data, deletes = (_collected(current.where(kind), "file_path") for kind in ("content = 0", "content <> 0"))
    every = _paths(spark, location, "all_files", "file_path")
    in_folder = {comparable(path) for path in (*_data_files(table), *_manifests_in(table))}
    known = every | _paths(spark, location, "all_manifests", "path") | _lists(metadata)
    return len(data), [
        ("of the table, whose rows arrived meanwhile; run the statement again", found),
        ("of deletes, which may hide such rows; run the statement again", dict.fromkeys(deletes, 0)),
        (_of_former(metadata), dict.fromkeys(every - data - deletes, 0)),
        (
            "that no snapshot has, and that are not searched; remove_orphan_files of the DAG maintain_iceberg deletes "
            "them, as far as a revert does not need them",
            dict.fromkeys(in_folder - known, 0),
        ),
    ]


def _of_former(metadata: TableMetadata) -> str:
    """Return why the files of former snapshots are left: branches and tags keep those that they name."""
    kept = sorted(name for name, ref in metadata.refs.items() if ref.snapshot_id != metadata.current_snapshot_id)
    named, dropped = (f" and of the branches or tags {', '.join(kept)}", "drop these, then ") if kept else ("", "")
    return (
        f"of former snapshots{named}, which may have such rows; {dropped}expire the snapshots by the DAG "
        "maintain_iceberg, or with at_once => true, and run the statement again"
    )


def _data_files(table: Table) -> Iterator[str]:
    """Yield the paths of the files in a table's folder, without Iceberg's metadata."""
    metadata = tuple(f"{table.location}/{folder}/" for folder in (METADATA, HIDDEN_METADATA))
    for info, is_folder in Folder(table.location).entries(recursive=True):
        if not is_folder and not info.path.startswith(metadata) and not is_hidden(info.path.rpartition("/")[2]):
            yield info.path


def _manifests_in(table: Table) -> Iterator[str]:
    """Yield the paths of the manifests and their lists in a table's folder; they have the bounds of columns."""
    for folder in (METADATA, HIDDEN_METADATA):
        for info, is_folder in Folder(f"{table.location}/{folder}").entries(recursive=True):
            if not is_folder and info.path.endswith(".avro"):
                yield info.path


def _paths(spark: SparkSession, location: str, metadata_table: str, column: str) -> set[str]:
    return _collected(read_metadata_file(spark, location, metadata_table), column)


def _collected(frame: DataFrame, column: str) -> set[str]:
    return {comparable(row[0]) for row in frame.select(column).distinct().toLocalIterator()}


def _lists(metadata: TableMetadata) -> set[str]:
    """Return the manifest lists of all snapshots."""
    return {comparable(snapshot.manifest_list) for snapshot in metadata.snapshots}


def _exists(path: str) -> bool:
    return Folder(path).file() is not None


def _delete(paths: Collection[str]) -> int:
    """Delete files; return their number."""

    def delete(path: str) -> None:
        folder, _, name = path.rpartition("/")
        Folder(folder).delete_file(name)

    return sum(1 for _ in in_parallel(delete, sorted(paths)))


def _now(spark: SparkSession) -> int:
    """Return the time after all snapshots so far, in milliseconds."""
    return int(java_class(spark.sparkContext, "java.lang.System").currentTimeMillis()) + 1
