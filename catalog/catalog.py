"""`Catalog`: the one class that every front door is built on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta, tzinfo
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sqlalchemy import Connection

from catalog.datafiles.committing import Committer
from catalog.datafiles.partitions import SchemePartition, scheme_partitions
from catalog.datafiles.pruning import FileScan, scan_files
from catalog.errors import (
    InvalidSchemeError,
    TableAlreadyExistsError,
)
from catalog.iceberg.pointers import delete_pointer
from catalog.importing.imports import Imports
from catalog.indexes.definitions import (
    create_index,
)
from catalog.indexes.verifying import Verification
from catalog.loading.loading import Loading
from catalog.loading.quality_results import QualityResults
from catalog.loading.repairing import RepairMode, RepairReport, Repairs
from catalog.maintenance.maintenance import GRACE, Maintenance
from catalog.maintenance.reports import VacuumReport
from catalog.model import (
    AddResult,
    Buckets,
    Database,
    FileFormat,
    IndexDefinition,
    NewPartition,
    OnInvalid,
    Partition,
    PartitionIndex,
    PartitionState,
    Table,
    TableKind,
)
from catalog.model.identifiers import TableName
from catalog.operations.approvals import Approvals
from catalog.operations.confirmation import Confirmation, PurgedPartition
from catalog.operations.failpoints import Point, reached
from catalog.operations.journal import Operations
from catalog.partitions.adding import PartitionAdder, require_partition_keys
from catalog.partitions.altering import PartitionChange, alter_partition
from catalog.partitions.changing import drop_partitions_in_batches, set_quarantined
from catalog.partitions.explaining import Explanation, explain
from catalog.partitions.indexing import Indexing
from catalog.partitions.purging import (
    PartitionPurge,
    purge_partitions,
)
from catalog.partitions.scanning import Scan, Scanner
from catalog.partitions.specs import PartitionSpec, whole_values
from catalog.partitions.spooling import is_here, taken_in
from catalog.rebalancing.rebalancing import Rebalancing
from catalog.schemes.model import Scheme
from catalog.settings.places import require_root
from catalog.storage import Storage
from catalog.storage.engine import catalog_url
from catalog.storage.upgrade import check_revision, upgrade
from catalog.tables.altering import TableChange, alter_table
from catalog.tables.definitions import (
    ColumnLike,
    Definitions,
    normalise_columns,
    parse_format,
)
from catalog.tables.dropping import drop_table, finish_drop, finish_drops
from catalog.tables.own_files import OthersFiles
from catalog.tables.own_properties import refuse_records
from catalog.tables.purging import refuse_needed_files, refuse_reached_files

if TYPE_CHECKING:
    from catalog.migration.migrations import Migrations


class Catalog:
    """The shared catalog of tables, partitions and partition indexes.

    Table names are written `database.table`; without a database, `default` is meant. Names match without regard to
    case. One object may be used by several threads.

    Attributes:
        operations: Journal of the long-running changes.
        approvals: Which persons have approved which deletions.
        loading: What a load of source files does to the catalog and the files.
        quality: Results of quality checks.
        rebalancing: Changes of the partitions of tables with a partition scheme.
        migrations: Hive tables that become Iceberg tables, and back.
        committer: Makes visible what jobs wrote into tables with a partition scheme.
        maintenance: Clears away what nobody needs any more.
        imports: Brings in the tables of Hive Metastores and of Glue.
    """

    def __init__(self, storage: Storage, warehouse: str | None) -> None:
        """Build the catalog over a database; `Catalog.open` is the usual way."""
        self.storage = storage
        self._definitions = Definitions(storage, warehouse)
        self._scanner = Scanner(storage, self._definitions)
        self._indexing = Indexing(storage, self._definitions)
        self.operations = Operations(storage)
        self.approvals = Approvals(storage)
        self.loading = Loading(storage, self._definitions, self.operations)
        self._repairs = Repairs(storage, self._definitions, self.operations, self.loading)
        self.quality = QualityResults(storage, self._definitions, self.operations)
        self.rebalancing = Rebalancing(storage, self._definitions, self.operations)
        self.committer = Committer(storage, self._definitions, self.operations)
        self.maintenance = Maintenance(storage, self._definitions, self.operations, self.loading)
        self.imports = Imports(storage, self._definitions, self.operations)

    @cached_property
    def migrations(self) -> Migrations:
        """What turns Hive tables into Iceberg tables, and back."""
        # Imported late: with PyIceberg it takes longer than most commands.
        from catalog.migration.migrations import Migrations

        return Migrations(self.storage, self._definitions, self.operations)

    @classmethod
    def open(cls, url: str | None = None, *, warehouse: str | None = None) -> Self:
        """Open the catalog of a database whose schema is there.

        Args:
            url: `postgresql://…` or `sqlite:///…`; by default `CALVE_CATALOG_URL`.
            warehouse: Folder for databases without a location of their own; by default `CALVE_WAREHOUSE`.

        Raises:
            CatalogUnavailableError: No URL is given, the database cannot be reached, or its schema is not the one
                that this version needs.
            InvalidLocationError: The warehouse has a password in it, or options.
        """
        return cls._opened(url, warehouse, check_revision)

    @classmethod
    def initialise(cls, url: str | None = None, *, warehouse: str | None = None) -> Self:
        """Create the schema, or bring it to this version's, and open the catalog; does no harm when done again."""
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
            if_not_exists: Return the one that exists, unchanged.

        Raises:
            DatabaseAlreadyExistsError: It exists, and `if_not_exists` is false.
            InvalidIdentifierError: The name cannot be used.
            InvalidConfigurationError: No location is given and no warehouse is set.
        """
        return self._definitions.create_database(
            name, location=location, description=description, properties=properties, if_not_exists=if_not_exists
        )

    def get_database(self, name: str) -> Database:
        """Return a database.

        Raises:
            DatabaseNotFoundError: There is none of this name.
        """
        return self._definitions.get_database(name)

    def list_databases(self) -> list[Database]:
        """Return all databases, by name."""
        return self._definitions.list_databases()

    def alter_database(
        self, name: str, *, description: str | None = None, properties: Mapping[str, str | None] | None = None
    ) -> Database:
        """Change a database's description, or some of its properties; a property set to None goes away.

        Raises:
            DatabaseNotFoundError: There is none of this name.
        """
        return self._definitions.alter_database(name, description=description, properties=properties)

    def drop_database(self, name: str) -> None:
        """Drop a database that has no tables; its folder is not touched.

        Raises:
            DatabaseNotFoundError: There is none of this name.
            DatabaseNotEmptyError: It has tables.
        """
        self._definitions.drop_database(name)

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
    ) -> Table:
        """Create a table, with up to 3 partition indexes; it and all of them exist afterwards, or nothing does.

        Args:
            columns: The columns inside the data files.
            partition_keys: The partition keys, in the order of the path.
            format: parquet, orc, avro or csv; or textfile, sequencefile, rcfile or jsonfile, of which nothing is read.
            location: Folder of the data files; by default `<database's folder>/<table>`.
            scheme: Places the rows by one of the columns, instead of by partition keys.
            is_external: The files are somebody else's, and stay when the table is dropped. So they are, whatever this
                says, in a folder that holds anything before, and in one of an object store that a location names.
            buckets: Recorded as they are.

        Raises:
            DatabaseNotFoundError: The database does not exist.
            TableAlreadyExistsError: A table of this name exists.
            InvalidRequestError: A name, a type, the format or an index cannot be used.
            LimitExceededError: There are more than 3 indexes.
        """
        refuse_records(properties)
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
            )
            for definition in indexes:
                create_index(connection, table, definition)
        return table

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
        """Create a view: a statement under the name of a table, without partitions, files and location.

        Args:
            sql: The SELECT, kept as it is; nobody looks into it here.
            columns: What the view shows, as far as it is known.
            if_not_exists: Return the table or view that exists, unchanged.

        Raises:
            DatabaseNotFoundError: The database does not exist.
            TableAlreadyExistsError: A table or view of this name exists, and `if_not_exists` is false.
            InvalidRequestError: A name cannot be used.
        """
        refuse_records(properties)
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
        """Return a table.

        Raises:
            TableNotFoundError, DatabaseNotFoundError: There is none of this name.
        """
        return self._definitions.get_table(name)

    def list_tables(self, database: str | None = None) -> list[Table]:
        """Return the tables and views of one database, or of all, by name.

        Raises:
            DatabaseNotFoundError: There is no such database.
        """
        return self._definitions.list_tables(database)

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
        """Change a table: its name (in the same database), its columns and keys, properties, location, or description.

        Of a view, only name, properties and description change. No file is touched: columns are known by their ids,
        and files are read by the names that they were written with (`catalog.tables.columns`). An engine that reads the
        folder by names of its own, as Hive does, sees null in files that have a column under another name. Folders of
        partitions keep the old name of a renamed key.

        Args:
            add_columns: New columns, behind the others, but before the partition column of a scheme. One with the name
                of a column that was renamed or dropped has none of its values.
            change_columns: Name of a column or partition key → what it becomes: another name, type or comment. A
                column's type becomes a wider one of its kind (`catalog.tables.columns.check_type_change`). With an
                index on the table no key changes its name, and no indexed key its type. A key's type changes only if
                all values of its partitions stay the same, as with int → bigint, or string → varchar(9) if none is
                longer.
            drop_columns: Columns that go, without those that rows are placed, sorted or bucketed by. Files keep them.
            column_order: All columns in a new order, by their names afterwards; the partition column of a scheme stays
                the last.
            key_order: All partition keys in a new order; only for a table without partitions, whose folders follow
                the order. No indexed key may move.
            properties: Those to set; one set to None goes away. Those that begin with `calve.` are Calve's own records,
                except the settings (`catalog.tables.own_properties`).
            location: Only for a table without partitions, whose folders would seem to move with it. A folder that holds
                anything makes a managed table an external one.

        Raises:
            TableNotFoundError: There is none of this name.
            TableAlreadyExistsError: The new name is taken.
            InvalidTableError: A column's new name is taken, there is no such column, or partitions do not admit the
                change.
            UnsupportedChangeError: Files could not be read as a column's new type, or the table needs a column that
                should go.
            InvalidKeyTypeError: A key has a type that no partition key can have.
            IndexedKeyError: A partition index does not admit the change of a key.
            NotATableError: It is a view, which has no such thing.
            ConflictError: An operation is changing the table, and more than properties or new columns would change.
        """
        change = TableChange(
            rename_to,
            normalise_columns(add_columns),
            change_columns or {},
            tuple(drop_columns),
            column_order,
            key_order,
            properties,
            location,
            description,
        )
        with self.storage.write() as connection:
            table = self._definitions.lock_table(connection, name, exclusive=True)
            new_name = alter_table(connection, self._definitions, table, change)
        return self.get_table(f"{table.database}.{new_name}")

    def drop_table(self, name: str, *, purge: bool = False, confirmation: Confirmation | None = None) -> OthersFiles:
        """Drop a table with its partitions and indexes, or a view.

        An Iceberg table is dropped with its pointer and with the Hive table that it was; no file of it is touched.
        The table is gone for all readers at once. The rows of its partitions, if they are many, are deleted afterwards,
        a short transaction at a time; `vacuum` finishes what was interrupted.

        Args:
            purge: Delete the files of a managed table, too, after the commit: those in its folder that Calve wrote
                (`catalog.tables.own_files`), except what other tables and their partitions have in it; nothing of it
                when another table has its files all around. Partitions
                elsewhere keep their files, which somebody has put there; so do external tables, as in Hive. Until the
                files are deleted, no table and no partition can be in the folder.
            confirmation: Is asked before a purge.

        Returns:
            The files that a purge has left, because Calve did not write them.

        Raises:
            TableNotFoundError: There is none of this name.
            ConflictError: An operation is changing it.
            FilesNeededError: The files of an Iceberg table, or files that one needs, should be deleted.
            UnreadableMetadataError: It is not known which files an Iceberg table needs.
            FilesNotDeletedError: The table is dropped, and the file system refuses to delete files.
        """
        if purge:
            with self.storage.read() as connection:
                table = self._definitions.get_table(name, connection)
                refuse_needed_files(connection, table)
            refuse_reached_files(self.storage, table)
        with self.storage.write() as connection:
            table = self._definitions.lock_table(connection, name, exclusive=True, or_iceberg=True)
            if purge:
                refuse_needed_files(connection, table)
                if confirmation is not None:
                    confirmation.drop_table(table)
            with_files = purge and table.kind is TableKind.MANAGED
            operation_id = drop_table(connection, self._definitions, self.operations, table, with_files=with_files)
            if table.is_iceberg:
                delete_pointer(connection, table.database, table.name)
        reached(Point.COMMITTED)
        if operation_id is None:
            return OthersFiles()
        return finish_drop(self.storage, self.operations, self.operations.get(operation_id))

    def vacuum(self, table: str | None = None, *, grace: timedelta = GRACE, dry_run: bool = False) -> VacuumReport:
        """Delete the files that no table has any more; done again, or after it was killed, it does the rest.

        Those are files that were replaced or dropped, files of attempts that did not commit, duplicates that a task of
        Spark left, what loads staged that were given up, and folders of dropped tables whose purge was interrupted.
        Tables stay readable and writable; files of an operation that may still be at work stay.

        Args:
            table: None for all, and for what dropped tables left.
            grace: Files that were replaced, or written, or worked on since stay, for the readers that are at work.
            dry_run: Only say what would be deleted.

        Returns:
            What was deleted, and what could not be looked at or deleted; one table stops no other.

        Raises:
            TableNotFoundError: There is no such table.
            InvalidRequestError: The grace period is below 0.
        """
        return self.maintenance.vacuum(table, grace=grace, dry_run=dry_run)

    def finish_drops(self) -> int:
        """Delete what interrupted drops of tables have left; return their number.

        Raises:
            FilesNotDeletedError: The file system refuses.
        """
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

        The iterable is taken in completely before anything is locked, into a temporary file if it is long, so a slow
        one stops nobody and a million partitions need little memory. While more than 10,000, or partitions with
        locations of their own, are being added, other changes of the table's partitions wait.

        Args:
            if_not_exists: Leave out those that exist, instead of refusing the batch.
            on_invalid: REFUSE: a partition that an index does not admit refuses the whole batch. SKIP: the others are
                added, and the result names those that are not.

        Raises:
            TableNotFoundError: There is no such table.
            InvalidPartitionError: A partition does not fit an index, or has more values than the table has keys.
            PartitionAlreadyExistsError: One exists, or is named twice, and `if_not_exists` is false.
            LocationInUseError: Another table, or another partition, has its files in the folder of one; or a load is
                about to put them there, or a purge to delete them.
        """
        if not is_here(partitions):
            # Before anything is consumed for nothing.
            require_partition_keys(self._definitions.get_hive_table(table))
        with taken_in(partitions) as taken, self.storage.write() as connection:
            adder = PartitionAdder(connection, self._definitions, table, is_bulk=taken.is_bulk)
            return adder.add(taken.partitions, if_not_exists=if_not_exists, on_invalid=on_invalid)

    def get_partitions(
        self,
        table: str,
        expression: str | None = None,
        *,
        use_indexes: bool = True,
        state: PartitionState | None = PartitionState.VISIBLE,
    ) -> Iterator[Partition]:
        """Yield the partitions that match an expression, through an index where one serves, in no promised order.

        Args:
            expression: The filter, for instance `country = 'US' and year > 2018`; None or empty for all.
            use_indexes: False reads all partitions; the answer is the same.
            state: VISIBLE for what readers see, QUARANTINED for what is held back, None for both.

        Raises:
            TableNotFoundError: There is no such table.
            ExpressionError: The expression cannot be used; its subclasses say why.
        """
        return self._scanner.scan(table, expression, use_indexes=use_indexes, state=state).partitions

    def scan_partitions(self, table: str, expression: str | None = None, *, use_indexes: bool = True) -> Scan:
        """Return a search with its plan and counts; `get_partitions` is its `partitions`."""
        return self._scanner.scan(table, expression, use_indexes=use_indexes, state=PartitionState.VISIBLE)

    def explain_partitions(self, table: str, expression: str | None = None) -> Explanation | FileScan:
        """Find the partitions, and of a table with a partition scheme the files, of an expression; tell how that went.

        Raises:
            TableNotFoundError: There is no such table.
            ExpressionError: The expression cannot be used.
        """
        if self._definitions.get_hive_table(table).scheme is not None:
            return self.scan_files(table, expression)
        return explain(self.scan_partitions(table, expression))

    def scan_files(self, table: str, expression: str | None = None, *, zone: tzinfo | None = None) -> FileScan:
        """Return the data files of a table with a partition scheme that may hold rows of which an expression is true.

        Args:
            expression: The filter, on any column whose values compare and on `_partition_id`; None for all rows.
                Partitions are told by the partition column, and files by it and the sort columns.
            zone: The time zone of the literals that timestamps are compared with; None for UTC.

        Raises:
            TableNotFoundError: There is no such table.
            InvalidSchemeError: It has no partition scheme.
            ExpressionError: The expression cannot be used.
        """
        with self.storage.read() as connection:
            return scan_files(connection, self._with_scheme(connection, table), expression, zone)

    def scheme_partitions(self, table: str, expression: str | None = None) -> list[SchemePartition]:
        """Return the partitions of a table with a partition scheme in logical order, empty ones too.

        Args:
            expression: Only the partitions that may hold rows of which this filter is true.

        Raises:
            TableNotFoundError: There is no such table.
            InvalidSchemeError: It has no partition scheme.
            ExpressionError: The expression cannot be used.
        """
        with self.storage.read() as connection:
            return scheme_partitions(connection, self._with_scheme(connection, table), expression)

    def _with_scheme(self, connection: Connection, name: str) -> Table:
        table = self._definitions.get_hive_table(name, connection)
        if table.scheme is None:
            raise InvalidSchemeError(f"table {table.full_name} has no partition scheme")
        return table

    def get_partition(self, table: str, values: Sequence[str | None]) -> Partition:
        """Return one partition by its values, quarantined or not; `01` finds the int `1`.

        Raises:
            PartitionNotFoundError: The table has none with these values.
        """
        return self._scanner.get(table, values)

    def drop_partitions(self, table: str, expression: str | None = None) -> int:
        """Drop the visible partitions that match an expression, with their index items; their files are not touched.

        Up to 10,000 partitions are dropped in one transaction, more in several, so that nobody waits long: readers may
        see that some of them are gone already. After an interruption the same call drops the rest.

        Args:
            expression: None drops them all.

        Returns:
            How many were dropped.

        Raises:
            TableNotFoundError: There is no such table.
            ExpressionError: The expression cannot be used.
        """
        ids = [partition.id for partition in self.get_partitions(table, expression)]
        return drop_partitions_in_batches(self.storage, self._definitions, table, ids)

    def purge_partitions(
        self, table: str, expression: str | None = None, *, confirmation: Confirmation | None = None
    ) -> PartitionPurge:
        """Drop the visible partitions that match an expression, as `drop_partitions` does, and delete their files.

        Only files that Calve wrote go (`catalog.tables.own_files`), in folders inside that of a managed table, and
        nothing that another table or partition has in them; the report tells what stays, and why. A reader that is at
        work on the partitions fails. A purge that was interrupted is finished by `vacuum`.

        Args:
            expression: None drops them all.
            confirmation: Is asked before any is dropped. Those that are changed later are not dropped then.

        Raises:
            TableNotFoundError: There is no such table.
            ExpressionError: The expression cannot be used.
            FilesNeededError: An Iceberg table reads files of the table; nothing was dropped.
            UnreadableMetadataError: It is not known which files an Iceberg table needs; nothing was dropped.
            ConflictError: A partition was changed after the confirmation.
            FilesNotDeletedError: The partitions are dropped, and the file system refuses to delete files.
        """
        definition = self.get_table(table)
        partitions = [PurgedPartition.of(partition) for partition in self.get_partitions(table, expression)]
        return purge_partitions(self.storage, self._definitions, self.operations, definition, partitions, confirmation)

    def drop_partition(self, table: str, spec: PartitionSpec, *, if_exists: bool = False) -> int:
        """Drop the partition that a spec names, or all that match one without some of the keys; as `drop_partitions`.

        Quarantined partitions are dropped, too.

        Args:
            spec: Partition key → value, unescaped; None is Hive's null.
            if_exists: No partition is as good as one.

        Returns:
            How many were dropped.

        Raises:
            TableNotFoundError: There is no such table.
            InvalidPartitionSpecError: The spec names no key, something that is none, or a key twice.
            PartitionNotFoundError: None matches, and `if_exists` is false.
        """
        definition = self.get_table(table)
        ids = self._scanner.find_by_spec(definition, spec, or_none=if_exists)
        return drop_partitions_in_batches(self.storage, self._definitions, table, ids)

    def alter_partition(
        self,
        table: str,
        spec: PartitionSpec | Sequence[str | None],
        *,
        location: str | None = None,
        format: str | None = None,
        properties: Mapping[str, str | None] | None = None,
        rename_to: PartitionSpec | Sequence[str | None] | None = None,
    ) -> Partition:
        """Change one partition, quarantined or not, and its index items with it, in one transaction.

        No file is touched or looked at. A partition that is renamed keeps its files where they are, unlike a managed
        one of Hive's: moving the folder would take it from under running readers, and who is killed between the move
        and the commit would leave a partition without files. Another partition that is added under the old values later
        needs a folder of its own, and `append_rows` gives it one.

        Args:
            spec: All keys → values, or the values in the order of the keys.
            location: The folder of its files; how many rows and files are there is not known then.
            format: The format of its files, for instance orc; naming the table's takes it back.
            properties: Those to set; one set to None goes away.
            rename_to: Its new values, in either form.

        Returns:
            The partition afterwards; a renamed one has a new id.

        Raises:
            TableNotFoundError, PartitionNotFoundError: There is no such table or partition.
            InvalidPartitionSpecError: A name is no partition key.
            PartialPartitionSpecError: A key has no value.
            InvalidTableError: There is no such format.
            InvalidPartitionError: A partition index does not admit the new values, or an encrypted partition.
            PartitionAlreadyExistsError: Another partition has the new values.
            LocationInUseError: Another table, or another partition, has its files in the new location; or a load is
                about to put them there, or a purge to delete them.
        """
        with self.storage.write() as connection:
            is_bulk = location is not None
            held = self._definitions.lock_table(connection, table, exclusive=False, is_bulk=is_bulk)
            change = PartitionChange(
                location,
                None if format is None else parse_format(format),
                properties,
                None if rename_to is None else whole_values(held, rename_to),
            )
            values = alter_partition(connection, held, whole_values(held, spec), change)
        return self._scanner.get(table, values)

    def repair_table(
        self,
        table: str,
        *,
        mode: RepairMode = RepairMode.ADD,
        operation_id: str | None = None,
        requested_by: str | None = None,
    ) -> RepairReport:
        """Register the partitions whose folders are below the table's location, as Hive's MSCK REPAIR TABLE does.

        A folder `k=v/k2=v2` is a partition, whatever is in it; escaped values are decoded, and hidden parts passed
        over. Those that do not fit are reported and stop nothing: of other names, with a value that an index does not
        admit, or of a partition that lies elsewhere. It is an exclusive operation, as loads are, and first undoes what
        interrupted ones have moved. Done again after it was interrupted, it goes on.

        Args:
            mode: ADD for new partitions; DROP to drop those whose folders are gone; SYNC for both.
            operation_id: Of a caller who may have to ask again.

        Raises:
            TableNotFoundError: There is no such table.
            NotATableError, InvalidPartitionError: It is a view, or has no partition keys.
            OperationConflictError: Another operation is at work on the table.
            VerificationFailedError: Partitions were to be dropped, and the table's whole location is not there.
        """
        return self._repairs.repair(table, mode, operation_id=operation_id, requested_by=requested_by)

    def operation_partitions(self, operation_id: str) -> Iterator[Partition]:
        """Yield the partitions that an operation added, quarantined or not.

        Raises:
            OperationNotFoundError: There is no such operation.
        """
        operation = self.operations.get(operation_id)
        return self._scanner.of_operation(operation.table, operation.number)

    def release_partitions(self, table: str, expression: str | None = None) -> int:
        """Make the quarantined partitions that match an expression visible; return how many.

        Raises:
            TableNotFoundError: There is no such table.
            ExpressionError: The expression cannot be used.
        """
        found = self.get_partitions(table, expression, state=PartitionState.QUARANTINED)
        ids = [partition.id for partition in found]
        with self.storage.write() as connection:
            held = self._definitions.lock_table(connection, table, exclusive=False, is_bulk=True)
            return set_quarantined(connection, held, ids, False)

    # --- partition indexes --------------------------------------------------------------------------------------

    def create_partition_index(self, table: str, name: str, keys: Sequence[str]) -> PartitionIndex:
        """Create a partition index: ACTIVE at once on a table without partitions, else CREATING until it is built.

        From now on the table refuses partitions that do not fit the index. Several indexes of a table may be CREATING.
        Deletions that were interrupted, or are under way, are finished first.

        Raises:
            TableNotFoundError: There is no such table.
            InvalidIndexError: It names no key, a key twice, or a column that is no partition key.
            LimitExceededError: The table has 3 indexes, FAILED ones not counted.
            IndexAlreadyExistsError: An index that is not FAILED has the same name or the same keys.
        """
        return self._indexing.create(table, name, keys)

    def build_partition_index(self, table: str, name: str) -> PartitionIndex:
        """Build a CREATING index in this process and return how it ended, ACTIVE or FAILED.

        A build that was interrupted goes on where it stopped; of several at once each does a part. For large tables
        the Spark job does the same in parallel.

        Raises:
            IndexNotFoundError: There is no such index.
            IndexBuildEndedError: It was deleted, cancelled, or has FAILED meanwhile.
        """
        return self._indexing.build(table, name)

    def cancel_partition_index_build(
        self, table: str, name: str, *, reason: str = "the build was cancelled"
    ) -> PartitionIndex:
        """Give the build of a CREATING index up: it is FAILED with the code CANCELLED, and its items go.

        Whoever builds it, notices before the next range of partitions and ends with an error. To stop a build and let
        it go on later, end the process, or the Airflow task, instead.

        Raises:
            TableNotFoundError, IndexNotFoundError: There is no such table or index.
            ConflictError: The index is not CREATING.
        """
        return self._indexing.cancel(table, name, reason)

    def verify_partition_index(self, table: str, name: str, *, repair: bool = False) -> Verification:
        """Compare an ACTIVE index with the partitions in this process, while the table stays readable and writable.

        For large tables the Spark job does the same in parallel.

        Args:
            repair: Repair what differs, in short transactions that hold the table.

        Raises:
            TableNotFoundError, IndexNotFoundError: There is no such table or index.
            ConflictError: The index is not ACTIVE, or was deleted meanwhile.
        """
        return self._indexing.verify(table, name, repair=repair)

    def get_partition_indexes(self, table: str) -> list[PartitionIndex]:
        """Return a table's indexes, oldest first, FAILED ones included.

        Raises:
            TableNotFoundError: There is no such table.
        """
        return self._indexing.list(table)

    def get_partition_index(self, table: str, name: str) -> PartitionIndex:
        """Return one index of a table.

        Raises:
            TableNotFoundError, IndexNotFoundError: There is no such table or index.
        """
        return self._indexing.get(table, name)

    def delete_partition_index(self, table: str, name: str) -> None:
        """Delete an index: it is DELETING, and not read any more, while its items go in batches; then it is gone.

        A build of it notices before the next range of partitions and ends with an error. A deletion that was
        interrupted is finished by the next one, and when an index of the table is created or built.

        Raises:
            TableNotFoundError, IndexNotFoundError: There is no such table or index.
        """
        self._indexing.delete(table, name)
