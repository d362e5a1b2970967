"""The methods of `Catalog` for maintenance and for upgrades from earlier versions."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from catalog.catalog.core import Core
from catalog.model import GRACE

if TYPE_CHECKING:
    from catalog.maintenance.reports import VacuumReport


class UpkeepMethods(Core):
    """Vacuum, interrupted drops, and tables of earlier versions."""

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

    def finish_drops(self) -> int:
        """Finish interrupted drops of tables; return their number.

        Raises:
            FilesNotDeletedError: The file system refused to delete files.
        """
        from catalog.tables.dropping import finish_drops

        return finish_drops(self.storage, self.operations)

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
