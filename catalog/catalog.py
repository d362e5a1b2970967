"""`Catalog`: the class that all front doors use."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta, tzinfo
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from sqlalchemy import Connection

from catalog.errors import (
    ConflictError,
    InvalidTableError,
    StorageError,
    TableAlreadyExistsError,
    UnreadableMetadataError,
    UnsupportedCommitError,
)
from catalog.model import (
    GRACE,
    ICEBERG,
    AddResult,
    Buckets,
    Database,
    FileFormat,
    IndexDefinition,
    IndexState,
    NewPartition,
    OnInvalid,
    Partition,
    PartitionIndex,
    PartitionState,
    RepairMode,
    SetAsideFile,
    Table,
    TableKind,
)
from catalog.model.batches import BatchChange, PartitionBatch, PartitionKey, PartitionUpdate
from catalog.model.identifiers import TableName
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.operations.records import Operation, OperationKind, OperationState
from catalog.settings.places import require_root
from catalog.storage import Storage
from catalog.storage.engine import catalog_url
from catalog.tables.definitions import (
    ColumnLike,
    Definitions,
    parse_format,
)

if TYPE_CHECKING:
    from catalog.advice.proposals import Proposals
    from catalog.datafiles.committing import Committer
    from catalog.datafiles.partitions import SchemePartition
    from catalog.datafiles.pruning import FileScan
    from catalog.datafiles.rolling_back import RollBacks
    from catalog.importing.imports import Imports
    from catalog.indexes.definitions import IndexProgress
    from catalog.indexes.verifying import Verification
    from catalog.loading.loading import Loading
    from catalog.loading.quality_results import QualityResults
    from catalog.loading.repairing import RepairReport, Repairs
    from catalog.maintenance.maintenance import Maintenance
    from catalog.maintenance.reports import VacuumReport
    from catalog.migration.migrations import Migrations
    from catalog.migration.states import MigrationStates
    from catalog.operations.approvals import Approvals
    from catalog.operations.confirmation import Confirmation
    from catalog.operations.outcomes import Outcomes
    from catalog.partitions.announcing import Announcements
    from catalog.partitions.browsing import Browsing
    from catalog.partitions.counting import TableSize
    from catalog.partitions.explaining import Explanation
    from catalog.partitions.indexing import Indexing
    from catalog.partitions.previews import Previews
    from catalog.partitions.purging import PartitionPurge
    from catalog.partitions.quarantine import LoadedPartitions
    from catalog.partitions.scanning import Scan, Scanner
    from catalog.partitions.snapshots import PartitionFiles
    from catalog.partitions.specs import PartitionSpec
    from catalog.partitions.waiting import PartitionWaits
    from catalog.rebalancing.rebalancing import Rebalancing
    from catalog.schemes.model import Scheme
    from catalog.tables.dropping import TableDrop
    from catalog.tables.own_files import PurgedFiles

# Most modules are imported by the methods that need them, because a command should import only what it uses.
log = logging.getLogger(__name__)


class Catalog:
    """The shared catalog of tables, partitions and partition indexes.

    Table names are written `database.table`; the default database is `default`. Names are case-insensitive. An object
    is thread-safe.
    """

    def __init__(self, storage: Storage, warehouse: str | None) -> None:
        """Create the catalog over a storage; use `Catalog.open` instead where possible."""
        self.storage = storage
        self._definitions = Definitions(storage, warehouse)
        self._definitions.follow_files = _follow_files
        self.operations = Operations(storage)

    @cached_property
    def approvals(self) -> Approvals:
        """Approvals of deletions, with the persons who gave them."""
        from catalog.operations.approvals import Approvals

        return Approvals(self.storage)

    @cached_property
    def loading(self) -> Loading:
        """Loads of source files."""
        from catalog.loading.loading import Loading

        return Loading(self.storage, self._definitions, self.operations)

    @cached_property
    def quality(self) -> QualityResults:
        """Results of quality checks."""
        from catalog.loading.quality_results import QualityResults

        return QualityResults(self.storage, self._definitions, self.operations)

    @cached_property
    def outcomes(self) -> Outcomes:
        """Outcomes of operations that are still to be reported."""
        from catalog.operations.outcomes import Outcomes

        return Outcomes(self.storage)

    @cached_property
    def proposals(self) -> Proposals:
        """The advisor's latest proposals for each table."""
        from catalog.advice.proposals import Proposals

        return Proposals(self.storage, self._definitions)

    @cached_property
    def rebalancing(self) -> Rebalancing:
        """Changes of the partitions of tables with a partition scheme."""
        from catalog.rebalancing.rebalancing import Rebalancing

        return Rebalancing(self.storage, self._definitions, self.operations)

    @cached_property
    def roll_backs(self) -> RollBacks:
        """Roll-backs of published tables to earlier snapshots."""
        from catalog.datafiles.rolling_back import RollBacks

        return RollBacks(self.storage, self._definitions, self.operations)

    @cached_property
    def migrations(self) -> Migrations:
        """Migrations of Hive tables to Iceberg, and reverts."""
        from catalog.migration.migrations import Migrations

        return Migrations(self.storage, self._definitions, self.operations)

    @cached_property
    def migration_states(self) -> MigrationStates:
        """How far each table is on its way from Hive to Iceberg."""
        from catalog.migration.states import MigrationStates

        return MigrationStates(self.storage, self.migrations)

    @cached_property
    def announcements(self) -> Announcements:
        """Changed partitions that are still to be announced."""
        from catalog.partitions.announcing import Announcements

        return Announcements(self.storage, self._definitions)

    @cached_property
    def browsing(self) -> Browsing:
        """Pages, groups, days and files of partitions, for people who look at them."""
        from catalog.partitions.browsing import Browsing

        return Browsing(self.storage, self._definitions, self._scanner)

    @cached_property
    def waits(self) -> PartitionWaits:
        """Questions of those who wait for partitions."""
        from catalog.partitions.waiting import PartitionWaits

        return PartitionWaits(self.storage, self._definitions, self._scanner)

    @cached_property
    def committer(self) -> Committer:
        """Commits of the files that jobs have written into tables with a partition scheme."""
        from catalog.datafiles.committing import Committer

        return Committer(self.storage, self._definitions, self.operations)

    @cached_property
    def maintenance(self) -> Maintenance:
        """Removal of obsolete files and records."""
        from catalog.maintenance.maintenance import Maintenance

        return Maintenance(self.storage, self._definitions, self.operations, self.loading)

    @cached_property
    def imports(self) -> Imports:
        """Imports of tables from Hive Metastores and Glue."""
        from catalog.importing.imports import Imports

        return Imports(self.storage, self._definitions, self.operations)

    @cached_property
    def previews(self) -> Previews:
        """Bounded searches for people who write filters: what they read, values of keys, and better indexes."""
        from catalog.partitions.previews import Previews

        return Previews(self.storage, self._definitions, self._scanner)

    @cached_property
    def _repairs(self) -> Repairs:
        """Repairs of tables by their folders."""
        from catalog.loading.repairing import Repairs

        return Repairs(self.storage, self._definitions, self.operations, self.loading)

    @cached_property
    def _scanner(self) -> Scanner:
        """Searches of partitions."""
        from catalog.partitions.scanning import Scanner

        return Scanner(self.storage, self._definitions)

    @cached_property
    def _indexing(self) -> Indexing:
        """Partition indexes."""
        from catalog.partitions.indexing import Indexing

        return Indexing(self.storage, self._definitions)

    @classmethod
    def open(cls, url: str | None = None, *, warehouse: str | None = None) -> Self:
        """Open the catalog of a database that has the schema of this version.

        Args:
            url: `postgresql://…` or `sqlite:///…`; by default `CALVE_CATALOG_URL`.
            warehouse: The folder for databases that have no location of their own; by default `CALVE_WAREHOUSE`.

        Raises:
            CatalogUnavailableError: No URL is given, the database cannot be reached, or its schema has another version.
            InvalidLocationError: The warehouse contains a password or options.
        """
        from catalog.storage.upgrade import check_revision

        return cls._opened(url, warehouse, check_revision)

    @classmethod
    def initialise(cls, url: str | None = None, *, warehouse: str | None = None) -> Self:
        """Create or upgrade the schema, and open the catalog; safe to repeat."""
        from catalog.storage.upgrade import upgrade

        return cls._opened(url, warehouse, upgrade)

    @classmethod
    def _opened(cls, url: str | None, warehouse: str | None, prepare: Callable[[Storage], None]) -> Self:
        if warehouse := warehouse or os.environ.get("CALVE_WAREHOUSE"):
            require_root(warehouse, "CALVE_WAREHOUSE")
        storage = Storage(url or catalog_url())
        try:
            prepare(storage)
        except BaseException:
            storage.close()
            raise
        return cls(storage, warehouse)

    def close(self) -> None:
        """Close all connections."""
        self.storage.close()

    def __enter__(self) -> Self:
        """Return the catalog, to be closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self.close()

    # --- databases ----------------------------------------------------------------------------------------------

    def create_database(
        self,
        name: str,
        *,
        location: str | None = None,
        description: str | None = None,
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> Database:
        """Create a database.

        Args:
            location: Folder for its tables; by default `<warehouse>/<name>`.
            if_not_exists: Return an existing database, unchanged.

        Raises:
            DatabaseAlreadyExistsError: It exists, and `if_not_exists` is false.
            InvalidIdentifierError: The name is not allowed.
            InvalidConfigurationError: Neither a location nor a warehouse is set.
        """
        return self._definitions.create_database(
            name, location=location, description=description, properties=properties, if_not_exists=if_not_exists
        )

    def get_database(self, name: str) -> Database:
        """Return a database.

        Raises:
            DatabaseNotFoundError: It does not exist.
        """
        return self._definitions.get_database(name)

    def list_databases(self) -> list[Database]:
        """Return all databases, sorted by name."""
        return self._definitions.list_databases()

    def alter_database(
        self, name: str, *, description: str | None = None, properties: Mapping[str, str | None] | None = None
    ) -> Database:
        """Change a database's description or some of its properties; None removes a property.

        Raises:
            DatabaseNotFoundError: It does not exist.
        """
        return self._definitions.alter_database(name, description=description, properties=properties)

    def drop_database(self, name: str, *, cascade: bool = False) -> list[Table]:
        """Drop a database; its folder stays.

        Args:
            cascade: Drop its tables and views, too, in the same transaction; their files stay, as with `drop_table`
                without PURGE. After the commit, rows of large tables are deleted in short transactions; `vacuum`
                finishes interrupted deletions.

        Returns:
            The dropped tables and views.

        Raises:
            DatabaseNotFoundError: It does not exist.
            DatabaseNotEmptyError: It has tables, and `cascade` is false.
            ConflictError: An operation is changing one of the tables, or a table was created meanwhile; nothing was
                dropped.
        """
        if not cascade:
            self._definitions.drop_database(name)
            return []
        from catalog.datafiles.publishing import delete_metadata
        from catalog.tables.dropping import finish_drop

        with self.storage.write() as connection:
            # Tables first, as transactions do that change a table and its name.
            tables = [
                self._definitions.lock_table(connection, table, exclusive=True, or_iceberg=True)
                for table in self._definitions.list_tables(name, connection)
            ]
            drops = [self._drop_table(connection, table, with_files=False) for table in tables]
            self._definitions.drop_database(name, connection)
        reached(Point.COMMITTED)
        for drop in drops:
            if drop.has_metadata_only:
                delete_metadata(drop.table)
            if drop.operation_id is not None:
                finish_drop(self.storage, self.operations, self.operations.get(drop.operation_id))
        return tables

    # --- tables -------------------------------------------------------------------------------------------------

    def create_table(
        self,
        name: str,
        *,
        columns: Iterable[ColumnLike],
        partition_keys: Iterable[ColumnLike] = (),
        format: str = "parquet",
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        indexes: Sequence[IndexDefinition] = (),
        scheme: Scheme | None = None,
        description: str | None = None,
        is_external: bool = False,
        buckets: Buckets | None = None,
        folder_name: str | None = None,
    ) -> Table:
        """Create a table with up to 3 partition indexes, all or nothing.

        Args:
            columns: The columns inside the data files.
            partition_keys: The partition keys, in the order of the path.
            format: parquet, orc, avro or csv; or textfile, sequencefile, rcfile or jsonfile, which are only recorded.
                With iceberg, the data files are Parquet, and the table is an Iceberg table whose identity partitions
                are the partition keys.
            location: The folder of the data files; by default `<database's folder>/<table>`.
            scheme: A partition scheme, which places rows by one of the columns, instead of partition keys.
            is_external: Others own the files, so they stay when the table is dropped. A table is always external if its
                folder is not empty, or if `location` names a folder of an object store.
            buckets: Hive's buckets, which are only recorded.
            folder_name: The name of the default folder, if the table will get this name when it has its rows
                (`CREATED_AS`).

        Raises:
            DatabaseNotFoundError: The database does not exist.
            TableAlreadyExistsError: A table of this name exists.
            InvalidRequestError: A name, a type, the format or an index is invalid.
            LimitExceededError: There are more than 3 indexes.
        """
        from catalog.datafiles.publishing import publish
        from catalog.indexes.definitions import create_index
        from catalog.tables.checks import check_stored_as_iceberg
        from catalog.tables.own_properties import CREATED_AS, check_own_properties

        check_own_properties(properties)
        if folder_name is not None:
            properties = {**(properties or {}), CREATED_AS: folder_name}
        is_published = scheme is not None
        if format.strip().lower() == ICEBERG:
            check_stored_as_iceberg(name, scheme, buckets)
            is_published, format = True, FileFormat.PARQUET
        with self.storage.write() as connection:
            table = self._definitions.insert_table(
                connection,
                TableName.parse(name),
                columns=columns,
                partition_keys=partition_keys,
                format=format,
                location=location,
                properties=properties,
                scheme=scheme,
                kind=TableKind.EXTERNAL if is_external else TableKind.MANAGED,
                description=description,
                buckets=buckets,
                folder_name=folder_name,
            )
            for definition in indexes:
                create_index(connection, table, definition)
            if is_published:
                publish(connection, table)
        return self.get_table(table.full_name) if is_published else table

    def create_view(
        self,
        name: str,
        sql: str,
        *,
        columns: Iterable[ColumnLike] = (),
        description: str | None = None,
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a view: a named SELECT without partitions, files and location.

        Args:
            sql: The SELECT, stored without being parsed.
            columns: The columns of the view, as far as they are known.
            if_not_exists: Return an existing table or view, unchanged.

        Raises:
            DatabaseNotFoundError: The database does not exist.
            TableAlreadyExistsError: A table or view of this name exists, and `if_not_exists` is false.
            InvalidRequestError: A name is not allowed.
        """
        from catalog.tables.own_properties import check_own_properties

        check_own_properties(properties)
        try:
            with self.storage.write() as connection:
                return self._definitions.insert_table(
                    connection,
                    TableName.parse(name),
                    columns=columns,
                    partition_keys=(),
                    format=FileFormat.PARQUET,
                    location=None,
                    properties=properties,
                    kind=TableKind.VIEW,
                    description=description,
                    view_text=sql,
                )
        except TableAlreadyExistsError:
            if if_not_exists:
                return self.get_table(name)
            raise

    def get_table(self, name: str) -> Table:
        """Return a table or view, after taking in what other engines have committed to it, if Calve can follow.

        Raises:
            TableNotFoundError, DatabaseNotFoundError: It does not exist.
        """
        table = self._definitions.get_table(name)
        if table.live_location == table.published_location:
            return table
        from catalog.datafiles.intake import catch_up

        try:
            catch_up(self.storage, self._definitions, table)
        except (UnsupportedCommitError, UnreadableMetadataError, StorageError) as error:
            log.warning("%s", error)
        return self._definitions.get_table(name)

    def list_tables(self, database: str | None = None) -> list[Table]:
        """Return the tables and views of one database, or of all databases, sorted by name.

        Raises:
            DatabaseNotFoundError: The database does not exist.
        """
        return self._definitions.list_tables(database)

    def table_sizes(self) -> dict[int, TableSize]:
        """Return the sizes of all tables that have partitions or data files in the catalog, by `Table.id`.

        Reads the rows of all partitions and files, in two statements.
        """
        from catalog.partitions.counting import measure_tables

        return measure_tables(self.storage)

    def alter_table(
        self,
        name: str,
        *,
        rename_to: str | None = None,
        add_columns: Iterable[ColumnLike] = (),
        change_columns: Mapping[str, ColumnLike] | None = None,
        drop_columns: Iterable[str] = (),
        column_order: Sequence[str] | None = None,
        key_order: Sequence[str] | None = None,
        properties: Mapping[str, str | None] | None = None,
        location: str | None = None,
        description: str | None = None,
    ) -> Table:
        """Change a table: its name (in the same database), columns, keys, properties, location or description.

        A view supports only changes of name, properties and description. No file is changed: Calve identifies columns
        by ids, and reads each file by the names that it was written with (`catalog.tables.columns`). An engine that
        reads the folder by current names, as Hive does, sees null in files that have a column under another name.
        Folders of partitions keep the old name of a renamed key.

        Args:
            add_columns: New columns, added after the others, but before the partition column of a scheme. A new column
                does not inherit values from a renamed or dropped column of the same name.
            change_columns: Name of a column or partition key → its new definition: name, type and comment. The type of
                a column can only be widened (`catalog.tables.columns.check_type_change`). With an index on the table,
                keys cannot be renamed and indexed keys cannot be retyped. The type of a key changes only if all values
                of its partitions stay the same, as with int → bigint, or string → varchar(9) if none is longer.
            drop_columns: Columns to drop; those by which rows are placed, sorted or bucketed cannot be dropped. Files
                keep them.
            column_order: All columns in a new order, by their new names; the partition column of a scheme stays last.
            key_order: All partition keys in a new order; only for a table without partitions, because folders follow
                the order. Indexed keys cannot move.
            properties: Properties to set, or to remove (None). Those that start with `calve.` are Calve's own records,
                except the settings (`catalog.tables.own_properties`).
            location: Only for a table without partitions, because default folders are relative to the location. A
                folder that is not empty turns a managed table into an external one.

        Raises:
            TableNotFoundError: It does not exist.
            TableAlreadyExistsError: The new name is taken.
            InvalidTableError: A column's new name is taken, a column is unknown, or existing partitions prevent the
                change.
            UnsupportedChangeError: Existing files cannot be read as a column's new type, or the table needs a column
                that would be dropped.
            InvalidKeyTypeError: A partition key cannot have this type.
            IndexedKeyError: A partition index prevents the change of a key.
            NotATableError: It is a view, which does not support the change.
            ConflictError: An operation is changing the table, and the change affects more than properties or new
                columns.
        """
        from catalog.datafiles.intake import lock_current
        from catalog.datafiles.publishing import delete_metadata, publish_altered
        from catalog.tables.altering import TableChange, alter_table

        change = TableChange(
            rename_to=rename_to,
            add_columns=add_columns,
            change_columns=change_columns,
            drop_columns=drop_columns,
            column_order=column_order,
            key_order=key_order,
            properties=properties,
            location=location,
            description=description,
        )
        with self.storage.write() as connection:
            table = lock_current(connection, self._definitions, name)
            new_name = alter_table(connection, self._definitions, table, change)
            if table.is_published:
                publish_altered(
                    connection, table, self._definitions.get_table(f"{table.database}.{new_name}", connection)
                )
        altered = self.get_table(f"{table.database}.{new_name}")
        if table.is_published and altered.location != table.location:
            delete_metadata(table)
        return altered

    def drop_table(
        self,
        name: str,
        *,
        purge: bool = False,
        confirmation: Confirmation | None = None,
        unused_id: int | None = None,
    ) -> PurgedFiles:
        """Drop a table with its partitions and indexes, or a view.

        An Iceberg table is dropped with its pointer and with its former Hive table; its files stay. The table
        disappears for all readers at once. If it has many partitions, their rows are deleted after the commit in short
        transactions; `vacuum` finishes interrupted deletions.

        Args:
            purge: After the commit, delete the files that Calve wrote into the folder of a managed table
                (`catalog.tables.own_files`), except those of other tables and their partitions. Nothing is deleted if
                the folder lies inside another table's location. Files of partitions outside the folder and of external
                tables stay, as in Hive. Until the deletion ends, no table or partition can get a location in the
                folder.
            confirmation: Asked before a purge.
            unused_id: Only drop the table with this id, if it has never had a partition or a data file, and no
                operation holds it.

        Returns:
            What a purge has deleted, and the files that it has kept, because Calve did not write them.

        Raises:
            TableNotFoundError: It does not exist.
            ConflictError: An operation is changing it, or it is not `unused_id`, or is in use.
            FilesNeededError: A purge would delete files of an Iceberg table.
            UnreadableMetadataError: Which files an Iceberg table needs is unknown.
            FilesNotDeletedError: The table is dropped, but the file system refused to delete files.
        """
        from catalog.datafiles.publishing import delete_metadata
        from catalog.tables.dropping import finish_drop
        from catalog.tables.own_files import PurgedFiles
        from catalog.tables.purging import refuse_needed_files, refuse_reached_files

        if purge:
            with self.storage.read() as connection:
                table = self._definitions.get_table(name, connection)
                refuse_needed_files(connection, table)
            refuse_reached_files(self.storage, table)
        with self.storage.write() as connection:
            table = self._definitions.lock_table(connection, name, exclusive=True, or_iceberg=True)
            if unused_id is not None:
                self._require_unused(connection, table, unused_id)
            if purge:
                refuse_needed_files(connection, table)
                if confirmation is not None:
                    confirmation.drop_table(table)
            drop = self._drop_table(connection, table, with_files=purge and table.kind is TableKind.MANAGED)
        reached(Point.COMMITTED)
        if drop.has_metadata_only:
            delete_metadata(table)
        if drop.operation_id is None:
            return PurgedFiles()
        return finish_drop(self.storage, self.operations, self.operations.get(drop.operation_id))

    def _require_unused(self, connection: Connection, table: Table, table_id: int) -> None:
        self._definitions.refuse_if_busy(connection, table)
        self.operations.refuse_if_held(connection, table.full_name)
        is_same = table.id == table_id and table.live_location == table.published_location
        if not is_same or self._definitions.has_partitions(connection, table):
            raise ConflictError(f"table {table.full_name} is in use; it was not dropped")

    def _drop_table(self, connection: Connection, table: Table, *, with_files: bool) -> TableDrop:
        """Drop a table that the caller has locked exclusively, in the caller's transaction."""
        from catalog.iceberg.pointers import delete_pointer
        from catalog.tables.dropping import TableDrop, drop_table

        is_empty = (
            table.is_published
            and table.live_location == table.published_location
            and not self._definitions.has_partitions(connection, table)
        )
        operation_id = drop_table(connection, self._definitions, self.operations, table, with_files=with_files)
        if table.is_iceberg or table.is_published:
            delete_pointer(connection, table.database, table.name)
        return TableDrop(table, operation_id, has_metadata_only=is_empty and not with_files)

    def vacuum(self, table: str | None = None, *, grace: timedelta = GRACE, dry_run: bool = False) -> VacuumReport:
        """Delete obsolete files; safe to repeat after an interruption.

        These are files that were replaced or dropped, files of attempts that did not commit, duplicates left by Spark
        tasks, staged files of failed loads, and folders of dropped tables whose purge was interrupted. Tables stay
        readable and writable; files of operations that may still be running stay.

        Args:
            table: The table to vacuum; None for all tables and for files of dropped tables.
            grace: Keep files that were replaced, written or used within this time, for running readers.
            dry_run: Only report what would be deleted.

        Returns:
            What was deleted, and what could not be read or deleted; a failure in one table does not affect others.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidRequestError: The grace period is negative.
        """
        return self.maintenance.vacuum(table, grace=grace, dry_run=dry_run)

    def unpublished_tables(self) -> dict[str, int]:
        """Return the tables of earlier versions that other engines do not see yet: `database.name` → number of files.

        They have a partition scheme; `publish_table` makes them Iceberg tables, too.
        """
        from catalog.datafiles.conversion import unpublished_tables

        with self.storage.read() as connection:
            return unpublished_tables(connection)

    def publish_table(self, name: str) -> int:
        """Publish a table of an earlier version as an Iceberg table, without writing a data file; safe to repeat.

        Returns:
            The number of its files.

        Raises:
            TableNotFoundError: It does not exist.
            InvalidSchemeError: It has no partition scheme.
            UnsupportedIcebergTypeError, ReservedColumnError: Iceberg has no such columns; Calve still reads and writes
                the table.
            TableAlreadyExistsError: There is an Iceberg table or view of this name.
            StorageError: A data file cannot be read, or the metadata cannot be written.
        """
        from catalog.datafiles.conversion import publish_earlier
        from catalog.tables.checks import require_scheme

        require_scheme(self._definitions.get_hive_table(name))
        return publish_earlier(self.storage, self._definitions, name)

    def finish_drops(self) -> int:
        """Finish interrupted drops of tables; return their number.

        Raises:
            FilesNotDeletedError: The file system refused to delete files.
        """
        from catalog.tables.dropping import finish_drops

        return finish_drops(self.storage, self.operations)

    # --- partitions ---------------------------------------------------------------------------------------------

    def add_partitions(
        self,
        table: str,
        partitions: Iterable[NewPartition],
        *,
        if_not_exists: bool = False,
        on_invalid: OnInvalid = OnInvalid.REFUSE,
    ) -> AddResult:
        """Add partitions, each with its item in every index of the table, in one transaction.

        The iterable is consumed completely before anything is locked, into a temporary file if it is long: a slow
        iterable blocks no other transaction, and a million partitions need little memory. While more than 10,000
        partitions, or partitions with custom locations, are being added, other changes of the table's partitions wait.

        Args:
            if_not_exists: Skip existing partitions, instead of refusing the batch.
            on_invalid: REFUSE: refuse the whole batch if an index does not admit a partition. SKIP: add the others,
                and name the skipped ones in the result.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionError: An index does not admit a partition, or it has more values than the table has keys.
            PartitionAlreadyExistsError: A partition exists or is named twice, and `if_not_exists` is false.
            LocationInUseError: Another table or partition uses a partition's folder, a load is about to use it, or a
                purge is deleting it.
        """
        from catalog.partitions.adding import PartitionAdder, require_partition_keys
        from catalog.partitions.spooling import is_here, taken_in
        from catalog.tables.checks import refuse_stored_as_iceberg

        if not is_here(partitions):
            # Fail before a long iterable is consumed.
            require_partition_keys(self._definitions.get_hive_table(table))
        with taken_in(partitions) as buffer, self.storage.write() as connection:
            adder = PartitionAdder(connection, self._definitions, table, is_bulk=buffer.is_bulk)
            refuse_stored_as_iceberg(
                adder.table, "adding partitions without rows", "Add rows with INSERT INTO or LOAD DATA"
            )
            return adder.add(buffer.partitions, if_not_exists=if_not_exists, on_invalid=on_invalid)

    def get_partitions(
        self,
        table: str,
        expression: str | None = None,
        *,
        use_indexes: bool = True,
        state: PartitionState | None = PartitionState.VISIBLE,
    ) -> Iterator[Partition]:
        """Yield the partitions that match an expression, through an index if possible, in no particular order.

        Args:
            expression: The filter, for instance `country = 'US' and year > 2018`; None or empty for all.
            use_indexes: False to read all partitions; the result is the same.
            state: VISIBLE for partitions visible to readers, QUARANTINED for hidden ones, None for both.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid; subclasses tell the reason.
        """
        return self._scan(table, expression, use_indexes=use_indexes, state=state).partitions

    def scan_partitions(self, table: str, expression: str | None = None, *, use_indexes: bool = True) -> Scan:
        """Return a search with its plan and counts; `get_partitions` is its `partitions`."""
        return self._scan(table, expression, use_indexes=use_indexes, state=PartitionState.VISIBLE)

    def _scan(self, table: str, expression: str | None, *, use_indexes: bool, state: PartitionState | None) -> Scan:
        scan = self._scanner.scan(table, expression, use_indexes=use_indexes, state=state)
        if not scan.table.is_stored_as_iceberg:
            return scan
        from catalog.datafiles.intake import reading_current

        with reading_current(self.storage, self._definitions, table):
            # Takes in what other engines have committed.
            pass
        return self._scanner.scan(table, expression, use_indexes=use_indexes, state=state)

    def explain_partitions(self, table: str, expression: str | None = None) -> Explanation | FileScan:
        """Run the search for an expression, and return how it found the partitions.

        For a table with a partition scheme, return how partitions and files were pruned.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
        """
        from catalog.partitions.explaining import explain

        if self._definitions.get_hive_table(table).scheme is not None:
            return self.scan_files(table, expression)
        return explain(self.scan_partitions(table, expression))

    def scan_files(self, table: str, expression: str | None = None, *, zone: tzinfo | None = None) -> FileScan:
        """Return the data files of a table with a partition scheme that may contain rows that match an expression.

        Args:
            expression: The filter, on comparable columns and on `_partition_id`; None for all rows. Partitions are
                pruned by the partition column, files by it and by the sort columns.
            zone: The time zone of timestamp literals; None for UTC.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidSchemeError: The table has no partition scheme.
            ExpressionError: The expression is invalid.
        """
        from catalog.datafiles.pruning import scan_files

        with self._reading_scheme(table) as (connection, definition):
            return scan_files(connection, definition, expression, zone)

    def scan_partition_files(self, table: str, expression: str | None = None) -> PartitionFiles:
        """Return the visible partitions of a table stored as Iceberg that match an expression, and their data files.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidTableError: The table is not stored as Iceberg.
            ExpressionError: The expression is invalid.
        """
        from catalog.datafiles.intake import reading_current
        from catalog.partitions.snapshots import scan_partition_files

        with reading_current(self.storage, self._definitions, table) as (connection, definition):
            if not definition.is_stored_as_iceberg:
                raise InvalidTableError(f"table {definition.full_name} is not stored as Iceberg")
            return scan_partition_files(connection, self._scanner, definition, expression)

    def scheme_partitions(self, table: str, expression: str | None = None) -> list[SchemePartition]:
        """Return the partitions of a table with a partition scheme in logical order, including empty ones.

        Args:
            expression: Return only partitions that may contain rows that match this filter.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidSchemeError: The table has no partition scheme.
            ExpressionError: The expression is invalid.
        """
        from catalog.datafiles.partitions import scheme_partitions

        with self._reading_scheme(table) as (connection, definition):
            return scheme_partitions(connection, definition, expression)

    @contextmanager
    def _reading_scheme(self, name: str) -> Iterator[tuple[Connection, Table]]:
        from catalog.datafiles.intake import reading_current
        from catalog.tables.checks import require_scheme

        with reading_current(self.storage, self._definitions, name) as (connection, table):
            yield connection, require_scheme(table)

    def partitions_of(self, table: str, spec: PartitionSpec) -> list[Partition]:
        """Return the partitions with the values of a spec, of which some keys may be missing, including hidden ones.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionSpecError: The spec does not fit the table.
        """
        from catalog.partitions.specs import spec_values

        definition = self.get_table(table)
        return self._scanner.with_values(definition, spec_values(definition, spec))

    def folders_of_versions(self, table: str) -> dict[str, tuple[str | None, ...]]:
        """Return the folders that vacuum will empty or delete (`catalog.partitions.versions`), with their values.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        from catalog.partitions.versions import folders_of_versions

        with self.storage.read() as connection:
            return folders_of_versions(connection, self._definitions.get_table(table, connection))

    def get_partition(self, table: str, values: Sequence[str | None]) -> Partition:
        """Return one partition by its values, visible or quarantined; `01` finds the int `1`.

        Raises:
            PartitionNotFoundError: The table has no partition with these values.
        """
        return self._scanner.get(self.get_table(table), values)

    def drop_partitions(self, table: str, expression: str | None = None) -> int:
        """Drop the visible partitions that match an expression, with their index items; their files stay.

        Each transaction drops up to 10,000 partitions, so that others do not wait long. With more partitions, readers
        may see some of them dropped before the others. After an interruption the same call drops the rest.

        Args:
            expression: The filter; None drops all partitions.

        Returns:
            The number of dropped partitions.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
        """
        ids = [partition.id for partition in self.get_partitions(table, expression)]
        return self._drop(self.get_table(table), ids)

    def delete_partitions(
        self,
        operation_id: str,
        table: str,
        expression: str | None = None,
        *,
        spec: PartitionSpec | None = None,
        requested_by: str | None = None,
    ) -> int:
        """Delete the rows of the visible partitions that match an expression, without reading them.

        The partitions are dropped in one transaction; of a Hive-style table, their folders become empty after the grace
        period (`catalog.partitions.versions`). A repeated call returns the same number.

        Args:
            operation_id: The operation, which reserves the table.
            expression: The filter; None for all partitions.
            spec: Values of some keys, instead of a filter; quarantined partitions with these values are dropped, too.
            requested_by: The requester, for the journal.

        Returns:
            The number of partitions that were dropped.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
            InvalidPartitionSpecError: The spec does not fit the table.
            OperationConflictError: Another operation works on the table.
        """
        from catalog.operations.records import OperationKind

        definition, kind, step = self.get_table(table), OperationKind.CHANGE_ROWS, "delete_partitions"
        request = {"change": "delete", "where": expression, "spec": dict(spec or {})}
        self.operations.begin(operation_id, kind, table, request, is_exclusive=True, requested_by=requested_by)
        found = self.partitions_of(table, spec) if spec else self.get_partitions(table, expression)
        return self.loading.remove(operation_id, step, definition, [partition.id for partition in found])

    def purge_partitions(
        self, table: str, expression: str | None = None, *, confirmation: Confirmation | None = None
    ) -> PartitionPurge:
        """Drop the visible partitions that match an expression, as `drop_partitions` does, and delete their files.

        Deletes only files that Calve wrote (`catalog.tables.own_files`), in folders inside that of a managed table, and
        no files of other tables or partitions; the result tells what stays and why. Running readers of the partitions
        fail. `vacuum` finishes an interrupted purge.

        Args:
            expression: The filter; None drops all partitions.
            confirmation: Asked before any partition is dropped. Partitions that change afterwards are not dropped.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
            FilesNeededError: An Iceberg table reads files of the table; nothing was dropped.
            UnreadableMetadataError: Which files an Iceberg table needs is unknown; nothing was dropped.
            ConflictError: A partition was changed after the confirmation.
            FilesNotDeletedError: The partitions are dropped, but the file system refused to delete files.
        """
        from catalog.operations.confirmation import PurgedPartition
        from catalog.partitions.purging import purge_partitions
        from catalog.tables.checks import refuse_stored_as_iceberg

        definition = self.get_table(table)
        refuse_stored_as_iceberg(
            definition, "PURGE", "Drop the partitions without PURGE; vacuum deletes their files when snapshots expire"
        )
        partitions = [PurgedPartition.of(partition) for partition in self.get_partitions(table, expression)]
        return purge_partitions(self.storage, self._definitions, self.operations, definition, partitions, confirmation)

    def drop_partition(self, table: str, spec: PartitionSpec, *, if_exists: bool = False) -> int:
        """Drop the partition that a spec names or, with fewer keys, all that match it; otherwise as `drop_partitions`.

        Quarantined partitions are dropped, too.

        Args:
            spec: Partition key → value, unescaped; None is Hive's null.
            if_exists: Do not fail if no partition matches.

        Returns:
            The number of dropped partitions.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionSpecError: The spec is empty, names an unknown key, or names a key twice.
            PartitionNotFoundError: No partition matches, and `if_exists` is false.
        """
        definition = self.get_table(table)
        return self._drop(definition, self._scanner.find_by_spec(definition, spec, or_none=if_exists))

    def _drop(self, table: Table, ids: Sequence[int]) -> int:
        from catalog.partitions.changing import drop_partitions_in_batches
        from catalog.partitions.snapshots import drop_partition_files

        drop = drop_partition_files if table.is_stored_as_iceberg else drop_partitions_in_batches
        return drop(self.storage, self._definitions, table.full_name, ids)

    def alter_partition(
        self,
        table: str,
        spec: PartitionSpec | Sequence[str | None],
        *,
        location: str | None = None,
        format: str | None = None,
        properties: Mapping[str, str | None] | None = None,
        rename_to: PartitionSpec | Sequence[str | None] | None = None,
        row_count: int | None = None,
        file_count: int | None = None,
        size_bytes: int | None = None,
    ) -> Partition:
        """Change one partition, visible or quarantined, and its index items, in one transaction.

        Files are neither changed nor read. A renamed partition keeps its folder, unlike a managed one in Hive: moving
        the folder would break running readers, and a kill between the move and the commit would leave a partition
        without files. A partition that is added later under the old values needs another folder; `append_rows` chooses
        one.

        Args:
            spec: All keys → values, or the values in the order of the keys.
            location: The new folder of its files; this makes its counts of rows and files unknown.
            format: The new format of its files, for instance orc; the table's format removes the partition's own.
            properties: Properties to set, or to remove (None).
            rename_to: Its new values, in either form.
            row_count, file_count, size_bytes: What its files have, for callers that have changed them; no file is read.

        Returns:
            The changed partition; a renamed one has a new id.

        Raises:
            TableNotFoundError, PartitionNotFoundError: The table or partition does not exist.
            InvalidPartitionSpecError: A name is not a partition key.
            PartialPartitionSpecError: A key has no value.
            InvalidTableError: The format is unknown.
            InvalidRequestError: A count is not a whole number, 0 or more.
            UnsupportedChangeError: The table is stored as Iceberg, and more than properties would change.
            InvalidPartitionError: A partition index does not admit the new values, or the partition is encrypted.
            PartitionAlreadyExistsError: Another partition has the new values.
            LocationInUseError: Another table or partition uses the new location, a load is about to use it, or a purge
                is deleting it.
        """
        from catalog.partitions.altering import PartitionChange, alter_partition
        from catalog.partitions.specs import whole_values

        # An engine may have added the partition.
        self.get_table(table)
        with self.storage.write() as connection:
            is_bulk = location is not None
            held = self._definitions.lock_table(connection, table, exclusive=False, is_bulk=is_bulk)
            change = PartitionChange(
                location,
                None if format is None else parse_format(format),
                properties,
                None if rename_to is None else whole_values(held, rename_to),
                {"row_count": row_count, "file_count": file_count, "size_bytes": size_bytes},
            )
            values = alter_partition(connection, held, whole_values(held, spec), change)
        return self._scanner.get(held, values)

    def batch_get_partitions(self, table: str, partitions: Iterable[PartitionKey]) -> PartitionBatch:
        """Return many partitions by their values, visible or quarantined, with one statement for each thousand.

        Args:
            partitions: Each as all keys → values, or as the values in the order of the keys.

        Returns:
            The partitions in this order, and by themselves those that do not exist, are named twice, or have a key too
            few or too many.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        from catalog.partitions.batches import get_batch

        definition = self._definitions.get_hive_table(self.get_table(table).full_name)
        with self.storage.read() as connection:
            return get_batch(connection, definition, list(partitions))

    def batch_update_partitions(self, table: str, updates: Iterable[PartitionUpdate]) -> BatchChange:
        """Change many partitions, in one transaction for each thousand; a bad member does not affect the others.

        Values of partitions are changed one by one (`alter_partition`).

        Returns:
            The number of changed partitions, and the others with the reasons, which are those of `alter_partition`.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        from catalog.partitions.batches import update_batch

        return update_batch(self.storage, self._definitions, self.get_table(table).full_name, updates)

    def batch_delete_partitions(self, table: str, partitions: Iterable[PartitionKey]) -> BatchChange:
        """Drop many partitions by their values, with their index items; their files stay, as with `drop_partitions`.

        Args:
            partitions: As for `batch_get_partitions`.

        Returns:
            The number of dropped partitions, and by themselves those that do not exist, are named twice, or have a key
            too few or too many.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        from catalog.partitions.batches import find_batch

        definition = self._definitions.get_hive_table(self.get_table(table).full_name)
        with self.storage.read() as connection:
            ids, failures = find_batch(connection, definition, list(partitions))
        return BatchChange(self._drop(definition, ids), failures)

    def repair_table(
        self,
        table: str,
        *,
        mode: RepairMode = RepairMode.ADD,
        operation_id: str | None = None,
        requested_by: str | None = None,
    ) -> RepairReport:
        """Register the partitions whose folders lie below the table's location, as Hive's MSCK REPAIR TABLE does.

        Every folder `k=v/k2=v2` counts as a partition, whatever it contains; escaped values are decoded, and hidden
        folders are skipped. Folders that do not fit are reported and skipped: those with other names, with a value that
        an index does not admit, or of a partition that has another location. A repair is an exclusive operation, as
        loads are, and first undoes interrupted loads. Repeat it after an interruption to continue.

        Args:
            mode: ADD adds new partitions; DROP drops those whose folders do not exist; SYNC does both.
            operation_id: The id of the operation, for callers that retry.

        Raises:
            TableNotFoundError: The table does not exist.
            NotATableError, InvalidPartitionError: It is a view, or has no partition keys.
            OperationConflictError: Another operation is running on the table.
            VerificationFailedError: DROP or SYNC was requested, but the table's location does not exist.
        """
        return self._repairs.repair(table, mode, operation_id=operation_id, requested_by=requested_by)

    def operation_partitions(self, operation_id: str) -> Iterator[Partition]:
        """Yield the partitions that an operation added, visible or quarantined.

        Of a table stored as Iceberg or with a partition scheme, those that it added or extended, with the counts and
        the folder of the new files.

        Raises:
            OperationNotFoundError: The operation does not exist.
        """
        operation = self.operations.get(operation_id)
        if self.get_table(operation.table).has_file_rows:
            return iter(self.loaded_partitions(operation_id).partitions)
        return self._scanner.of_operation(operation.table, operation.number)

    def set_aside_files(self, table: str | None = None) -> list[SetAsideFile]:
        """Return the source files that loads have set aside because they cannot be loaded, by table and path.

        Args:
            table: None for all tables.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        return self.loading.set_aside_files(None if table is None else self.get_table(table))

    def loaded_partitions(self, operation_id: str, *, is_whole: bool = False) -> LoadedPartitions:
        """Return the partitions of `operation_partitions`, and the files of a table whose files the catalog knows.

        These are tables that are stored as Iceberg or have a partition scheme.

        Args:
            is_whole: With all files of these partitions; otherwise, of such tables, with only the files and counts of
                the load.

        Raises:
            OperationNotFoundError: The operation does not exist.
        """
        from catalog.datafiles.intake import reading_current
        from catalog.partitions.quarantine import LoadedPartitions, loaded_partitions

        operation = self.operations.get(operation_id)
        table = self.get_table(operation.table)
        if not table.has_file_rows:
            return LoadedPartitions(table, list(self._scanner.of_operation(operation.table, operation.number)))
        with reading_current(self.storage, self._definitions, operation.table) as (connection, definition):
            return loaded_partitions(connection, definition, operation.number, is_whole=is_whole)

    def count_quarantined(self, operations: Sequence[Operation]) -> dict[str, int]:
        """Return, by operation id, how many partitions of a load failed their quality check and are still hidden.

        Operations without such partitions are missing.
        """
        from catalog.partitions.hidden import count_hidden

        with self.storage.read() as connection:
            return count_hidden(connection, operations)

    def count_quarantined_partitions(self) -> dict[str, int]:
        """Return, by full table name, how many partitions are quarantined; tables without such are missing."""
        from catalog.partitions.hidden import count_by_table

        with self.storage.read() as connection:
            return count_by_table(connection)

    def release_partitions(
        self,
        table: str,
        expression: str | None = None,
        *,
        ids: Collection[int] | None = None,
        reason: str | None = None,
        requested_by: str | None = None,
    ) -> int:
        """Make the quarantined partitions that match an expression visible; return their number.

        Args:
            ids: Release only these (`Partition.id`); others, also those released before, are ignored.
            reason: Why they are released; the journal records it, and partitions that failed their check count as
                released by a person, for whom waits go on. None to record nothing.
            requested_by: The requester, for the journal.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
        """
        from catalog.partitions.quarantine import lock_to_release, record_release, release_partitions

        quarantined = self.get_partitions(table, expression, state=PartitionState.QUARANTINED)
        chosen = [partition.id for partition in quarantined if ids is None or partition.id in ids]
        with self.storage.write() as connection:
            held = lock_to_release(connection, self._definitions, table)
            released = release_partitions(connection, self._definitions, held, chosen)
            if reason and released:
                request = {"reason": reason, "partitions": released}
                operation_id = f"release-partitions-{held.full_name}-{uuid4().hex}"
                kind = OperationKind.RELEASE_PARTITIONS
                operation = self.operations.record(
                    connection, operation_id, kind, held, request, requested_by=requested_by
                )
                record_release(connection, chosen, operation.number)
                self.operations.advance(connection, operation_id, OperationState.CLEANED)
            return released

    # --- partition indexes --------------------------------------------------------------------------------------

    def create_partition_index(self, table: str, name: str, keys: Sequence[str]) -> PartitionIndex:
        """Create a partition index: ACTIVE immediately on a table without partitions, else CREATING until it is built.

        From its creation on, the table refuses partitions that the index does not admit. Several indexes of a table may
        be CREATING. Interrupted and running deletions of indexes are finished first.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidIndexError: It names no key, a key twice, or a column that is not a partition key.
            LimitExceededError: The table has 3 indexes, not counting FAILED ones.
            IndexAlreadyExistsError: An index that is not FAILED has the same name or the same keys.
        """
        return self._indexing.create(table, name, keys)

    def build_partition_index(self, table: str, name: str) -> PartitionIndex:
        """Build a CREATING index in this process, and return it in its final state, ACTIVE or FAILED.

        An interrupted build continues where it stopped; concurrent builds share the work. For large tables, the Spark
        job does the same in parallel.

        Raises:
            IndexNotFoundError: The index does not exist.
            IndexBuildEndedError: It was deleted, cancelled, or has FAILED meanwhile.
        """
        return self._indexing.build(table, name)

    def cancel_partition_index_build(
        self, table: str, name: str, *, reason: str = "the build was cancelled"
    ) -> PartitionIndex:
        """Cancel the build of a CREATING index: it becomes FAILED with the code CANCELLED, and its items are deleted.

        A running build notices this before its next range of partitions, and ends with an error. To pause a build
        instead, end the process or the Airflow task.

        Raises:
            TableNotFoundError, IndexNotFoundError: The table or index does not exist.
            ConflictError: The index is not CREATING.
        """
        return self._indexing.cancel(table, name, reason)

    def verify_partition_index(self, table: str, name: str, *, repair: bool = False) -> Verification:
        """Compare an ACTIVE index with the partitions in this process, while the table stays readable and writable.

        For large tables, the Spark job does the same in parallel.

        Args:
            repair: Repair differences, in short transactions that lock the table.

        Raises:
            TableNotFoundError, IndexNotFoundError: The table or index does not exist.
            ConflictError: The index is not ACTIVE, or was deleted meanwhile.
        """
        return self._indexing.verify(table, name, repair=repair)

    def get_partition_indexes(self, table: str) -> list[PartitionIndex]:
        """Return a table's indexes, oldest first, including FAILED ones.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        return self._indexing.list(table)

    def get_partition_index(self, table: str, name: str) -> PartitionIndex:
        """Return one index of a table.

        Raises:
            TableNotFoundError, IndexNotFoundError: The table or index does not exist.
        """
        return self._indexing.get(table, name)

    def get_partition_index_states(self, tables: Iterable[str]) -> dict[str, dict[str, IndexState]]:
        """Return the states of the indexes of many tables, with one statement.

        Returns:
            Table, as written in `tables` → name of the index → its state. Tables that do not exist are missing. Of
            several indexes of one name, it is the state of the one that `get_partition_index` returns.
        """
        return self._indexing.states(tables)

    def get_partition_index_progress(self, table: str) -> dict[int, IndexProgress]:
        """Return how many items a table's indexes have, and what their builds have still to read.

        Counts all items.

        Returns:
            By `PartitionIndex.id`, also of FAILED indexes.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        return self._indexing.progress(table)

    def delete_partition_index(self, table: str, name: str) -> None:
        """Delete an index: it is DELETING and no longer read while its items are deleted in batches.

        A running build notices this before its next range of partitions, and ends with an error. An interrupted
        deletion is finished by the next deletion, creation or build of an index of the table.

        Raises:
            TableNotFoundError, IndexNotFoundError: The table or index does not exist.
        """
        self._indexing.delete(table, name)


def _follow_files(
    connection: Connection, definitions: Definitions, table: Table, added: Sequence[Any], removed: Sequence[str]
) -> object:
    # Imported late, as PyIceberg.
    from catalog.partitions.records import follow_files

    return follow_files(connection, definitions, table, added, removed)
