"""Iceberg tables in a catalog that only this session has, where Iceberg's runtime changes them unseen.

A statement runs in Iceberg's `InMemoryCatalog`, which starts at the metadata of the table. Nobody sees what it commits
there, until a transaction of the catalog's database makes the new metadata those of the table: together with the
operation's report, so that a killed statement has changed all or nothing. Files that nothing refers to afterwards are
orphans, as those of any killed writer of Iceberg.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from catalog import Catalog, Table
from catalog.errors import UnsupportedChangeError
from catalog.iceberg.pointers import require_metadata
from spark_jobs.reading.iceberg import require_allowed_files
from spark_jobs.reading.paths import spark_path
from spark_jobs.sessions.java_classes import java_class
from spark_jobs.sessions.packages import require_packages

log = logging.getLogger("spark_jobs.changing.private_tables")

PRIVATE = "calve_private"
"""The name of the session's own catalog."""

_SETTINGS = {
    "": "org.apache.iceberg.spark.SparkCatalog",
    ".catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog",
    # A statement sees what the statement before it has committed.
    ".cache-enabled": "false",
}
_DELETES, _KEEPS, _KEPT = "write.metadata.delete-after-commit.enabled", "write.metadata.previous-versions-max", 20
"""Properties of Iceberg tables, and the least number of versions to keep: more than a statement commits."""
_FILE_IO = "org.apache.iceberg.hadoop.HadoopFileIO"


class PrivateTable:
    """A table in the session's own catalog.

    Attributes:
        sql_name: Its name in statements of Spark.
    """

    def __init__(self, catalog: Any, identifier: Any, sql_name: str) -> None:
        """Use a table of Iceberg's catalog, which is a Java object."""
        self._catalog, self._identifier, self.sql_name = catalog, identifier, sql_name
        self._first = self._snapshot_id()
        self._known = self._snapshot_ids()
        self._start = self.location

    @property
    def java(self) -> Any:
        """The table as Iceberg's Java object, after all commits."""
        return self._catalog.loadTable(self._identifier)

    @property
    def location(self) -> str:
        """The current metadata."""
        return str(self.java.operations().current().metadataFileLocation())

    @property
    def is_changed(self) -> bool:
        """Whether a statement has committed."""
        return self.location != self._start

    def summary(self) -> dict[str, int]:
        """Return the numbers in the summary of the snapshot that a statement has committed; empty without one."""
        if self._snapshot_id() == self._first:
            return {}
        items = dict(self.java.currentSnapshot().summary()).items()
        return {str(name): int(value) for name, value in items if str(value).isdecimal()}

    def discard(self) -> None:
        """Delete the files that were written here, which no other catalog has.

        Not by an expiry of their snapshots: Iceberg would also expire old ones, which the table still has.
        """
        try:
            files = self.java.io()
            for path in sorted(self._own_files(files)):
                files.deleteFile(path)
        except Py4JError as error:
            log.warning("Files of a change that failed are left: %s", error)

    def _own_files(self, files: Any) -> set[str]:
        """Return the paths of the data files, manifests, and lists of manifests that were written here."""
        own = [snapshot for snapshot in self.java.snapshots() if int(snapshot.snapshotId()) not in self._known]
        ids, paths = {int(snapshot.snapshotId()) for snapshot in own}, set[str]()
        for snapshot in own:
            manifests = [manifest for manifest in snapshot.allManifests(files) if int(manifest.snapshotId()) in ids]
            added = (*snapshot.addedDataFiles(files), *snapshot.addedDeleteFiles(files))
            paths |= {str(snapshot.manifestListLocation())}
            paths |= {str(manifest.path()) for manifest in manifests}
            paths |= {str(file.location()) for file in added}
        return paths

    def _snapshot_ids(self) -> set[int]:
        return {int(snapshot.snapshotId()) for snapshot in self.java.snapshots()}

    def _snapshot_id(self) -> int | None:
        snapshot = self.java.currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())


@contextmanager
def private_table(spark: SparkSession, catalog: Catalog, table: Table) -> Iterator[PrivateTable]:
    """Yield an Iceberg table of the catalog as a table that only this session has.

    Raises:
        LocationNotAllowedError: A file of the table is outside all folders that the settings allow.
        InvalidConfigurationError: Spark was started without Iceberg's runtime.
        TableNotFoundError: Another engine has dropped the table.
        UnsupportedChangeError: The table deletes its metadata files so early that commits here could delete the one
            that is current for others.
    """
    require_packages(spark)
    metadata_location = require_metadata(table)
    require_allowed_files(spark, catalog, table, metadata_location)
    private, context = _catalog(spark), spark.sparkContext
    name = f"change_{uuid4().hex}"
    names = context._gateway.new_array(java_class(context, "java.lang.String"), 1)  # type: ignore[union-attr]
    names[0] = name
    namespace = java_class(context, "org.apache.iceberg.catalog.Namespace").of(names)
    identifier = java_class(context, "org.apache.iceberg.catalog.TableIdentifier").of(namespace, "t")
    private.createNamespace(namespace, java_class(context, "java.util.HashMap")())
    try:
        private.registerTable(identifier, spark_path(metadata_location))
        try:
            _require_kept_metadata(table, private.loadTable(identifier).properties())
            yield PrivateTable(private, identifier, f"{PRIVATE}.{name}.t")
        finally:
            # Its files stay.
            private.dropTable(identifier, False)
    finally:
        private.dropNamespace(namespace)


def _require_kept_metadata(table: Table, properties: Mapping[str, str]) -> None:
    kept = properties.get(_KEEPS)
    if properties.get(_DELETES) == "true" and kept is not None and int(kept) < _KEPT:
        raise UnsupportedChangeError(
            f"table {table.full_name} keeps only {kept} earlier metadata files, so its current one could be deleted "
            f"before the change is complete; set its property {_KEEPS} to {_KEPT} or more, or {_DELETES} to false"
        )


def _catalog(spark: SparkSession) -> Any:
    """Return the session's Iceberg catalog, made on first use."""
    for name, value in _SETTINGS.items():
        spark.conf.set(f"spark.sql.catalog.{PRIVATE}{name}", value)
    state, context = spark._jsparkSession.sessionState(), spark.sparkContext
    catalog = state.catalogManager().catalog(PRIVATE).icebergCatalog()
    # By default, it also has its files in memory, and no setting of it says otherwise.
    files = catalog.getClass().getDeclaredField("io")
    files.setAccessible(True)
    if files.get(catalog).getClass().getName() != _FILE_IO:
        settings, hadoop = java_class(context, "java.util.HashMap")(), state.newHadoopConf()
        loaded = java_class(context, "org.apache.iceberg.CatalogUtil").loadFileIO(_FILE_IO, settings, hadoop)
        files.set(catalog, loaded)
    return catalog
