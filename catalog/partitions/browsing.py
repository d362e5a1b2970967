"""Pages and groups of a table's partitions, for people who look at them; sorted, summed and cut off in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Numeric,
    Select,
    and_,
    case,
    cast,
    collate,
    false,
    func,
    null,
    or_,
    select,
    text,
    true,
)

from catalog.datafiles.files import DataFile
from catalog.errors import InvalidRequestError
from catalog.model import Partition, PartitionState, Table
from catalog.model.identifiers import normalise_identifier
from catalog.model.partition_names import LACKING_VALUE, NULL_VALUE, unpack_values
from catalog.partitions.conditions import BY_ID, Conditions, piece
from catalog.partitions.scanning import Scanner
from catalog.partitions.spooling import Page, read_apart
from catalog.storage import Storage
from catalog.storage.bulk import BATCH, among
from catalog.storage.partition_rows import PartitionFactory, partition_query, partitions_in_order
from catalog.storage.schema import DataFileRow, PartitionCheckRow, PartitionRow
from catalog.tables.definitions import Definitions
from catalog.types.key_types import DecimalType, FloatingType, IntegerType, KeyType

if TYPE_CHECKING:
    from catalog.iceberg.described import TableSnapshots
    from catalog.partitions.gaps import Calendar, MissingPartitions

NO_VALUE = (NULL_VALUE, LACKING_VALUE)
"""The stored strings of null and of a missing value."""

_NUMBER = r"^[+-]?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]{1,3})?$"


class Sort(StrEnum):
    """The measures by which partitions are sorted; the name of a partition key is another possibility."""

    NEWEST = "newest"
    ROWS = "rows"
    BYTES = "bytes"
    FILES = "files"
    FILE_BYTES = "file_bytes"


@dataclass(frozen=True)
class PartitionSums:
    """Sums over some partitions.

    Attributes:
        partitions: Their number, with quarantined ones.
        quarantined: The number of quarantined ones.
        files, rows, size_bytes: Totals of those whose counts are known.
        newest_at_ms: Time at which the newest was added; None without partitions.
    """

    partitions: int = 0
    quarantined: int = 0
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    newest_at_ms: int | None = None


@dataclass(frozen=True)
class PartitionPage:
    """A page of the partitions that match a filter.

    Attributes:
        sums: Sums over all that match.
    """

    partitions: Sequence[Partition]
    sums: PartitionSums


@dataclass(frozen=True)
class PartitionGroup:
    """Partitions with the same values of some keys.

    Attributes:
        values: Their values, as the partitions have them: two spellings of a value are two groups. None is null.
        failed: The number of visible ones whose latest quality check failed.
    """

    values: tuple[str | None, ...]
    sums: PartitionSums
    failed: int = 0


@dataclass(frozen=True)
class PartitionGroups:
    """Groups of partitions, those with the most rows first; `is_cut` if there are more than the limit."""

    groups: Sequence[PartitionGroup]
    is_cut: bool


class Browsing:
    """Lists, sums and groups of a table's partitions, for pages; quarantined ones are included.

    Each method reads all rows of the table's partitions in SQL, unless an index finds those that match. They raise:

    - `TableNotFoundError`: The table does not exist.
    - `IcebergTableError`: Iceberg's metadata have its partitions.
    - `ExpressionError`: The expression is invalid.
    """

    def __init__(self, storage: Storage, definitions: Definitions, scanner: Scanner) -> None:
        """Set the storage, the definitions in it, and the search for partitions."""
        self.storage = storage
        self.definitions = definitions
        self._conditions = Conditions(scanner)

    def page(
        self,
        table: str,
        expression: str | None = None,
        *,
        sort: str = Sort.NEWEST,
        descending: bool = True,
        offset: int = 0,
        limit: int = 100,
        only_bad: bool = False,
    ) -> PartitionPage:
        """Return some of the partitions that match an expression, in an order.

        Args:
            sort: A `Sort`, or the name of a partition key. Unknown numbers and nulls are last; numbers are compared as
                such, and other values as strings.
            only_bad: Only those that are quarantined or failed their latest quality check.

        Raises:
            InvalidRequestError: There is no such order, or the offset is negative.
        """
        if offset < 0:
            raise InvalidRequestError(f"the offset {offset} is negative; give 0 or more")
        with self.storage.read() as connection:
            definition = self.definitions.get_hive_table(table, connection)
            chosen, sums = self._summed(connection, definition, expression, only_bad=only_bad)
            query = self._in_order(connection, definition, chosen, sort, descending=descending)
            rows = connection.execute(query.offset(offset).limit(limit)).all()
        return PartitionPage(PartitionFactory(definition).make_all(rows), sums)

    def ordered(
        self,
        table: str,
        expression: str | None = None,
        *,
        sort: str | None = None,
        descending: bool = True,
        state: PartitionState | None = None,
    ) -> Iterator[Partition]:
        """Yield the partitions that match an expression, in an order of `page`.

        Args:
            sort: As of `page`; None is the newest.
            state: VISIBLE for partitions visible to readers, QUARANTINED for hidden ones, None for both.

        Raises:
            InvalidRequestError: There is no such order.
        """
        definition = self.definitions.get_hive_table(table)

        def read(connection: Connection) -> Iterator[Page]:
            chosen = self.chosen(connection, definition, expression)
            if state is not None:
                chosen.append(PartitionRow.is_quarantined == (state is PartitionState.QUARANTINED))
            query = self._in_order(connection, definition, chosen, sort or Sort.NEWEST, descending=descending)
            with connection.execution_options(yield_per=BATCH).execute(query) as rows:
                yield from rows.partitions()

        make = PartitionFactory(definition).make_all
        for rows in read_apart(self.storage, read):
            yield from make(rows)

    def _in_order(
        self,
        connection: Connection,
        table: Table,
        chosen: Sequence[ColumnElement[bool]],
        sort: str,
        *,
        descending: bool,
    ) -> Select[*tuple[Any, ...]]:
        """Return the query of chosen partitions, whose first condition is that of the table."""
        key = self._sort_key(connection, table, sort)
        if sort == Sort.NEWEST:
            return partitions_in_order(table, newest_first=descending).where(*chosen[1:])
        order = (key.desc() if descending else key.asc()).nulls_last()
        last = PartitionRow.id.desc() if descending else PartitionRow.id
        return partition_query(table).where(*chosen).order_by(order, last)

    def _summed(
        self, connection: Connection, table: Table, expression: str | None, *, only_bad: bool
    ) -> tuple[list[ColumnElement[bool]], PartitionSums]:
        """Return the conditions of the partitions that match an expression, that of the table first, and their sums."""
        chosen, unseen = self._matching(connection, table, expression, only_bad=only_bad)
        # One statement sums, and checks that the translation has known all strings.
        checked = false() if unseen is None else unseen
        wrong, *sums = connection.execute(select(_number_of(checked), *_SUMS).where(*chosen)).one()
        if not wrong:
            return chosen, sums_of(sums)
        chosen = self._exactly(connection, table, expression, only_bad=only_bad)
        return chosen, sums_of(connection.execute(select(*_SUMS).where(*chosen)).one())

    def _matching(
        self, connection: Connection, table: Table, expression: str | None, *, only_bad: bool
    ) -> tuple[list[ColumnElement[bool]], ColumnElement[bool] | None]:
        """Return the conditions of the partitions that match an expression, and `Match.unseen`."""
        match = self._conditions.match(connection, table, expression)
        chosen = _conditions_of(table, match.condition, only_bad=only_bad)
        if match.unseen is None:
            return chosen, None
        few = connection.execute(select(PartitionRow.id, match.unseen).where(*chosen).limit(BY_ID + 1)).all()
        if len(few) > BY_ID or any(is_unseen for _, is_unseen in few):
            return chosen, match.unseen
        # The next statements need not look for them again.
        found = among(connection, PartitionRow.id, [partition_id for partition_id, _ in few])
        return _conditions_of(table, found, only_bad=False), None

    def _exactly(
        self, connection: Connection, table: Table, expression: str | None, *, only_bad: bool
    ) -> list[ColumnElement[bool]]:
        return _conditions_of(table, self._conditions.exact(connection, table, expression), only_bad=only_bad)

    def partition(self, table: str, partition_id: int) -> Partition | None:
        """Return a partition by its id, visible or quarantined; None if the table has none of this id."""
        with self.storage.read() as connection:
            definition = self.definitions.get_hive_table(table, connection)
            query = partition_query(definition).where(PartitionRow.id == partition_id)
            rows = connection.execute(query).all()
        return next(iter(PartitionFactory(definition).make_all(rows)), None)

    def _sort_key(self, connection: Connection, table: Table, sort: str) -> ColumnElement[Any]:
        row = PartitionRow
        measures: dict[str, ColumnElement[Any]] = {
            Sort.NEWEST: row.id.expression,
            Sort.ROWS: row.row_count.expression,
            Sort.BYTES: row.size_bytes.expression,
            Sort.FILES: row.file_count.expression,
            Sort.FILE_BYTES: cast(row.size_bytes, Double) / func.nullif(row.file_count, 0),
        }
        position = table.key_position(sort)
        if position is not None:
            return _typed(connection, position, table.key_types[position])
        if sort not in measures:
            known = ", ".join((*measures, *table.key_names))
            raise InvalidRequestError(f"partitions cannot be sorted by {sort!r}; sort them by one of {known}")
        return measures[sort]

    def groups(
        self, table: str, keys: Sequence[str], expression: str | None = None, *, limit: int = 5_000
    ) -> PartitionGroups:
        """Return the partitions that match an expression, grouped by some keys, those with the most rows first.

        Raises:
            InvalidRequestError: The table has no such partition key.
        """
        with self.storage.read() as connection:
            definition = self.definitions.get_hive_table(table, connection)
            pieces = [_with_null(piece(position_of(definition, key))) for key in keys]
            return self.grouped(connection, self.chosen(connection, definition, expression), pieces, limit)

    def grouped(
        self,
        connection: Connection,
        chosen: Sequence[ColumnElement[bool]],
        pieces: Sequence[ColumnElement[Any]],
        limit: int,
    ) -> PartitionGroups:
        """Return groups of partitions by SQL expressions, in the caller's transaction."""
        labelled = [expression.label(f"piece_{number}") for number, expression in enumerate(pieces)]
        query: Select[*tuple[Any, ...]] = select(*labelled, *_SUMS).where(*chosen).group_by(*labelled)
        found = query.order_by(_ROWS.desc()).limit(limit + 1).subquery()
        is_failed = PartitionRow.id.in_(_FAILED) & ~PartitionRow.is_quarantined
        failed = (
            select(*labelled, func.count().label("number")).where(*chosen, is_failed).group_by(*labelled).subquery()
        )
        is_same = and_(true(), *(found.c[piece.name] == failed.c[piece.name] for piece in labelled))
        columns = func.coalesce(failed.c.number, 0), *found.c
        groups = [
            PartitionGroup(
                unpack_values("/".join(values[: len(labelled)])) if labelled else (),
                sums_of(values[len(labelled) :]),
                number,
            )
            for number, *values in connection.execute(select(*columns).outerjoin_from(found, failed, is_same))
        ]
        groups.sort(key=lambda group: group.sums.rows, reverse=True)
        return PartitionGroups(groups[:limit], len(groups) > limit)

    def chosen(
        self, connection: Connection, table: Table, expression: str | None, *, only_bad: bool = False
    ) -> list[ColumnElement[bool]]:
        """Return the conditions of the partitions that match an expression, in the caller's transaction."""
        chosen, unseen = self._matching(connection, table, expression, only_bad=only_bad)
        if unseen is None or connection.scalar(select(PartitionRow.id).where(*chosen, unseen).limit(1)) is None:
            return chosen
        return self._exactly(connection, table, expression, only_bad=only_bad)

    def calendar(self, table: str, expression: str | None = None) -> Calendar | None:
        """Return a table's partitions by day, with the days that lack some; None for a table without days.

        `catalog.partitions.gaps` tells which keys are days.
        """
        from catalog.partitions.gaps import read_calendar

        return read_calendar(self, table, expression)

    def missing(self, table: str, first: str, last: str, expression: str | None = None) -> MissingPartitions:
        """Return the partitions that a table lacks from one day to another, both inclusive, written as 2024-05-01.

        Raises:
            InvalidRequestError: A day is invalid, the table has no days, or the range has too many partitions.
        """
        from catalog.partitions.gaps import find_missing

        return find_missing(self, table, first, last, expression)

    def files(
        self, table: str, partition_id: int | None = None, *, offset: int = 0, limit: int = 100
    ) -> tuple[Sequence[DataFile], PartitionSums]:
        """Return some data files of a table whose files the catalog records, smallest first, and sums over all.

        Args:
            partition_id: Only those of this partition: `Partition.id`, or the id in a scheme.
        """
        row = DataFileRow
        with self.storage.read() as connection:
            definition = self.definitions.get_hive_table(table, connection)
            chosen = [row.table_id == definition.id]
            if partition_id is not None:
                chosen.append(row.partition_id == partition_id)
            columns = (row.id, row.partition_id, row.path, row.row_count, row.size_bytes, row.statistics)
            query = select(*columns, row.operation_number).where(*chosen)
            rows = connection.execute(query.order_by(row.size_bytes, row.id).offset(offset).limit(limit)).all()
            sums = select(func.count(), func.sum(row.row_count), func.sum(row.size_bytes)).where(*chosen)
            count, total_rows, total_bytes = connection.execute(sums).one()
        return [DataFile(*found) for found in rows], PartitionSums(
            0, 0, count, int(total_rows or 0), int(total_bytes or 0)
        )

    def snapshots(self, table: str) -> TableSnapshots | None:
        """Return what the metadata of an Iceberg table say; None for a table of which other engines see no metadata.

        Raises:
            UnreadableMetadataError: The metadata file cannot be read.
        """
        definition = self.definitions.get_table(table)
        location = definition.metadata_location or definition.live_location
        if location is None:
            return None
        # PyIceberg takes a second to import.
        from catalog.iceberg.described import read_snapshots

        return read_snapshots(definition.full_name, location)


