"""The partitions that a change of rows concerns, and their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Partition, Table
from catalog.errors import ConflictError, InvalidRowsError, PlanConflictError
from catalog.model.partition_names import partition_path
from catalog.partitions.snapshots import PartitionFiles
from catalog.storage.values import ValueEncoder
from spark_jobs.reading.files import empty_table, read_data_files, read_partitions
from spark_jobs.reading.paths import quoted
from spark_jobs.reading.tables import prune_files
from spark_jobs.rows.char_columns import with_padded_chars
from spark_jobs.rows.key_spellings import without_null_texts


def identities_of_rows(table: Table, rows: DataFrame) -> dict[bytes, tuple[str | None, ...]]:
    """Return the partitions that rows belong to: identity → values.

    Args:
        rows: The partition keys, with their types.
    """
    encoder = ValueEncoder(table)
    texts = rows.select(*[without_null_texts(f.col(quoted(key)).cast("string")) for key in table.key_names]).distinct()
    return {encoder.identity(tuple(row)): tuple(row) for row in texts.toLocalIterator()}


def partitions_among(
    catalog: Catalog, table: Table, identities: Mapping[bytes, tuple[str | None, ...]], where: str | None = None
) -> list[Partition]:
    """Return the existing partitions with some identities.

    Args:
        identities: As `identities_of_rows` returns them.
        where: A filter that all of them meet; None to look at all partitions.

    Raises:
        ConflictError: One of them is quarantined, so its rows cannot be read with the others.
    """
    encoder, partitions = ValueEncoder(table), catalog.get_partitions(table.full_name, where)
    known = {encoder.identity(partition.values): partition for partition in partitions}
    visible = {identity: known[identity] for identity in identities if identity in known}
    missing = [values for identity, values in identities.items() if identity not in visible]
    if missing and (hidden := catalog.batch_get_partitions(table.full_name, missing).partitions):
        raise ConflictError(
            f"partition {partition_path(table.key_names, hidden[0].values)} of {table.full_name} is quarantined until "
            "its quality is checked, and gets rows; nothing was changed. Release or drop it first"
        )
    return list(visible.values())


def refuse_missing(
    table: Table, identities: Mapping[bytes, tuple[str | None, ...]], partitions: Sequence[Partition]
) -> None:
    """Refuse a change of rows of which some are in partitions that the catalog does not have.

    Args:
        identities: The partitions of the rows, as `identities_of_rows` returns them.
        partitions: Those that the catalog has.

    Raises:
        PlanConflictError: Others have dropped or renamed one since its rows were read.
        InvalidRowsError: A value of theirs is not of its key's type, as those of earlier versions may be.
    """
    encoder = ValueEncoder(table)
    found = {encoder.identity(partition.values) for partition in partitions}
    missing = [values for identity, values in identities.items() if identity not in found]
    # A value that is not of its key's type is read as null.
    gone = [values for values in missing if table.is_stored_as_iceberg or None not in values]
    if gone:
        raise PlanConflictError(
            f"partition {partition_path(table.key_names, gone[0])} of {table.full_name} was dropped or renamed while a "
            "statement read it; nothing was changed. Run the statement again"
        )
    if missing:
        raise InvalidRowsError(
            f"table {table.full_name}: {len(missing):,} partition(s) with such rows have a value that is not of its "
            "key's type, so they cannot be found by it; drop or rename them first"
        )


def current_files(catalog: Catalog, table: Table) -> tuple[Table, PartitionFiles | None]:
    """Return the files of a table stored as Iceberg, of one state of which a change reads; None for other tables.

    Args:
        table: As `spark_jobs.writing.value_loading.publish_rows` gives it.

    Returns:
        The table in this state, whose columns other engines may have changed since it was read; and the files.
    """
    if not table.is_stored_as_iceberg:
        return table, None
    state = catalog.scan_partition_files(table.full_name)
    return state.table, state


def rows_of(
    spark: SparkSession, catalog: Catalog, table: Table, partitions: Sequence[Partition], state: PartitionFiles | None
) -> DataFrame:
    """Return all rows of partitions, without those that other engines have deleted.

    Args:
        state: The state that `current_files` has returned.
    """
    if not partitions:
        return empty_table(spark, table)
    if state is None:
        inside = catalog.folders_inside(table, partitions)
        return with_padded_chars(read_partitions(spark, table, partitions, inside=inside), table)
    ids = {partition.id for partition in partitions}
    if state.table.engine_location is None:
        files = [file for file in state.files if file.partition_id in ids]
        return with_padded_chars(read_data_files(spark, state.table.in_files, files), table)
    keys = [quoted(key) for key in table.key_names]
    schema = ", ".join(f"{key} string" for key in keys)
    wanted = spark.createDataFrame([partition.values for partition in partitions], schema)
    rows = prune_files(spark, state).frame
    same = [rows[key].eqNullSafe(wanted[key].cast(rows.schema[key.strip("`")].dataType)) for key in keys]
    return rows.join(f.broadcast(wanted), same, "left_semi")
