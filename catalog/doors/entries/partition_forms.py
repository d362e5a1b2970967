"""Conversion between Calve's partitions and the entries of metastores, many at a time.

Most partitions of a table share one storage, so that a partition costs little more than its tuple.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

from catalog.doors.entries.csv_tables import (
    CSV_STORAGE,
    csv_format,
    is_calves,
    is_refused,
    own_storage,
    refused_storage,
)
from catalog.doors.entries.forms import hive_table, partition_storage
from catalog.doors.entries.storages import USUAL, recorded_format, storage_from_json, storage_text
from catalog.errors import InvalidPartitionError
from catalog.importing.definition import FILE_COUNT, ROW_COUNT, SIZE
from catalog.metastores.types import HivePartition, HiveStorage
from catalog.model import FileFormat, NewPartition, Partition, Table
from catalog.model.partition_names import NULL_TEXTS, NULL_VALUE, escape, folder_start
from catalog.partitions.descriptors import read_descriptors
from catalog.storage import Storage
from catalog.storage.bulk import batched
from catalog.storage.properties import read_properties
from catalog.tables.own_properties import RESERVED
from catalog.tables.spark_schema import spark_provider
from catalog.types.memo import Memo

_CREATED, _ACCESSED = f"{RESERVED}created_at", f"{RESERVED}accessed_at"
"""Reserved properties of a partition: times that a client has given it, in seconds since 1970 UTC."""

_SLASH = f"{RESERVED}slash"
"""Reserved property of a partition whose location ends with a slash for clients, which read all that begins with it."""

_PAGE = 1_000
COUNTS = (FILE_COUNT, ROW_COUNT, SIZE)
"""The parameters with the counts of files, rows and bytes, which Calve has in columns of their own."""

_GREATEST = 2**63 - 1


class Shared(NamedTuple):
    """The parts of an entry that many partitions share.

    Attributes:
        parameters: Without the counts of files, rows and bytes.
        created_at: The time that a client has given; None for the time at which the partition was added.
    """

    storage: HiveStorage
    parameters: Mapping[str, str]
    created_at: int | None
    accessed_at: int


class PartitionForms:
    """Converter of the partitions of one table, for many threads."""

    def __init__(self, storage: Storage, table: Table) -> None:
        """Set the table, as it was read."""
        entry = hive_table(table)
        self.table = table
        self.entry = entry
        self._storage = storage
        self._provider = None if is_calves(table) else spark_provider(entry.parameters)
        self._base = own_storage(partition_storage(table, entry))
        self._table_columns = entry.columns
        self._base_columns = entry.columns if self._base.columns is None else self._base.columns
        self._descriptors: dict[int, HiveStorage] = {}
        self._known: dict[tuple[int | None, FileFormat | None], HiveStorage] = {}
        self._names = [Memo(_Named(folder_start(key))) for key in table.key_names]
        self._latest: tuple[HiveStorage, tuple[str | None, FileFormat | None]] | None = None

    # --- to the metastore's form --------------------------------------------------------------------------------

    def read(self, partitions: Iterable[Partition]) -> Iterator[HivePartition]:
        """Yield the entries of partitions, in their order."""
        storages, new = self._known, tuple.__new__
        for page in batched(partitions, _PAGE):
            self.read_descriptors({partition.descriptor_id for partition in page})
            for _, values, location, files, rows, size, properties, _, created, own_format, descriptor in page:
                if None in values:
                    values = tuple([NULL_VALUE if value is None else value for value in values])
                accessed = 0
                if properties and (_CREATED in properties or _ACCESSED in properties or _SLASH in properties):
                    properties = dict(properties)
                    location += properties.pop(_SLASH, "")
                    created = 1000 * int(properties.pop(_CREATED, created // 1000))
                    accessed = int(properties.pop(_ACCESSED, 0))
                if rows is not None or files is not None or size is not None:
                    properties = with_counts(properties, files, rows, size)
                storage = storages.get((descriptor, own_format)) or self._storage_of(descriptor, own_format)
                # Bypasses the constructor of the named tuple, which takes longer than the rest.
                yield new(HivePartition, (values, storage, properties, location, created // 1000, accessed))

    def shared(self, text: str | None, descriptor: int | None) -> Shared:
        """Return what partitions have in common whose stored properties and descriptors are the same.

        Args:
            text: The properties, as stored.
            descriptor: The id of a descriptor that `read_descriptors` has read.
        """
        properties, own_format = read_properties(text)
        parameters = dict(properties)
        created, accessed = parameters.pop(_CREATED, None), int(parameters.pop(_ACCESSED, 0))
        storage = self._known.get((descriptor, own_format)) or self._storage_of(descriptor, own_format)
        return Shared(storage, parameters, None if created is None else int(created), accessed)

    def read_descriptors(self, numbers: Set[int | None]) -> None:
        """Read the descriptors with these ids that are not known yet."""
        missing = numbers - self._descriptors.keys() - {None}
        if missing:
            with self._storage.read() as connection:
                texts = read_descriptors(connection, [number for number in missing if number is not None])
            self._descriptors |= {number: storage_from_json(json.loads(text)) for number, text in texts.items()}

    def _storage_of(self, descriptor: int | None, own_format: FileFormat | None) -> HiveStorage:
        storage = self._base if descriptor is None else self._descriptors.get(descriptor, self._base)
        file_format = own_format or self.table.format
        if self._recorded(storage) is not file_format:
            # Calve has changed the format of the partition since.
            storage = self._usual(file_format)
        columns = self._base_columns if storage.columns is None else storage.columns
        storage = replace(storage, columns=None if columns == self._table_columns else columns)
        if (file_format is FileFormat.CSV) is not (self.table.format is FileFormat.CSV) or is_refused(self.table):
            # Spark reads all files of a CSV table as CSV, and those of no other one.
            storage = refused_storage(file_format, storage)
        self._known[descriptor, own_format] = storage
        return storage

    def name(self, values: Sequence[str | None]) -> str:
        """Return the name of a partition, `k=v/k2=v2`."""
        return "/".join([known[value] for known, value in zip(self._names, values, strict=True)])

    # --- from the metastore's form ------------------------------------------------------------------------------

    def new(self, given: Iterable[HivePartition]) -> list[NewPartition]:
        """Return partitions to add, given their entries.

        Raises:
            InvalidPartitionError: One has not one value for each key, or a reserved parameter.
        """
        return [self._new(partition) for partition in given]

    def _new(self, given: HivePartition) -> NewPartition:
        values = self.values(given.values)
        properties, counts = self._properties(given), dict.fromkeys(COUNTS, None)
        if properties and not properties.keys().isdisjoint(COUNTS):
            counts = {name: _count(properties.get(name)) for name in COUNTS}
            properties = {name: value for name, value in properties.items() if counts.get(name) is None}
        descriptor, own_format = self.descriptor(given.storage)
        return NewPartition(
            values,
            given.location or None,
            counts[FILE_COUNT],
            counts[ROW_COUNT],
            counts[SIZE],
            properties or None,
            own_format,
            descriptor,
        )

    def values(self, values: Sequence[str]) -> tuple[str | None, ...]:
        """Return a partition's values as Calve has them, with None for null.

        Raises:
            InvalidPartitionError: There is not one for each partition key.
        """
        if len(values) != len(self.table.partition_keys):
            raise InvalidPartitionError(
                self.table.full_name,
                reason=f"{list(values)} has {len(values)} value(s) for {len(self.table.partition_keys)} partition "
                f"key(s) ({', '.join(self.table.key_names)}); give one value for each key",
            )
        return tuple([None if value in NULL_TEXTS else value for value in values])

    def _properties(self, given: HivePartition) -> dict[str, str]:
        properties = dict(given.parameters)
        for name in properties:
            if name.startswith(RESERVED):
                raise InvalidPartitionError(
                    self.table.full_name,
                    reason=f"the parameter name {name} is reserved; choose a name without {RESERVED}",
                )
        if given.created_at is not None:
            properties[_CREATED] = str(given.created_at)
        if given.accessed_at:
            properties[_ACCESSED] = str(given.accessed_at)
        if given.location and len(given.location) > 1 and given.location.endswith("/"):
            properties[_SLASH] = "/"
        return properties

    def descriptor(self, storage: HiveStorage) -> tuple[str | None, FileFormat | None]:
        """Return the descriptor to store, None for that of the table; and the format, None for that of the table."""
        # Read once: other threads may set it.
        latest = self._latest
        if latest is None or (latest[0] is not storage and latest[0] != storage):
            latest = self._latest = storage, self._new_descriptor(storage)
        return latest[1]

    def _new_descriptor(self, storage: HiveStorage) -> tuple[str | None, FileFormat | None]:
        storage = own_storage(storage)
        own_format: FileFormat | None = self._recorded(storage)
        columns = self._table_columns if storage.columns is None else storage.columns
        storage = replace(storage, columns=None if columns == self._base_columns else columns)
        if own_format is self.table.format:
            own_format = None
        is_base = self._recorded(self._base) is (own_format or self.table.format)
        usual = replace(self._base, columns=None) if is_base else self._usual(own_format or self.table.format)
        return None if storage == usual else storage_text(storage), own_format

    def _recorded(self, storage: HiveStorage) -> FileFormat:
        return csv_format(storage) or recorded_format(storage, self._provider)

    def _usual(self, file_format: FileFormat) -> HiveStorage:
        return CSV_STORAGE if file_format is FileFormat.CSV and self._provider is None else USUAL[file_format]


class _Named:
    """The part of a partition's name that a value of one key makes."""

    def __init__(self, start: str) -> None:
        self._start = start

    def __call__(self, value: str | None) -> str:
        return self._start + (escape(value) if value else NULL_VALUE)


def with_counts(properties: Mapping[str, str], files: int | None, rows: int | None, size: int | None) -> dict[str, Any]:
    """Return the parameters of an entry: properties, and the counts that are known."""
    counted = dict(properties)
    if files is not None:
        counted[FILE_COUNT] = str(files)
    if rows is not None:
        counted[ROW_COUNT] = str(rows)
    if size is not None:
        counted[SIZE] = str(size)
    return counted


def _count(text: str | None) -> int | None:
    """Return a count, if it is spelled as it would be shown."""
    if text is None or not text.isascii() or not text.isdigit() or (text[0] == "0" and len(text) > 1):
        return None
    return number if (number := int(text)) <= _GREATEST else None
