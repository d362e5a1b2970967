"""Entries of partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from catalog.catalog import Catalog
from catalog.doors.entries.iceberg import is_shown_as_iceberg
from catalog.doors.entries.partition_forms import PartitionForms
from catalog.doors.entries.tables import TableMethods, normalised
from catalog.errors import IcebergTableError, InvalidTableError, PartitionAlreadyExistsError, PartitionNotFoundError
from catalog.files.folders import make_folders, missing_folders, remove_folders
from catalog.files.locations import local_path
from catalog.metastores.types import HivePartition, HiveTable
from catalog.model import AddResult, NewPartition, Partition, PartitionState, Table, TableKind
from catalog.model.identifiers import TableName
from catalog.partitions.names import SortedNames
from catalog.partitions.scans import Scan
from catalog.settings.places import require_partition_locations
from catalog.storage.partition_rows import PartitionRecord
from catalog.tables.normalising import normalise_location

ORDERED = 10_000
"""Most partitions of which those within a limit are the first by name; the protocols promise no order."""

_KEPT = 256
"""The number of tables whose forms are kept for the next search."""

Translate: TypeAlias = Callable[[HiveTable], str | None]
"""Returns a filter of a protocol as an expression of Calve, given the table's entry; None for all partitions."""


class FoundRows(NamedTuple):
    """Rows of partitions that a search has found.

    Attributes:
        forms: The converter of the table as of the search.
        pages: The rows, in pages that are not empty.
    """

    forms: PartitionForms
    pages: Iterator[Sequence[PartitionRecord]]


