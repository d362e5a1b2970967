"""Iceberg tables as DataFrames by their metadata file, also tables that no catalog shows yet."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Table
from catalog.datafiles.files import DataFile
from catalog.errors import InvalidConfigurationError
from catalog.files.locations import comparable, is_local
from catalog.iceberg.pointers import require_metadata
from catalog.settings.environment import ICEBERG_PACKAGE
from catalog.settings.places import allows_everything, require_files
from catalog.storage.bulk import batched
from spark_jobs.reading.files import read_data_files, table_schema
from spark_jobs.reading.filters import statistics_sql
from spark_jobs.reading.paths import quoted, spark_path

_WITHOUT_ROWS = re.compile(r"(?!position_deletes$)\w+", re.IGNORECASE)
"""Names of metadata tables that are read from metadata only."""


def read_iceberg(spark: SparkSession, catalog: Catalog, table: Table, metadata_table: str | None = None) -> DataFrame:
    """Return the current rows of a table that Iceberg reads, or those of a metadata table.

    Raises:
        LocationNotAllowedError: A file to be read is outside all folders that the settings allow.
        InvalidConfigurationError: The session does not have Iceberg's runtime.
    """
    location = (table.live_location if table.is_published else None) or require_metadata(table)
    require_allowed_files(spark, catalog, table, location, metadata_table)
    return read_metadata_file(spark, location, metadata_table)


def require_allowed_files(
    spark: SparkSession,
    catalog: Catalog,
    table: Table,
    metadata_location: str,
    metadata_table: str | None = None,
) -> None:
    """Check the places of all files that Iceberg opens to read a table, or a metadata table of it.

    Raises:
        LocationNotAllowedError: One is outside all folders that the settings allow.
    """
    from catalog.iceberg.allowed_files import folders_of_files

    if not allows_everything():
        folders = folders_of_files(catalog.storage, table)
        _require_in_folders(spark, table, metadata_location, folders, metadata_table)


def _require_in_folders(
    spark: SparkSession,
    table: Table,
    metadata_location: str,
    folders: Sequence[str],
    metadata_table: str | None = None,
) -> None:
    from catalog.iceberg.allowed_files import require_allowed_metadata

    is_of_all = metadata_table is not None and metadata_table.lower().startswith("all_")
    snapshot_id = require_allowed_metadata(metadata_location, folders, all_snapshots=is_of_all)
    if snapshot_id is None or (metadata_table is not None and _WITHOUT_ROWS.fullmatch(metadata_table)):
        return
    path = f.regexp_replace("file_path", "^file:/+", "/").alias("path")
    files = read_metadata_file(spark, metadata_location, "files").select(path)
    # A path may have line breaks, too.
    of_files = files.select(f.regexp_extract("path", "(?s)^(.*)/", 1).alias("folder")).distinct()
    location = comparable(table.location)
    if not is_local(location):
        # Only folders of local disks may be links.
        is_inside = f.concat("folder", f.lit("/")).startswith(f"{location}/") & ~f.col("folder").rlike(r"/\.\.?(/|\z)")
        of_files = of_files.where(~is_inside)
    changed = f"table {table.full_name}, which another engine has changed:"
    links = list[str]()
    for row in of_files.toLocalIterator():
        require_files([row.folder], folders, f"{changed} folder of a file")
        links += _links_in(row.folder)
    for batch in batched(links):
        linked = files.where(f.col("path").isin(batch))
        require_files([row.path for row in linked.toLocalIterator()], folders, f"{changed} a file")


def _links_in(folder: str) -> Iterator[str]:
    """Yield the paths of the symbolic links in a local folder; none of others."""
    if not is_local(folder):
        return
    try:
        with os.scandir(folder) as entries:
            yield from (f"{folder}/{entry.name}" for entry in entries if entry.is_symlink())
    except OSError:
        # Reading the files says why.
        return


def read_metadata_file(
    spark: SparkSession,
    metadata_location: str,
    metadata_table: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of the current snapshot of the table that a `…metadata.json` file describes.

    The caller has checked the places of its files (`require_allowed_files`), or Calve itself has written the metadata.

    Args:
        metadata_table: `snapshots`, `files` or another metadata table, whose rows to return instead.
        options: Options of Iceberg's reader.

    Raises:
        InvalidConfigurationError: The session does not have Iceberg's runtime.

    Source: Iceberg's `IcebergSource` and `HadoopTables.load`, which accept the path of a metadata file as a table, and
    the name of a metadata table after `#`.
    """
    try:
        path = spark_path(metadata_location)
        if metadata_table or "#" in path:
            # Of a path with such a sign, Iceberg takes what is after the last one as the name of a table or branch.
            path += f"#{metadata_table or 'branch_main'}"
        return spark.read.format("iceberg").options(**(options or {})).load(path)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_NOT_FOUND" and "Failed to find data source" not in str(error):
            raise
        raise InvalidConfigurationError(
            f"{metadata_location} cannot be read, because Spark does not have Iceberg's runtime; add the package "
            f"{ICEBERG_PACKAGE} to `spark.jars.packages`"
        ) from error


def read_live_rows(spark: SparkSession, table: Table, files: Sequence[DataFile]) -> DataFrame:
    """Return the rows of some data files of a table with a partition scheme, without those in delete files.

    Raises:
        VerificationFailedError: A file does not exist.
        InvalidConfigurationError: The table has delete files, and the session does not have Iceberg's runtime.
    """
    if not table.delete_file_count or not files:
        return read_data_files(spark, table, files)
    assert table.published_location is not None
    paths = [f"{table.location}/{file.path}" for file in files]
    rows = read_as_table(spark, table, table.published_location, paths)
    # Iceberg plans files by the bounds of columns, but not by paths.
    scheme = table.scheme
    assert scheme is not None
    bounds = statistics_sql(scheme.column, scheme.value_type, [file.statistics.get(scheme.column) for file in files])
    return rows if bounds is None else rows.where(bounds)


def read_as_table(
    spark: SparkSession,
    table: Table,
    metadata_location: str,
    paths: Sequence[str] | None = None,
    *,
    path_column: str | None = None,
) -> DataFrame:
    """Return the rows of a published table as Iceberg reads them, with the columns of the catalog.

    Columns are found by their ids, in case other engines have renamed them. A column that they have dropped is null;
    one whose type they have changed has the new type.

    Args:
        paths: The complete paths of the data files to read; None for all.
        path_column: The name of a further column with the path of each row's file; None for no such column.

    Raises:
        InvalidConfigurationError: The session does not have Iceberg's runtime.
        LocationNotAllowedError: Another engine has committed files outside the folders that the settings allow.
    """
    from catalog.datafiles.publishing import published_layout
    from catalog.iceberg.metadata import read_metadata

    own = {field.field_id: field for field in published_layout(table).schema.fields}
    live = {field.field_id: field for field in read_metadata(metadata_location).schema().fields}
    types = {field.name: field.dataType for field in table_schema(table)}
    if not allows_everything():
        _require_in_folders(spark, table, metadata_location, [table.location])
    rows = read_metadata_file(spark, metadata_location)
    if paths is not None:
        rows = rows.where(f.col("_file").isin(list(paths)))
    columns = []
    for column in table.columns:
        field = live.get(column.id)
        value = f.lit(None) if field is None else f.col(quoted(field.name))
        is_same = field is None or field.field_type == own[column.id].field_type
        columns.append((value.cast(types[column.name]) if is_same else value).alias(column.name))
    return rows.select(*columns, *([] if path_column is None else [f.col("_file").alias(path_column)]))
