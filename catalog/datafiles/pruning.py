"""Pruning of the partitions and files of a table with a partition scheme by a filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import cached_property
from typing import Any

from sqlalchemy import Connection

from catalog.datafiles.files import ColumnStatistics, DataFile, Total, read_files
from catalog.datafiles.history import next_revision
from catalog.expressions import Expression, parse_expression
from catalog.expressions.tree import ALL, NONE, And, Condition, Or
from catalog.indexes.bounds import bounds_of
from catalog.model import PARTITION_ID, Table
from catalog.schemes.model import UNPLACED, Scheme
from catalog.types.key_types import FloatingType, IntegerType
from catalog.types.ranges import Ranges

_ID_TYPE = IntegerType("int")


@dataclass(frozen=True)
class FileScan:
    """The files that may contain rows that match a filter.

    Attributes:
        table: The table as of the scan.
        expression: The filter; None for all rows.
        tree: The parsed and typed filter.
        partition_ids: The partitions that may contain matching rows, in logical order.
        files: The files of these partitions, and unplaced ones, that may contain matching rows, by partition.
        files_total: The number of all files of the table; None if they were not counted.
        revision: The state of the table's files (`catalog.datafiles.history`).
    """

    table: Table
    expression: str | None
    tree: Expression
    partition_ids: tuple[int, ...]
    files: tuple[DataFile, ...]
    files_total: int | None = None
    revision: int = 0

    @property
    def scheme(self) -> Scheme:
        """The table's scheme."""
        assert self.table.scheme is not None
        return self.table.scheme

    @property
    def engine_location(self) -> str | None:
        """The metadata file by which Iceberg's reader must read the rows; None if it is enough to read the files."""
        return self.table.engine_location

    @cached_property
    def matching(self) -> tuple[DataFile, ...]:
        """The files of which all rows match the filter, as far as their statistics tell."""
        condition = FileCondition(self.tree, self.table.filter_view)
        return tuple(file for file in self.files if condition.must_match(file))

    @property
    def unplaced(self) -> Total:
        """The total of the files to read that other engines wrote and that are in no partition yet."""
        return Total.of([file for file in self.files if file.partition_id == UNPLACED])

    @property
    def read(self) -> Total:
        """The total of the files to read."""
        return Total.of(self.files)

    @property
    def _files_pruned(self) -> int | None:
        return None if self.files_total is None else self.files_total - self.read.file_count

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        scheme, read = self.scheme, self.read
        return {
            "scheme": str(scheme.type),
            "partition_column": scheme.column,
            "partitions_read": list(self.partition_ids),
            "partitions_total": len(scheme.ids),
            "files_read": read.file_count,
            "files_pruned": self._files_pruned,
            "rows_read": read.row_count,
            "bytes_read": read.size_bytes,
            "unplaced_files_read": self.unplaced.file_count,
            "reads_by_iceberg": self.engine_location is not None,
        }

    def __str__(self) -> str:
        """Return the explanation as text, one fact per line."""
        scheme, read = self.scheme, self.read
        shown = [f"{number} ({scheme.text_of(number)})" for number in self.partition_ids[:_SHOWN]]
        if len(self.partition_ids) > _SHOWN:
            shown.append(f"{len(self.partition_ids) - _SHOWN:,} more")
        lines = [
            f"scheme:          {scheme.type} on {scheme.column}, {len(scheme.ids):,} partitions",
            f"partitions read: {len(self.partition_ids):,}: {', '.join(shown) or 'none'}",
            f"files read:      {read.file_count:,} with {read.row_count:,} rows, {read.size_bytes:,} bytes",
            f"files pruned:    {'not counted' if self._files_pruned is None else f'{self._files_pruned:,}'}",
        ]
        if self.unplaced.file_count:
            lines.insert(
                3, f"unplaced files:  {self.unplaced.file_count:,} of these; place them: {place_call(self.table)}"
            )
        if self.engine_location is not None:
            lines.append("read by:         Iceberg's reader, because of commits of other engines")
        return "\n".join(lines)


def place_call(table: Table) -> str:
    """Return the statement that places the unplaced files of a table."""
    return f"CALL calve.system.place('{table.full_name}')"


_SHOWN = 10


def scan_files(connection: Connection, table: Table, expression: str | None, zone: tzinfo | None = None) -> FileScan:
    """Return the files that a filter needs, in the caller's transaction.

    Args:
        zone: The time zone of timestamp literals; by default UTC.

    Raises:
        ExpressionError: The expression is invalid.
    """
    scheme = table.scheme
    assert scheme is not None
    view, revision = table.filter_view, next_revision(connection, table) - 1
    tree = parse_expression(expression, view, zone)
    partition_ids = partitions_of(tree, table)
    files: list[DataFile] = []
    if partition_ids:
        condition = FileCondition(tree, view)
        chosen = None if len(partition_ids) == len(scheme.ids) else (*partition_ids, UNPLACED)
        candidates = read_files(connection, table, chosen)
        files = [file for file in candidates if condition.is_always_met or condition.may_match(file.statistics)]
    return FileScan(table, expression, tree, partition_ids, tuple(files), revision=revision)