class PartitionMethods(TableMethods):
    """Addition, search, change and drop of partitions.

    Partitions that a quality check has hidden from readers are hidden here, too.
    """

    def __init__(self, catalog: Catalog) -> None:
        """Set the catalog."""
        super().__init__(catalog)
        self._known_forms: dict[tuple[int, int], PartitionForms] = {}
        self._latest_forms: dict[TableName, PartitionForms] = {}

    def forms(self, name: TableName) -> PartitionForms:
        """Return the converter of a table's partitions.

        Raises:
            TableNotFoundError: The table does not exist.
            IcebergTableError: It is an Iceberg table.
        """
        table = self._table(name)
        if is_shown_as_iceberg(table):
            raise IcebergTableError(
                f"table {table.full_name} is an Iceberg table, whose partitions are in its metadata, and not in the "
                "catalog; read and change it as Iceberg"
            )
        return self._forms_of(table)

    def add_partitions(
        self, name: TableName, given: Iterable[HivePartition], *, if_not_exists: bool = False
    ) -> AddResult:
        """Add partitions, all or none, and make their folders.

        Args:
            if_not_exists: Skip existing partitions, instead of refusing the batch.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionError: A partition has not one value for each key, an index does not admit it, or a folder
                has the values of a partition in another folder, in another spelling.
            PartitionAlreadyExistsError: A partition exists or is named twice, and `if_not_exists` is false; or one is
                quarantined.
            LocationInUseError: Another table or partition uses a partition's folder.
            StorageError: A folder cannot be created; nothing was added.
        """
        forms = self.forms(name)
        # What is skipped must be in the folder that was given, even if that is a default one.
        partitions, folders = _with_folders(forms, forms.new(given), keeps_default=if_not_exists)
        if if_not_exists:
            self._refuse_quarantined(forms, [partition.values for partition in partitions])
        made = make_folders(folders)
        try:
            result = self.catalog.add_partitions(forms.table.full_name, partitions, if_not_exists=if_not_exists)
        except BaseException:
            # Another process may have added some of them meanwhile, to folders that were made here.
            known = self._visible(forms, [partition.values for partition in partitions])
            kept = {local_path(partition.location) for partition in known}
            remove_folders([path for path in made if path not in kept])
            raise
        # A folder that was there may have been that of an interrupted move, which has returned meanwhile.
        make_folders(missing_folders(folders))
        return result

    def partitions(self, name: TableName, expression: str | None = None, limit: int = -1) -> Iterator[HivePartition]:
        """Yield the partitions that match an expression of Calve's filter language, through an index if possible.

        An Iceberg table has none here.

        Args:
            expression: None for all.
            limit: The maximum number of partitions; -1 for all.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
        """
        return self._read(self._scan(name, expression), limit)

    def _read(self, scan: Scan | None, limit: int) -> Iterator[HivePartition]:
        found = _limited(scan, limit)
        first = next(found, None)
        if scan is not None and first is not None:
            # Only after the first result, the table is that of the search.
            yield from self._forms_of(scan.table).read(chain([first], found))

    def _scan(self, name: TableName, expression: str | None) -> Scan | None:
        """Return a search; None for an Iceberg table."""
        try:
            scan = self.catalog.scan_partitions(str(normalised(name)), expression)
        except IcebergTableError:
            return None
        return None if is_shown_as_iceberg(scan.table) else scan

    def partition_rows(self, name: TableName, translate: Translate, columns: Sequence[str], limit: int) -> FoundRows:
        """Return the rows of the partitions that match a filter of a protocol; of few, the first ones by name.

        An Iceberg table has none here. The table is that of the last search if it has not changed since, so that most
        searches are one statement.

        Args:
            translate: Returns the filter as an expression of Calve, given the table's entry; None for all partitions.
            columns: As for `Catalog.scan_partition_rows`.
            limit: The maximum number of partitions; -1 for all.

        Raises:
            TableNotFoundError: The table does not exist.
            ExpressionError: The expression is invalid.
            Exception: The filter cannot be translated.
        """
        forms = self._latest_forms.get(name)
        if forms is not None:
            # Whatever fails may be due to a change of the table; what is wrong with its new version is raised below.
            with suppress(Exception):
                found = self._rows(forms, translate, columns, limit)
                if found is not None:
                    return found
        while True:
            table = self._table(name)
            forms = self._forms_of(table)
            if is_shown_as_iceberg(table):
                translate(forms.entry)
                return FoundRows(forms, iter(()))
            if len(self._latest_forms) >= _KEPT:
                self._latest_forms.clear()
            self._latest_forms[name] = forms
            found = self._rows(forms, translate, columns, limit)
            if found is not None:
                return found

    def _rows(
        self, forms: PartitionForms, translate: Translate, columns: Sequence[str], limit: int
    ) -> FoundRows | None:
        """Return the rows that a search finds; None if the table has changed."""
        scan = self.catalog.scan_partition_rows(forms.table.full_name, translate(forms.entry), columns=columns)
        first: list[PartitionRecord] = []
        for page in scan.pages:
            first += page
            if len(first) > ORDERED:
                break
        if (scan.table.id, scan.table.version) != (forms.table.id, forms.table.version):
            return None
        if len(first) <= ORDERED:
            # The packed values have the order of the names.
            first.sort(key=itemgetter(0))
        return FoundRows(forms, _first(chain([first], scan.pages), limit))

    def sorted_names(self, name: TableName, translate: Translate, limit: int = -1) -> SortedNames:
        """Return the names of the partitions that match a filter of a protocol; see `partition_rows`."""
        table = self._table(name)
        is_iceberg = is_shown_as_iceberg(table)
        if limit < 0 and not is_iceberg and translate(self._forms_of(table).entry) is None:
            return self.catalog.sorted_partition_names(table.full_name)
        found = self.partition_rows(name, translate, (), limit)
        names = SortedNames(found.forms.table.key_names)
        for page in found.pages:
            names.add(pa.array([row[0] for row in page]))
        return names

    def partition_names(self, name: TableName, expression: str | None = None, limit: int = -1) -> list[str]:
        """Return the names `k=v/k2=v2` of the partitions that match an expression, sorted; see `partitions`."""
        return self.sorted_names(name, lambda _entry: expression, limit).as_list()

    def partition(self, name: TableName, values: Sequence[str]) -> HivePartition:
        """Return one partition.

        Raises:
            TableNotFoundError, PartitionNotFoundError: The table or partition does not exist.
            InvalidPartitionError: There is not one value for each key.
        """
        forms = self.forms(name)
        own = forms.values(values)
        partition = self.catalog.get_partition(forms.table.full_name, own)
        if partition.state is not PartitionState.VISIBLE:
            raise PartitionNotFoundError(f"table {forms.table.full_name} has no visible partition {forms.name(own)}")
        [entry] = forms.read([partition])
        return entry

    def partitions_by_values(self, name: TableName, values: Iterable[Sequence[str]]) -> list[HivePartition]:
        """Return those of many partitions that exist, in the order of the values.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidPartitionError: A partition has not one value for each key.
        """
        forms = self.forms(name)
        return list(forms.read(self._visible(forms, list(dict.fromkeys(map(forms.values, values))))))

    def _refuse_quarantined(self, forms: PartitionForms, own: Sequence[Sequence[str | None]]) -> None:
        """Check that no partition is quarantined: engines would write rows to it that nobody sees."""
        batch = self.catalog.batch_get_partitions(forms.table.full_name, own)
        hidden = [found for found in batch.partitions if found.state is PartitionState.QUARANTINED]
        if hidden:
            table = forms.table.full_name
            raise PartitionAlreadyExistsError(
                f"partition {forms.name(hidden[0].values)} of table {table} is quarantined, and hides all rows in its "
                f"folder; release it first (`calve quarantine {table} --release --reason …`), or drop it. Nothing was "
                "added"
            )

    def _visible(self, forms: PartitionForms, own: Sequence[Sequence[str | None]]) -> list[Partition]:
        batch = self.catalog.batch_get_partitions(forms.table.full_name, own)
        return [partition for partition in batch.partitions if partition.state is PartitionState.VISIBLE]

    def alter_partitions(self, name: TableName, changes: Iterable[tuple[Sequence[str], HivePartition]]) -> None:
        """Replace all that entries say of partitions, perhaps their values, too; all or none.

        The folder of a renamed partition of a managed table moves (`catalog.partitions.entries`). Without a location or
        a time of creation, a partition keeps its own.

        Args:
            changes: The values of a partition, and its new entry.

        Raises:
            TableNotFoundError, PartitionNotFoundError: The table or a partition does not exist; nothing was changed.
            PartitionAlreadyExistsError: Another partition has the new values.
            InvalidPartitionError: A partition has not one value for each key, or an index does not admit it.
            LocationInUseError: Another table or partition uses a new location.
        """
        forms = self.forms(name)
        replaced = [(forms.values(values), partition) for values, partition in changes]
        new = forms.new(partition for _, partition in replaced)
        made = make_folders(partition.location for partition in new if partition.location is not None)
        try:
            self.catalog.partition_entries.replace(
                forms.table, [(values, partition) for (values, _), partition in zip(replaced, new, strict=True)]
            )
        except BaseException:
            remove_folders(made)
            raise

    def exchange_partitions(self, spec: Mapping[str, str], source: TableName, target: TableName) -> list[HivePartition]:
        """Move the partitions with some values, and their files, from one table to another; return them, moved.

        Args:
            spec: Partition key → value; some keys may be missing.

        Raises:
            TableNotFoundError: A table does not exist.
            PartitionNotFoundError: The source has no such partition.
            PartitionAlreadyExistsError: The target has one of the partitions; nothing was moved.
            InvalidTableError: The tables differ in their columns or partition keys.
            InvalidPartitionSpecError: A name is not a partition key.
            UnsupportedChangeError: A table is stored as Iceberg, or the files are on an object store.
            LocationInUseError: Another partition of the source has its files in a folder that would move.
            MissingFileError: The folder of a partition does not exist; nothing was moved.
        """
        before, after = self.forms(source), self.forms(target)
        if (before.table.columns, before.table.partition_keys) != (after.table.columns, after.table.partition_keys):
            raise InvalidTableError(
                f"tables {before.table.full_name} and {after.table.full_name} differ in their columns or partition "
                "keys; only tables with the same ones can exchange partitions"
            )
        found = self.catalog.partitions_of(before.table.full_name, spec)
        found = [partition for partition in found if partition.state is PartitionState.VISIBLE]
        if not found:
            raise PartitionNotFoundError(f"table {before.table.full_name} has no partition with {dict(spec)}")
        new = after.new(before.read(found))
        moved = [(partition.id, entry) for partition, entry in zip(found, new, strict=True)]
        self.catalog.partition_entries.exchange(before.table, after.table, moved)
        return list(after.read(self._visible(after, [partition.values for partition in found])))

    def drop_partitions(
        self, name: TableName, values: Iterable[Sequence[str]], *, delete_data: bool = False, if_exists: bool = False
    ) -> int:
        """Drop partitions; return their number.

        Args:
            delete_data: Delete the files in the folder of a managed table, of all writers, after the commit.
            if_exists: Skip those that do not exist, instead of dropping none.

        Raises:
            TableNotFoundError, PartitionNotFoundError: The table or a partition does not exist.
            InvalidPartitionError: A partition has not one value for each key.
        """
        forms = self.forms(name)
        own = list(dict.fromkeys(map(forms.values, values)))
        known = {partition.values for partition in self._visible(forms, own)}
        if not if_exists and len(known) < len(own):
            missing = next((forms.name(wanted) for wanted in own if wanted not in known), forms.name(own[0]))
            raise PartitionNotFoundError(
                f"table {forms.table.full_name} has no partition {missing}; nothing was dropped"
            )
        table = forms.table.full_name
        if delete_data and forms.table.kind is TableKind.MANAGED and not forms.table.is_stored_as_iceberg:
            dropped = self.catalog.purge_partitions(table, values=own, all_files=True).dropped
        else:
            dropped = self.catalog.batch_delete_partitions(table, own).changed
        if not if_exists and dropped < len(own):
            raise PartitionNotFoundError(
                f"{len(own) - dropped:,} of {len(own):,} partition(s) of table {table} were dropped or renamed by "
                "others meanwhile; the rest was dropped"
            )
        return dropped

    def truncate(self, name: TableName, values: Iterable[Sequence[str]] | None = None) -> None:
        """Delete the files of a managed table, or of partitions, of all writers; definitions stay.

        Args:
            values: The values of partitions, of which those that do not exist are skipped; None for all rows.

        Raises:
            TableNotFoundError: The table does not exist.
            UnsupportedChangeError, OperationConflictError, FilesNeededError, UnreadableMetadataError, StorageError: As
                for `catalog.partitions.truncating.truncate`.
        """
        forms = self.forms(name)
        found: Iterable[Partition] | None = None
        if forms.table.partition_keys:
            if values is None:
                found = self.catalog.get_partitions(forms.table.full_name)
            else:
                found = self._visible(forms, list(dict.fromkeys(map(forms.values, values))))
        self.catalog.partition_entries.truncate(
            forms.table, None if found is None else [partition.id for partition in found]
        )

    def _forms_of(self, table: Table) -> PartitionForms:
        if table.is_only_iceberg:
            return PartitionForms(self.catalog.storage, table)
        # Each change of a table gives it another version.
        key = table.id, table.version
        if (forms := self._known_forms.get(key)) is None:
            if len(self._known_forms) >= _KEPT:
                self._known_forms.clear()
            forms = self._known_forms[key] = PartitionForms(self.catalog.storage, table)
        return forms


