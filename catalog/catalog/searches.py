"""The methods of `Catalog` that find partitions and data files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection

from catalog.catalog.tables import TableMethods
from catalog.errors import CatalogLockedError, InvalidTableError, UnsupportedCommitError
from catalog.model import Partition, PartitionState, Table
from catalog.model.batches import PartitionBatch, PartitionKey

if TYPE_CHECKING:
    from catalog.datafiles.partitions import SchemePartition
    from catalog.datafiles.pruning import FileScan
    from catalog.partitions.explaining import Explanation
    from catalog.partitions.names import SortedNames
    from catalog.partitions.paging import Page, Position, Segment
    from catalog.partitions.scans import RowScan, Scan
    from catalog.partitions.snapshots import PartitionFiles
    from catalog.partitions.specs import PartitionSpec

AnyScan = TypeVar("AnyScan", "Scan", "RowScan")


class SearchMethods(TableMethods):
    """Searches of partitions, and of data files."""

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

    def get_partition(self, table: str, values: Sequence[str | None]) -> Partition:
        """Return one partition by its values, visible or quarantined; `01` finds the int `1`.

        Raises:
            PartitionNotFoundError: The table has no partition with these values.
        """
        return self._scanner.get(self.get_table(table), values)

    def partitions_of(self, table: str, spec: PartitionSpec) -> list[Partition]:
        """Return the partitions with the values of a spec, of which some keys may be missing, including hidden ones.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionSpecError: The spec does not fit the table.
        """
        from catalog.partitions.specs import spec_values

        definition = self.get_table(table)
        return self._scanner.with_values(definition, spec_values(definition, spec))

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

    def partition_page(
        self,
        table: str,
        expression: str | None = None,
        *,
        limit: int,
        position: Position | None = None,
        segment: Segment | None = None,
        nulls_are_texts: bool = False,
    ) -> Page:
        """Return a page of the visible partitions that match an expression, in the order of their ids.

        All partitions that exist while the pages are read are on exactly one page. A page begins after a position,
        which any process can continue from at any time.

        Args:
            limit: The greatest number of partitions on the page.
            position: `Page.following` of the page before; None for the first page.
            segment: Return only the partitions of one of several disjoint parts of the table.
            nulls_are_texts: Compare the null of a string key as the string `__HIVE_DEFAULT_PARTITION__`, as Glue does;
                otherwise it fulfils no comparison.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
            InvalidRequestError: The limit is less than 1.
        """
        return self._pages.page(
            table, expression, limit=limit, position=position, segment=segment, nulls_are_texts=nulls_are_texts
        )

    def folders_of_versions(self, table: str) -> dict[str, tuple[str | None, ...]]:
        """Return the folders that vacuum will empty or delete (`catalog.partitions.versions`), with their values.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        from catalog.partitions.versions import folders_of_versions

        with self.storage.read() as connection:
            return folders_of_versions(connection, self._definitions.get_table(table, connection))

    def folders_inside(self, table: Table, partitions: Iterable[Partition]) -> dict[str, set[str]]:
        """Return the folders of other partitions and tables inside those of partitions: location → folders.

        Only custom locations may have folders of others inside.
        """
        from catalog.partitions.folders import folders_inside
        from catalog.partitions.versions import is_version

        custom = [
            partition.location
            for partition in partitions
            if not is_version(partition.location)
            and partition.location != table.default_partition_location(partition.name(table))
        ]
        if not custom:
            return {}
        with self.storage.read() as connection:
            return folders_inside(connection, table, custom)

    def scan_partitions(self, table: str, expression: str | None = None, *, use_indexes: bool = True) -> Scan:
        """Return a search with its plan and counts; `get_partitions` is its `partitions`."""
        return self._scan(table, expression, use_indexes=use_indexes, state=PartitionState.VISIBLE)

    def partition_names(
        self,
        table: str,
        expression: str | None = None,
        *,
        use_indexes: bool = True,
        state: PartitionState | None = PartitionState.VISIBLE,
    ) -> Iterator[str]:
        """Yield the names `k=v/k2=v2` of the partitions that match an expression, in no particular order.

        Takes half the time of `get_partitions`, with the same arguments and errors.
        """
        from catalog.storage.partition_rows import names_of

        scan = self.scan_partition_rows(table, expression, use_indexes=use_indexes, state=state)
        return (name for page in scan.pages for name in names_of(scan.table.key_names, [row[0] for row in page]))

    def sorted_partition_names(self, table: str) -> SortedNames:
        """Return the names of all visible partitions in their order, with a few bytes of memory for each.

        Raises:
            TableNotFoundError: The table does not exist.
        """
        from catalog.partitions.names import read_names

        if self._definitions.get_hive_table(table).is_stored_as_iceberg:
            self._take_in(table, PartitionState.VISIBLE)
        with self.storage.read() as connection:
            definition = self._definitions.get_hive_table(table, connection)
            return read_names(connection, definition, is_quarantined=False)

    def scan_partition_rows(
        self,
        table: str,
        expression: str | None = None,
        *,
        columns: Sequence[str] = (),
        use_indexes: bool = True,
        state: PartitionState | None = PartitionState.VISIBLE,
    ) -> RowScan:
        """Return a search for the rows of partitions that match an expression, for other protocols.

        Creates no `Partition`, and reads only the columns that the caller needs.

        Args:
            expression, use_indexes, state: As for `get_partitions`.
            columns: Columns of `catalog.storage.schema.PartitionRow`; a row has the values of `packed_values` and of
                `is_quarantined`, and then theirs.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
        """
        search = partial(self._scanner.scan_rows, table, expression, columns, use_indexes=use_indexes, state=state)
        return self._counted(search, table, expression, state)

    def _take_in(self, table: str, state: PartitionState | None) -> None:
        """Take in what other engines have committed to a table stored as Iceberg; log a warning if it is held.

        Raises:
            UnsupportedCommitError: Calve cannot follow a commit, so its partitions are not known. Quarantined ones are,
                and a decision about them may be what the commit waits for.
        """
        from catalog.datafiles.intake import catch_up_or_warn

        is_hidden = state is PartitionState.QUARANTINED
        errors = (CatalogLockedError, UnsupportedCommitError) if is_hidden else (CatalogLockedError,)
        catch_up_or_warn(self.storage, self._definitions, self._definitions.get_hive_table(table), errors)

    def _scan(self, table: str, expression: str | None, *, use_indexes: bool, state: PartitionState | None) -> Scan:
        search = partial(self._scanner.scan, table, expression, use_indexes=use_indexes, state=state)
        return self._counted(search, table, expression, state)

    def _counted(
        self, search: Callable[[], AnyScan], table: str, expression: str | None, state: PartitionState | None
    ) -> AnyScan:
        """Return a search, which has taken in the commits of other engines, and count it."""
        scan = search()
        if expression and self.searched is not None:
            self.searched(scan.table.full_name, scan.is_by_index)
        if not scan.table.is_stored_as_iceberg:
            return scan
        self._take_in(table, state)
        return search()

    def explain_partitions(self, table: str, expression: str | None = None) -> Explanation | FileScan:
        """Run the search for an expression, and return how it found the partitions.

        For a table with a partition scheme, return how partitions and files were pruned.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
        """
        from catalog.datafiles.files import number_of_files
        from catalog.datafiles.pruning import scan_files
        from catalog.partitions.explaining import explain

        if self._definitions.get_hive_table(table).scheme is not None:
            with self._reading_scheme(table) as (connection, definition):
                scan = scan_files(connection, definition, expression)
                return replace(scan, files_total=number_of_files(connection, definition))
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