def partitions_of(tree: Expression, table: Table) -> tuple[int, ...]:
    """Return the partitions that may contain rows that match an expression, in logical order."""
    scheme = table.scheme
    assert scheme is not None
    if tree == NONE:
        return ()
    view = table.filter_view
    keys = bounds_of(tree, view).keys
    by_column: set[int] | None = None
    column = view.key_position(scheme.column)
    if column is not None and column in keys:
        by_column = scheme.partitions_in(keys[column])
    position = view.key_position(PARTITION_ID)
    by_id = None if position is None else keys.get(position)
    return tuple(
        number
        for number in scheme.ids
        if (by_column is None or number in by_column) and (by_id is None or _is_inside(number, by_id))
    )


def _is_inside(partition_id: int, ranges: Ranges) -> bool:
    encoded = _ID_TYPE.encode(partition_id)
    return any(key_range.low <= encoded < key_range.high for key_range in ranges)


class FileCondition:
    """A test of files' statistics: whether any, or all, rows of the file match an expression."""

    def __init__(self, tree: Expression, view: Table) -> None:
        """Compute the ranges of each condition.

        Args:
            view: The table's `filter_view`.
        """
        self._names = view.key_names
        bounds = bounds_of(tree, view)
        self._bounds = {self._names[key]: ranges for key, ranges in bounds.keys.items()}
        self._is_all, self._is_exact = tree == ALL, bounds.is_exact
        types = zip(view.key_names, view.key_types, strict=True)
        self._floating = frozenset(name for name, key_type in types if isinstance(key_type, FloatingType))
        self._alternatives = self._prepared(tree, view) if isinstance(tree, And | Or) else None
        self.is_always_met = not self._bounds and self._alternatives is None

    def _prepared(self, tree: Expression, view: Table) -> _Part | None:
        """Return the parts of an OR over several columns, which `bounds_of` ignores; None if all files may match."""
        match tree:
            case Condition(key=key):
                return self._names[key], bounds_of(tree, view).keys[key]
            case And(operands=operands):
                parts = [part for operand in operands if (part := self._prepared(operand, view)) is not None]
                return (all, parts) if parts else None
            case Or(operands=operands):
                alternatives = [self._prepared(operand, view) for operand in operands]
                return None if None in alternatives else (any, [part for part in alternatives if part is not None])
        return None

    def must_match(self, file: DataFile) -> bool:
        """Return whether all rows of a file match the expression; False if its statistics do not tell."""
        if self._is_all:
            return True
        return self._is_exact and all(self._is_inside(file, name, ranges) for name, ranges in self._bounds.items())

    def _is_inside(self, file: DataFile, name: str, ranges: Ranges) -> bool:
        if name == PARTITION_ID:
            return file.partition_id != UNPLACED and _is_inside(file.partition_id, ranges)
        known = file.statistics.get(name)
        # The bounds of floating-point columns may leave out NaN.
        if known is None or name in self._floating:
            return False
        return all(any(own.low >= other.low and own.high <= other.high for other in ranges) for own in known.ranges)

    def may_match(self, statistics: Mapping[str, ColumnStatistics]) -> bool:
        """Return whether a file with these statistics may contain matching rows."""
        for name, ranges in self._bounds.items():
            known = statistics.get(name)
            if known is not None and not known.overlaps(ranges):
                return False
        return self._alternatives is None or _may_match(self._alternatives, statistics)


_Part = tuple[Any, Any]


def _may_match(part: _Part, statistics: Mapping[str, ColumnStatistics]) -> bool:
    first, second = part
    if isinstance(first, str):
        known = statistics.get(first)
        return known is None or known.overlaps(second)
    return bool(first(_may_match(operand, statistics) for operand in second))


@dataclass(frozen=True)
class Placing:
    """The effect of a changed scheme on existing files.

    Attributes:
        rewritten: Files whose rows may belong to several new partitions, so that they must be read and rewritten.
        relabelled: File id → the different partition that all its rows belong to.
    """

    rewritten: list[DataFile]
    relabelled: dict[int, int]


def place_files(scheme: Scheme, files: Iterable[DataFile], targets: Mapping[int, Sequence[int]]) -> Placing:
    """Return which files a changed scheme rewrites and which it relabels.

    Args:
        scheme: The new scheme.
        targets: Old partition → the partitions of the new scheme that its rows may belong to.
    """
    placing = Placing([], {})
    for file in files:
        possible = set(targets[file.partition_id])
        if len(possible) > 1:
            possible = partitions_of_file(scheme, file.statistics, possible)
        if len(possible) > 1:
            placing.rewritten.append(file)
        elif file.partition_id not in possible:
            placing.relabelled[file.id] = possible.pop()
    return placing


def partitions_of_file(scheme: Scheme, statistics: Mapping[str, ColumnStatistics], among: Iterable[int]) -> set[int]:
    """Return the partitions, among some, that a file's rows may belong to."""
    known = statistics.get(scheme.column)
    return set(among) if known is None else scheme.partitions_in(known.ranges) & set(among)
