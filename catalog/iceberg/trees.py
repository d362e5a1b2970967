"""The tree of a table's metadata, read strictly and to its end to find damage.

Metadata file, manifest lists, manifests and their entries are read one after the other; a damaged one is noted, and
hides only what it names. Memory holds the paths of the manifests, but not those of the files.

Source: https://iceberg.apache.org/spec/#manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from catalog.errors import CatalogError, InvalidTableError, MissingFileError, StorageError
from catalog.iceberg.avro import values_of
from catalog.iceberg.differences import LiveFile
from catalog.iceberg.documents.files import read_document
from catalog.iceberg.documents.schemas import Json
from catalog.iceberg.documents.tables import by_id, normalised
from catalog.iceberg.manifest_summaries import FieldSummary, ManifestSummary, SummaryCheck, WrongSummary
from catalog.iceberg.named_files import UnreadableFileError, avro_rows
from catalog.iceberg.storage import file_io, storage_failure

DATA, STATISTICS = 0, -1
"""Contents of a listed file: rows of data; or statistics, which the metadata file names. Others are delete files."""

_DELETED = 2
_SHOWN = 10
"""The number of wrong summaries that are kept."""


def _map(field_id: int, name: str, key_id: int, value: IcebergType) -> NestedField:
    kind = MapType(key_id=key_id, key_type=IntegerType(), value_id=key_id + 1, value_type=value)
    return NestedField(field_id, name, kind, required=False)


_FIELD_SUMMARY = StructType(
    NestedField(509, "contains_null", BooleanType(), required=True),
    NestedField(518, "contains_nan", BooleanType(), required=False),
    NestedField(510, "lower_bound", BinaryType(), required=False),
    NestedField(511, "upper_bound", BinaryType(), required=False),
)
_MANIFEST_LIST = Schema(
    NestedField(500, "manifest_path", StringType(), required=True),
    NestedField(501, "manifest_length", LongType(), required=True),
    NestedField(502, "partition_spec_id", IntegerType(), required=False),
    NestedField(504, "added_files_count", IntegerType(), required=False),
    NestedField(505, "existing_files_count", IntegerType(), required=False),
    NestedField(512, "added_rows_count", LongType(), required=False),
    NestedField(513, "existing_rows_count", LongType(), required=False),
    NestedField(507, "partitions", ListType(508, _FIELD_SUMMARY, element_required=True), required=False),
)
_FIELDS = (
    NestedField(134, "content", IntegerType(), required=False),
    NestedField(100, "file_path", StringType(), required=True),
    NestedField(101, "file_format", StringType(), required=True),
    NestedField(103, "record_count", LongType(), required=True),
    NestedField(104, "file_size_in_bytes", LongType(), required=True),
    _map(109, "value_counts", 119, LongType()),
    _map(110, "null_value_counts", 121, LongType()),
    _map(137, "nan_value_counts", 138, LongType()),
    _map(125, "lower_bounds", 126, BinaryType()),
    _map(128, "upper_bounds", 129, BinaryType()),
)
_PARTITION = 102


@dataclass(frozen=True)
class DamagedFile:
    """A file of the metadata that is missing or cannot be read.

    Attributes:
        what: `metadata file`, `manifest list` or `manifest`.
        is_current: The current snapshot needs it.
    """

    what: str
    path: str
    reason: str
    is_current: bool

    def __str__(self) -> str:
        """Return the damage as text."""
        of = "" if self.is_current else " of an earlier snapshot"
        return f"{self.what}{of} {self.path}: {self.reason}"


class ListedFile(NamedTuple):
    """A file that the metadata name.

    Attributes:
        content: `DATA`, `STATISTICS`, or that of a delete file.
        is_live: The current snapshot has it, or the current metadata file names it.
    """

    file: LiveFile
    content: int
    is_live: bool


class _Manifest(NamedTuple):
    path: str
    length: int | None
    spec_id: int | None
    summary: ManifestSummary | None
    is_current: bool

    @classmethod
    def listed(cls, row: Any, is_current: bool) -> _Manifest:
        """Return the manifest of a row of a manifest list; its summary is that of the current one."""
        fields = [FieldSummary(*(field[number] for number in range(4))) for field in row[7] or ()]
        summary = ManifestSummary(row[0], (row[3], row[4]), (row[5], row[6]), fields) if is_current else None
        return cls(row[0], row[1], row[2], summary, is_current)


class MetadataTree:
    """The metadata of one table.

    Its creation and `files` raise `StorageError` if the storage does not answer: what cannot be read is not damaged.

    Attributes:
        damaged: The damaged files that were met so far.
        hidden, hidden_count: Wrong summaries in the current manifest list, as far as its manifests were read: the first
            ones, and the number of all.
        document: The metadata file, normalised; None if it is damaged.
    """

    def __init__(self, location: str, *, reads_partitions: bool = False) -> None:
        """Read the metadata file.

        Args:
            reads_partitions: The partition records of all files are wanted; all specs must be known to PyIceberg.
        """
        self.location = location
        self.damaged: list[DamagedFile] = []
        self.hidden: list[WrongSummary] = []
        self.hidden_count = 0
        self.document: Json | None = None
        self._reads_partitions = reads_partitions
        try:
            self.document = normalised(read_document(location))
        except MissingFileError:
            self.damaged.append(DamagedFile("metadata file", location, "it does not exist", True))
        except StorageError:
            raise
        except (CatalogError, OSError, ValueError) as error:
            self.damaged.append(DamagedFile("metadata file", location, str(error), True))

    @property
    def is_complete(self) -> bool:
        """Whether everything that the current snapshot needs could be read, after `files` has ended."""
        return not any(damage.is_current for damage in self.damaged)

    def files(self) -> Iterator[ListedFile]:
        """Yield the files that the metadata name, possibly with duplicates; those of the current snapshot first."""
        if self.document is None:
            return
        yield from self._statistics(self.document)
        io = file_io(self.location)
        for manifest in self._manifests(self.document, io):
            yield from self._entries(self.document, io, manifest)

    @staticmethod
    def _statistics(document: Json) -> Iterator[ListedFile]:
        for name in ("statistics", "partition-statistics"):
            for entry in document[name]:
                file = LiveFile(
                    entry["statistics-path"], "", 0, entry.get("file-size-in-bytes") or 0, {}, {}, {}, {}, {}
                )
                yield ListedFile(file, STATISTICS, True)

    def _manifests(self, document: Json, io: FileIO) -> Iterator[_Manifest]:
        current, seen = document["current-snapshot-id"], set[str]()
        for snapshot in sorted(document["snapshots"], key=lambda snapshot: snapshot["snapshot-id"] != current):
            is_current = snapshot["snapshot-id"] == current
            for manifest in self._listed(snapshot, io, is_current):
                if manifest.path not in seen:
                    seen.add(manifest.path)
                    yield manifest

    def _listed(self, snapshot: Mapping[str, Any], io: FileIO, is_current: bool) -> Iterator[_Manifest]:
        path = snapshot.get("manifest-list")
        if path is None:
            # Format version 1 allows snapshots without a manifest list.
            yield from (_Manifest(name, None, None, None, is_current) for name in snapshot.get("manifests") or ())
            return
        try:
            for row in avro_rows(io, path, _MANIFEST_LIST):
                yield _Manifest.listed(row, is_current)
        except UnreadableFileError as error:
            self._note("manifest list", path, error, is_current)

    def _entries(self, document: Json, io: FileIO, manifest: _Manifest) -> Iterator[ListedFile]:
        try:
            partition_type, entries = self._opened(document, io, manifest)
            has_partition = partition_type is not None
            files = (
                _listed_file(entry[1], manifest.is_current, has_partition=has_partition)
                for entry in entries
                if entry[0] != _DELETED
            )
            if manifest.summary is None:
                yield from files
                return
            check = SummaryCheck(manifest.summary, partition_type)
            for listed in files:
                self._hide(check.add(listed.file.path, listed.file.row_count, listed.file.partition))
                yield listed
            self._hide(check.counts())
        except UnreadableFileError as error:
            self._note("manifest", manifest.path, error, manifest.is_current)

    def _note(self, what: str, path: str, error: UnreadableFileError, is_current: bool) -> None:
        if (failure := storage_failure(path, error.__cause__)) is not None:
            raise failure from error
        self.damaged.append(DamagedFile(what, path, _reason(error), is_current))

    def _hide(self, wrong: Iterable[WrongSummary]) -> None:
        for summary in wrong:
            self.hidden_count += 1
            if len(self.hidden) < _SHOWN:
                self.hidden.append(summary)

    def _opened(self, document: Json, io: FileIO, manifest: _Manifest) -> tuple[StructType | None, Iterator[Any]]:
        """Return the entries of a manifest, with partition records if these are wanted, or compared and readable."""
        if self._reads_partitions or manifest.summary is not None:
            try:
                partition_type = self._partition_type(document, manifest)
                entries = avro_rows(io, manifest.path, _entry_schema(partition_type), manifest.length)
                first = list(islice(entries, 1))
            except (UnreadableFileError, InvalidTableError, ValueError, TypeError, KeyError, NotImplementedError):
                # If PyIceberg does not know the spec, the records are just not compared.
                if self._reads_partitions:
                    raise
            else:
                return partition_type, chain(first, entries)
        return None, avro_rows(io, manifest.path, _entry_schema(None), manifest.length)

    @staticmethod
    def _partition_type(document: Json, manifest: _Manifest) -> StructType:
        spec_id = document["default-spec-id"] if manifest.spec_id is None else manifest.spec_id
        spec = by_id(document["partition-specs"], "spec-id", spec_id)
        schema = by_id(document["schemas"], "schema-id", document["current-schema-id"])
        return PartitionSpec.model_validate(spec).partition_type(Schema.model_validate(schema))


def _entry_schema(partition: StructType | None) -> Schema:
    fields: tuple[NestedField, ...] = _FIELDS
    if partition is not None:
        fields = (*fields, NestedField(_PARTITION, "partition", partition, required=True))
    return Schema(
        NestedField(0, "status", IntegerType(), required=True),
        NestedField(2, "data_file", StructType(*fields), required=True),
    )


def _listed_file(entry: Any, is_live: bool, *, has_partition: bool) -> ListedFile:
    content, path, form, rows, size, values, nulls, nans, lower, upper = (entry[number] for number in range(10))
    record = values_of(entry[10]) if has_partition else ()
    file = LiveFile(
        *(path, form.upper(), rows, size, lower or {}, upper or {}, values or {}, nulls or {}, nans or {}), record
    )
    return ListedFile(file, content or DATA, is_live)


def _reason(error: UnreadableFileError) -> str:
    return "it does not exist" if isinstance(error.__cause__, FileNotFoundError) else error.reason