def _first(pages: Iterable[Sequence[PartitionRecord]], limit: int) -> Iterator[Sequence[PartitionRecord]]:
    """Yield the rows of pages, which are not empty then, up to a limit; less than 0 for all."""
    for page in pages:
        chosen = page if limit < 0 else page[:limit]
        if chosen:
            yield chosen
        if limit >= 0:
            limit -= len(chosen)
            if not limit:
                return


def _limited(scan: Scan | None, limit: int) -> Iterator[Partition]:
    if scan is None:
        return iter(())
    return scan.partitions if limit < 0 else islice(scan.partitions, limit)


def _with_folders(
    forms: PartitionForms, partitions: Sequence[NewPartition], *, keeps_default: bool
) -> tuple[list[NewPartition], list[str]]:
    """Return partitions, with None for default locations unless they are kept, and the folders of all.

    Raises:
        LocationNotAllowedError, InvalidLocationError: A location is not allowed.
    """
    table = forms.table
    known: list[NewPartition] = []
    folders: list[str] = []
    own: list[str] = []
    for partition in partitions:
        default = table.default_partition_location(forms.name(partition.values))
        if partition.location is not None and partition.location.rstrip("/") != default:
            location = normalise_location(partition.location)
            own.append(location)
            folders.append(location)
        else:
            folders.append(default)
            partition = partition if partition.location is None or keeps_default else replace(partition, location=None)
        known.append(partition)
    require_partition_locations(table, own)
    return known, folders
