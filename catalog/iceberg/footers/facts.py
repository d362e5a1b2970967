"""What an Iceberg table wants to know of a data file, from the file's own footer or header."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyiceberg.types import NestedField, StructType

from catalog.errors import FileProblem, UnsupportedFormatError, UnusableFileError
from catalog.files.filesystem import FileInfo
from catalog.iceberg.metrics import MetricsFilter
from catalog.model import FileFormat

if TYPE_CHECKING:
    from catalog.iceberg.layout import Layout


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a data file says of itself. A map has an entry for each column of which something is known.

    Attributes:
        column_sizes: Field id → compressed bytes.
        value_counts: Field id → values, nulls and NaNs among them.
        lower_bounds, upper_bounds: Field id → Iceberg's single-value serialization; texts and binaries whole as readers
            of one format return them, cut by `FooterReader` as the table's metrics mode says.
        split_offsets: Where in the file readers may begin, ascending; None when it is not known.
        spellings: Field id and the name in the file, where that is not the table's to the letter.
        unknown: Columns that the table does not have, as in `columns.Match`; known of Parquet and ORC files.
        unvectorized: The table's columns whose values Iceberg's vectorized reader for Spark cannot decode.
        undated: The file's columns that may have values of an older calendar, which only a comparison can tell.
    """

    row_count: int
    column_sizes: Mapping[int, int]
    value_counts: Mapping[int, int]
    null_counts: Mapping[int, int]
    nan_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]
    split_offsets: tuple[int, ...] | None
    spellings: tuple[tuple[int, str], ...]
    unknown: tuple[tuple[int, tuple[str, ...]], ...] = ()
    unvectorized: tuple[str, ...] = ()
    undated: tuple[str, ...] = ()


class _Reader(Protocol):
    def read(self, file: FileInfo) -> FileFacts: ...


class FooterReader:
    """Reads the facts of many files of one format and one table; what their footers share is worked out once."""

    def __init__(self, layout: Layout, file_format: FileFormat) -> None:
        """Take the table's columns; partition keys are not looked for in files.

        Raises:
            UnsupportedFormatError: Iceberg does not know the format.
        """
        columns = layout.file_fields
        self._required = dict(_required(columns, ""))
        self._metrics = MetricsFilter(layout)
        # Each imported late: a task reads one format, and the libraries below them are large.
        self._reader: _Reader
        match file_format:
            case FileFormat.PARQUET:
                from catalog.iceberg.footers.parquet import ParquetReader

                self._reader = ParquetReader(columns)
            case FileFormat.ORC:
                from catalog.iceberg.footers.orc import OrcReader

                self._reader = OrcReader(columns)
            case FileFormat.AVRO:
                from catalog.iceberg.footers.avro import AvroReader

                self._reader = AvroReader(columns)
            case _:
                raise UnsupportedFormatError(
                    f"files in format {file_format} cannot be files of an Iceberg table; it takes Parquet, ORC and Avro"
                )

    def read(self, file: FileInfo) -> FileFacts:
        """Return the facts of a file that manifests of the table hold.

        The file is read once, from its end, or for Avro from block to block.

        Raises:
            UnusableFileError: The file cannot be a file of the table.
        """
        if file.size_bytes == 0:
            raise UnusableFileError(file.path, FileProblem.EMPTY, "it has no bytes; delete it, or skip such files")
        facts = self._reader.read(file)
        for field_id, name in self._required.items():
            # A column that the file does not have is null in every row.
            if facts.row_count and facts.null_counts.get(field_id) != 0:
                nulls = facts.null_counts.get(field_id)
                found = "does not have it, or does not tell its nulls" if nulls is None else f"has {nulls:,} null(s)"
                raise UnusableFileError(
                    file.path,
                    FileProblem.NULLS,
                    f"column {name} is NOT NULL in the Iceberg table, and the file {found}; make the column optional "
                    "there, or write the file without nulls",
                )
        return self._metrics.apply(facts)


def _required(fields: Iterable[NestedField], parent: str) -> Iterator[tuple[int, str]]:
    """Yield the ids and names of columns, or fields of structs, without nulls; only of leaves nulls are counted."""
    for field in fields:
        name = f"{parent}{field.name}"
        if isinstance(field.field_type, StructType):
            yield from _required(field.field_type.fields, f"{name}.")
        elif field.required and field.field_type.is_primitive:
            yield field.field_id, name
