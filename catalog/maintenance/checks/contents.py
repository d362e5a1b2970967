"""Whether a data file has the contents that metadata record: its footer, and its rows."""

from __future__ import annotations

import marshal
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow
import pyarrow.orc
import pyarrow.parquet

from catalog.errors import MissingFileError, UnusableFileError
from catalog.files.filesystem import FileInfo, Folder
from catalog.iceberg.footers.avro import AvroReader
from catalog.iceberg.footers.columns import FileColumn
from catalog.iceberg.footers.parquet import file_columns
from catalog.iceberg.footers.parquet_footers import Footer, FooterParser
from catalog.maintenance.findings import Depth

_READ_ROWS = 10_000
_COMPARED = ("INT32", "INT64", "BYTE_ARRAY")
_NOT_COMPARED = ("Timestamp", "Decimal", "Time")
"""Annotations whose bounds may have another unit or form than Iceberg's."""
_TRUNCATED_BYTES = 16
"""Engines cut bounds of this length and above."""


@dataclass(frozen=True)
class Expected:
    """A data file as it is recorded.

    Attributes:
        format: In lower case; files of other formats than Parquet, ORC and Avro are not looked at.
        row_count: None if it is unknown.
        bounds: Field id → lower and upper bounds, marshalled; None if they are unknown.
    """

    path: str
    format: str
    size_bytes: int
    row_count: int | None = None
    bounds: bytes | None = None


class ContentReader:
    """Reader of many files of a table; several threads may share it."""

    def __init__(self, depth: Depth, names: Mapping[str, int] | None = None) -> None:
        """Set how far it looks into files.

        Args:
            names: The field ids of columns by their names in files without field ids.
        """
        self._depth = depth
        self._names = names or {}
        self._footers = FooterParser()

    def problem_of(self, file: Expected) -> str | None:
        """Return in what a file differs from what is recorded; None if nothing does, or if it does not exist."""
        return self.measure(file)[1]

    def measure(self, file: Expected) -> tuple[int | None, str | None]:
        """Return the rows of a file, None if they are unknown, and in what it differs from what is recorded."""
        try:
            rows, problem = self._read(file)
        except MissingFileError:
            return None, None
        except (UnusableFileError, pyarrow.ArrowException, OSError, ValueError) as error:
            return None, f"cannot be read: {str(error).splitlines()[0]}"
        if problem is None and rows is not None and file.row_count is not None and rows != file.row_count:
            problem = f"has {rows:,} row(s), {file.row_count:,} are recorded"
        return rows, problem

    def _read(self, file: Expected) -> tuple[int | None, str | None]:
        info = FileInfo(file.path, file.size_bytes, 0)
        match file.format:
            case "parquet":
                footer = self._footers.read(info)
                bounds = ({}, {}) if file.bounds is None else marshal.loads(file.bounds)
                problem = _other_bound(footer, self._names, *bounds)
                rows = footer.row_count
            case "avro":
                return AvroReader(()).read(info).row_count, None
            case "orc":
                rows, problem = Folder(posixpath.dirname(file.path)).row_count(_name(file), "orc"), None
            case _:
                return None, None
        if problem is None and self._depth is Depth.ROWS:
            counted = sum(_row_counts(file))
            problem = None if counted == rows else f"has {counted:,} row(s), its footer says {rows:,}"
        return rows, problem


def _name(file: Expected) -> str:
    return posixpath.basename(file.path)


def _row_counts(file: Expected) -> Iterator[int]:
    """Yield the numbers of rows of a file's parts, after decoding all their values."""
    with Folder(posixpath.dirname(file.path)).open(_name(file)) as opened:
        if file.format == "orc":
            orc = pyarrow.orc.ORCFile(opened)
            yield from (orc.read_stripe(number).num_rows for number in range(orc.nstripes))
            return
        parquet = pyarrow.parquet.ParquetFile(opened, page_checksum_verification=True)
        for batch in parquet.iter_batches(batch_size=_READ_ROWS, use_threads=False):
            yield batch.num_rows


def _other_bound(
    footer: Footer, names: Mapping[str, int], lower: Mapping[int, bytes], upper: Mapping[int, bytes]
) -> str | None:
    """Return the first column whose bounds in the footer are others than the recorded ones; None without one."""
    for column in file_columns(footer.schema.columns):
        field_id = names.get(column.name) if column.field_id is None else column.field_id
        if field_id is None or column.parts or column.position < 0:
            continue
        leaf = footer.schema.columns.column(column.position)
        if leaf.physical_type in _COMPARED and not str(leaf.logical_type).startswith(_NOT_COMPARED):
            is_text = leaf.physical_type == "BYTE_ARRAY"
            own = _bounds(footer, column, is_text=is_text)
            recorded = lower.get(field_id), upper.get(field_id)
            if any(_differ(*pair, is_text=is_text) for pair in zip(own, recorded, strict=True)):
                return f"has other bounds of column {column.name} than are recorded"
    return None


def _differ(own: bytes | None, recorded: bytes | None, *, is_text: bool) -> bool:
    if own is None or recorded is None:
        return False
    is_comparable = max(len(own), len(recorded)) < _TRUNCATED_BYTES if is_text else len(own) == len(recorded)
    return is_comparable and own != recorded


def _bounds(footer: Footer, column: FileColumn, *, is_text: bool) -> tuple[bytes | None, bytes | None]:
    """Return the least and the greatest value of a column in Iceberg's form; None for unknown ones."""
    chunks = [group.chunks[column.position] for group in footer.groups]
    known = [(low, high) for values, _, nulls, low, high in chunks if nulls != values]
    lows = [low for low, _ in known if low is not None]
    highs = [high for _, high in known if high is not None]
    if not known or len(lows) < len(known) or len(highs) < len(known):
        return None, None

    def order(value: bytes) -> Any:
        return value if is_text else int.from_bytes(value, "little", signed=True)

    return min(lows, key=order), max(highs, key=order)
