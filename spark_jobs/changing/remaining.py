"""Search of all files in a table's folders for rows, whether the table still has the files or not.

The files are found by listing folders, and not by asking the catalog: former versions, copies of refused rows, files of
dropped partitions and files that others have put there are searched, too.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, FileFormat, Partition, PartitionState, Table
from catalog.datafiles.history import paths_read_by_id
from catalog.files.filesystem import Folder, is_hidden
from catalog.files.locations import complete_path, is_within
from catalog.iceberg.places import HIDDEN, METADATA
from catalog.model.partition_names import parse_partition_path
from catalog.operations.staging import STAGED_FILES, STAGING
from catalog.storage.bulk import batched
from catalog.tables.own_files import require_no_links_outside
from spark_jobs.changing.changed_rows import IS_HIT, with_hits
from spark_jobs.reading.files import FILE_PATH, read_listed, unreadable_file
from spark_jobs.reading.paths import plain_path, quoted
from spark_jobs.rows.char_columns import with_padded_chars

_EXTENSIONS = {
    ".parquet": FileFormat.PARQUET,
    ".orc": FileFormat.ORC,
    ".avro": FileFormat.AVRO,
    ".csv": FileFormat.CSV,
    ".json": FileFormat.JSONFILE,
}
_FILES_AT_ONCE = 20_000
_MOST_UNREADABLE = 20
"""The maximum number of files among `_FILES_AT_ONCE` that cannot be read: for each, the others are read again."""

Values: TypeAlias = tuple[str | None, ...]


@dataclass
class Holders:
    """The files that have rows which meet a condition.

    Attributes:
        searched: The number of files that were found.
        rows: Path of a file → the number of such rows in it.
        unreadable: The files that Spark cannot read as rows of the table, so that they may have such rows.
    """

    searched: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Group:
    """Files of one format, with the folders that have them; `by_id` as for `read_listed`."""

    format: FileFormat
    by_id: bool
    folders: Sequence[Partition]
    paths: Sequence[str]


def find_holders(spark: SparkSession, catalog: Catalog, table: Table, where: str) -> Holders:
    """Search the files below a table's location, and in the other folders of its partitions.

    Partition keys get the values of the partition that has the folder of a file, or else those that its path tells.
    Columns are found as `read_data_files` finds them, also in files that the table no longer has.

    Args:
        where: A Spark SQL condition on the table's columns.

    Raises:
        VerificationFailedError: A file disappeared during the search.
        LocationNotAllowedError: A symbolic link in a folder, or on the way to it, leads out of the allowed folders.
        PySparkException, Py4JJavaError: More than `_MOST_UNREADABLE` files of a format cannot be read.
        OSError: A folder cannot be listed.
    """
    holders = Holders()
    for group in _groups(catalog, table):
        holders.searched += len(group.paths)
        if group.format.is_readable:
            _search(spark, catalog, table, group, where, holders)
        else:
            holders.unreadable += group.paths
    return holders


def _search(spark: SparkSession, catalog: Catalog, table: Table, group: _Group, where: str, holders: Holders) -> None:
    """Search files of one format, again without each file that cannot be read."""
    own = replace(table.in_files, scheme=None, format=group.format)
    paths, unreadable = dict.fromkeys(group.paths), list[str]()
    require_no_links_outside(own, [folder.location for folder in group.folders] or [own.location])
    while paths:
        rows = with_padded_chars(read_listed(spark, own, group.folders, list(paths), by_id=group.by_id), own)
        try:
            judged = with_hits(spark, catalog, table, rows, where)
            found = judged.where(f.col(quoted(IS_HIT))).groupBy(quoted(FILE_PATH)).count().collect()
        except (PySparkException, Py4JJavaError) as error:
            uri, reason = unreadable_file(error) or ("", "")
            path = plain_path(uri)
            # A file that disappeared is an error, and one whose contents are no rows is not.
            if path not in paths or reason == "FILE_NOT_EXIST" or len(unreadable) == _MOST_UNREADABLE:
                raise
            del paths[path]
            unreadable.append(path)
        else:
            holders.rows |= {plain_path(row[0]): row[1] for row in found}
            break
    holders.unreadable += unreadable


def _groups(catalog: Catalog, table: Table) -> Iterator[_Group]:
    partitions = _partitions(catalog, table)
    values = {location: partition.values for location, partition in partitions.items()}
    if table.partition_keys and not table.has_file_rows:
        values = catalog.folders_of_versions(table.full_name) | values
    with catalog.storage.read() as connection:
        by_id = {complete_path(table.location, path) for path in paths_read_by_id(connection, table)}
    for batch in batched(_data_files(table, values), _FILES_AT_ONCE):
        by_kind: dict[tuple[FileFormat, bool], dict[str, list[str]]] = {}
        for path in batch:
            folder, _, name = path.rpartition("/")
            of_folder = partitions[folder].format if folder in partitions else None
            file_format = _format_of(name) or of_folder or table.format
            by_kind.setdefault((file_format, path in by_id), {}).setdefault(folder, []).append(path)
        for kind, by_folder in by_kind.items():
            folders = [_folder(table, values, folder) for folder in by_folder]
            yield _Group(*kind, folders, [path for paths in by_folder.values() for path in paths])


def _partitions(catalog: Catalog, table: Table) -> dict[str, Partition]:
    """Return the partitions of a Hive-style table by folder."""
    if not table.partition_keys or table.is_stored_as_iceberg:
        return {}
    return {partition.location: partition for partition in catalog.get_partitions(table.full_name, state=None)}


def _folder(table: Table, values_of: Mapping[str, Values], location: str) -> Partition:
    """Return a partition that stands for a folder; of keys that are not known, the value is null."""
    keys = () if table.is_stored_as_iceberg else table.partition_keys
    told = dict(parse_partition_path(location.removeprefix(f"{table.location}/")))
    # The path of a renamed partition has its former values.
    told |= dict(zip((key.name for key in keys), values_of.get(location, ()), strict=False))
    values = tuple(next((told[name] for name in (key.name, *key.stored_names) if name in told), None) for key in keys)
    return Partition(0, values, location, None, None, None, {}, PartitionState.VISIBLE, 0)


def _data_files(table: Table, folders: Iterable[str]) -> Iterator[str]:
    """Yield the paths of all files that may have rows: below the table's location, and directly in other folders."""
    for info, is_folder in Folder(table.location).entries(recursive=True):
        if not is_folder and _may_have_rows(table, info.path):
            yield info.path
    for location in folders:
        if not is_within(location, table.location):
            entries = Folder(location).entries(recursive=False)
            yield from (info.path for info, is_folder in entries if not is_folder and _may_have_rows(table, info.path))


def _may_have_rows(table: Table, path: str) -> bool:
    if is_hidden(posixpath.basename(path)):
        return False
    parts = path.removeprefix(f"{table.location}/").split("/")
    if parts[0] == STAGING and parts[2:3] == [STAGED_FILES]:
        # The list of an attempt's files.
        return False
    is_listed = table.is_stored_as_iceberg or table.scheme is not None
    return parts[0] != HIDDEN and not (is_listed and parts[0] == METADATA)


def _format_of(name: str) -> FileFormat | None:
    stem, extension = posixpath.splitext(name)
    known = _EXTENSIONS.get(extension)
    return known or _EXTENSIONS.get(posixpath.splitext(stem)[1])
