"""Facts about a data file for an Iceberg table, read from the file's footer or header."""

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
    from catalog.iceberg.footers.parquet import ParquetReader
    from catalog.iceberg.footers.parquet_footers import Footer
    from catalog.iceberg.layout import Layout


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The facts about a data file. A mapping has an entry for each column whose fact is known.

    Attributes:
        column_sizes: Field id → compressed bytes.
        value_counts: Field id → number of values, including nulls and NaNs.
        lower_bounds, upper_bounds: Field id → Iceberg's single-value serialization. Strings and binaries are complete
            as the readers of each format return them; `FooterReader` truncates them according to the table's metrics
            mode.
        split_offsets: Offsets at which readers may start, ascending; None when unknown.
        spellings: Field id and name in the file, where it differs from the table's.
        unknown: Columns that the table does not have, as in `columns.Match`; known for Parquet and ORC files.
        unvectorized: The table's columns whose values Iceberg's vectorized reader for Spark cannot decode.
        undated: The file's columns that may have values of an older calendar, which only a comparison can find out.
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
    """Reader of the facts of many files of one format and one table; work for equal footers is cached."""

    def __init__(self, layout: Layout, file_format: FileFormat) -> None:
        """Prepare for the table's columns; partition keys are not expected in files.

        Raises:
            UnsupportedFormatError: Iceberg does not support the format.
        """
        columns = layout.file_fields
        self._required = dict(_required(columns, ""))
        self._metrics = MetricsFilter(layout)
        # Imported late: a task reads one format, and the libraries are large.
        self._reader: _Reader
        self._parquet: ParquetReader | None = None
        match file_format:
            case FileFormat.PARQUET:
                from catalog.iceberg.footers.parquet import ParquetReader

                self._reader = self._parquet = ParquetReader(columns)
            case FileFormat.ORC:
                from catalog.iceberg.footers.orc import OrcReader

                self._reader = OrcReader(columns)
            case FileFormat.AVRO:
                from catalog.iceberg.footers.avro import AvroReader

                self._reader = AvroReader(columns)
            case _:
                raise UnsupportedFormatError(
                    f"files in format {file_format} cannot be used in an Iceberg table; use Parquet, ORC or Avro"
                )

    def read(self, file: FileInfo, footer: Footer | None = None) -> FileFacts:
        """Return the facts of a file that the table's manifests contain.

        The file is read once, from its end; an Avro file block by block.

        Args:
            footer: Of a Parquet file whose footer was read before.

        Raises:
            UnusableFileError: The file cannot be used in the table.
        """
        if file.size_bytes == 0:
            raise UnusableFileError(file.path, FileProblem.EMPTY, "it has no bytes; delete it, or skip such files")
        if footer is None or self._parquet is None:
            facts = self._reader.read(file)
        else:
            facts = self._parquet.facts_of(file.path, footer)
        for field_id, name in self._required.items():
            # A column that the file lacks is null in every row.
            if facts.row_count and facts.null_counts.get(field_id) != 0:
                nulls = facts.null_counts.get(field_id)
                problem = "lacks it, or does not record its null count" if nulls is None else f"has {nulls:,} null(s)"
                raise UnusableFileError(
                    file.path,
                    FileProblem.NULLS,
                    f"column {name} is NOT NULL in the Iceberg table, and the file {problem}; make the column optional "
                    "there, or write the file without nulls",
                )
        return self._metrics.apply(facts)


def _required(fields: Iterable[NestedField], parent: str) -> Iterator[tuple[int, str]]:
    """Yield the ids and names of required primitive columns and struct fields; null counts exist only for these."""
    for field in fields:
        name = f"{parent}{field.name}"
        if isinstance(field.field_type, StructType):
            yield from _required(field.field_type.fields, f"{name}.")
        elif field.required and field.field_type.is_primitive:
            yield field.field_id, name
