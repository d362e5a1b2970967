"""Equality deletes, which Spark reads and does not write, as Flink writes them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def delete_equal(
    session: SparkSession, table: str, column: str, values: Sequence[Any], partition: Mapping[str, Any] | None = None
) -> None:
    """Commit a delete of the rows with one of the values in a column, by Iceberg's own writer.

    Args:
        table: The table, with the name of its catalog in the session.
        partition: The partition that it concerns, by its fields; None in a table without partition fields.
    """
    jvm: Any = session._jvm
    iceberg = jvm.org.apache.iceberg
    # The name is looked up among the catalogs of the active session.
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
    loaded = iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, table)  # type: ignore[attr-defined]
    ids = session.sparkContext._gateway.new_array(jvm.int, 1)  # type: ignore[union-attr]
    ids[0] = loaded.schema().findField(column).fieldId()
    schema = loaded.schema().select(jvm.java.util.List.of(column))
    parquet = iceberg.FileFormat.PARQUET
    builder = getattr(iceberg.data, "GenericFileWriterFactory$Builder")(loaded).deleteFileFormat(parquet)
    writers = builder.equalityFieldIds(ids).equalityDeleteRowSchema(schema).build()
    factory = iceberg.io.OutputFileFactory.builderFor(loaded, 1, 1).operationId(str(uuid.uuid4()))
    files, spec, key = factory.format(parquet).build(), loaded.spec(), None
    if partition is not None:
        key = iceberg.data.GenericRecord.create(spec.partitionType())
        for name, value in partition.items():
            key.setField(name, value)
    file = files.newOutputFile() if key is None else files.newOutputFile(spec, key)
    writer = writers.newEqualityDeleteWriter(file, spec, key)
    for value in values:
        record = iceberg.data.GenericRecord.create(schema)
        record.setField(column, value)
        writer.write(record)
    writer.close()
    loaded.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