def _conditions_of(table: Table, matching: ColumnElement[bool] | None, *, only_bad: bool) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [PartitionRow.table_id == table.id]
    if matching is not None:
        conditions.append(matching)
    if only_bad:
        conditions.append(or_(PartitionRow.is_quarantined, PartitionRow.id.in_(_FAILED)))
    return conditions


def _with_null(value: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the SQL expression of a value in which a missing one is null, so that both are one group."""
    return func.coalesce(func.nullif(value, LACKING_VALUE), NULL_VALUE)


def position_of(table: Table, key: str) -> int:
    """Return the position of a partition key.

    Raises:
        InvalidRequestError: The table has no such key.
    """
    position = table.key_position(normalise_identifier(key, "column"))
    if position is None:
        known = ", ".join(table.key_names) or "none"
        raise InvalidRequestError(f"{key!r} is no partition key of {table.full_name}; its keys are: {known}")
    return position


def _typed(connection: Connection, position: int, key_type: KeyType) -> ColumnElement[Any]:
    """Return the SQL expression by which partitions are sorted by a key."""
    value = piece(position)
    is_null = value.in_(NO_VALUE)
    if not isinstance(key_type, IntegerType | FloatingType | DecimalType):
        text = collate(value, "C") if connection.dialect.name == "postgresql" else value
        return case((is_null, null()), else_=text)
    number = cast(value, Numeric)
    if connection.dialect.name == "postgresql":
        return case((value.regexp_match(_NUMBER), number))
    # SQLite takes the digits at the start of a string as its number.
    return case((is_null, null()), else_=number)


_FAILED = select(PartitionCheckRow.partition_id).where(
    text("NOT calve_partition_check.passed"), PartitionCheckRow.release_number.is_(None)
)
"""The ids of partitions that failed their latest check, and that nobody has released.

SQLite uses the index of those that failed only if the condition is written so.
"""


def _number_of(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)


_ROWS = func.coalesce(func.sum(PartitionRow.row_count), 0)
_SUMS = (
    func.count(),
    _number_of(PartitionRow.is_quarantined.expression),
    func.coalesce(func.sum(PartitionRow.file_count), 0),
    _ROWS,
    func.coalesce(func.sum(PartitionRow.size_bytes), 0),
    func.max(PartitionRow.created_at_ms),
)


def sums_of(columns: Iterable[Any]) -> PartitionSums:
    """Return the sums of a row of a statement with them."""
    return PartitionSums(*(None if number is None else int(number) for number in columns))  # type: ignore[arg-type]
