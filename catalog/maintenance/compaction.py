"""Selection of the partitions whose small files are compacted, by the counts in the catalog and a table's policy.

No file is listed. A partition whose files a compaction has written is left alone until its files change, so that rows
that compress well are not rewritten every day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import BigInteger, Connection, Subquery, Text, cast, func, not_, or_, select

from catalog.errors import OperationConflictError, UnsupportedChangeError
from catalog.model import Partition, Table
from catalog.operations.changes import is_compaction
from catalog.operations.journal import Operations
from catalog.operations.records import FINISHED
from catalog.rebalancing.planning import target_file_bytes
from catalog.schemes.model import UNPLACED
from catalog.settings.compaction_rules import CompactionRules, DailyLimit
from catalog.settings.table_config import read_table_list
from catalog.storage import Storage
from catalog.storage.bulk import among
from catalog.storage.clock import read_clock_ms
from catalog.storage.partition_rows import PartitionFactory, partition_query
from catalog.storage.schema import DataFileRow, OperationRow, PartitionRow
from catalog.tables.checks import bucket_count

MOST = 10_000
"""The maximum number of partitions of a plan; the next run finds the others."""

SHOWN = 200
"""The maximum number of partitions in the JSON of a plan."""

COMPACTION_DAG = "compact_partitions"
"""The DAG that compacts partitions."""

_DAY_MS = timedelta(days=1) // timedelta(milliseconds=1)


@dataclass(frozen=True)
class SmallFiles:
    """A partition with small files.

    Attributes:
        name: As in SHOW PARTITIONS; of a table with a partition scheme, the number of the partition.
    """

    id: int
    name: str
    file_count: int
    size_bytes: int


@dataclass(frozen=True)
class CompactionPlan:
    """The partitions of a table that its policy compacts now, and why others are left.

    Attributes:
        partitions: Those with the most files first.
        target_bytes: The size of the new files.
        left: Number of partitions with small files that the daily limit, or `MOST`, leaves to later runs.
        too_large: Partitions that are larger than the daily limit, so that no run compacts them.
        spent: What was compacted within the last 24 hours.
        held: Why the table cannot be compacted now; None if it can.
    """

    table: str
    rules: CompactionRules
    target_bytes: int
    partitions: Sequence[SmallFiles] = ()
    left: int = 0
    too_large: Sequence[str] = ()
    spent: DailyLimit = field(default_factory=DailyLimit)
    held: str | None = None

    @property
    def file_count(self) -> int:
        """The number of files that are rewritten."""
        return sum(partition.file_count for partition in self.partitions)

    @property
    def size_bytes(self) -> int:
        """The bytes that are rewritten."""
        return sum(partition.size_bytes for partition in self.partitions)

    def proposals(self) -> list[dict[str, Any]]:
        """Return the proposal to compact these partitions, like those of a rebalance; none without small files.

        Its `request` is a form of the DAG that `dag` names. The statement also compacts the partitions with few files.
        """
        if not self.partitions:
            return []
        average = self.size_bytes // max(1, self.file_count)
        return [
            {
                "statement": f"ALTER TABLE {self.table} COMPACT",
                "reason": f"{len(self.partitions):,} partition(s) have {self.file_count:,} files of {average:,} bytes "
                f"on average, and files should have about {self.target_bytes:,}",
                "dag": COMPACTION_DAG,
                "request": {"tables": [self.table], "dry_run": True},
            }
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON values: its totals, and the first `SHOWN` partitions."""
        files = [max(1, -(-partition.size_bytes // self.target_bytes)) for partition in self.partitions]
        return {
            "table": self.table,
            "statement": f"ALTER TABLE {self.table} COMPACT",
            "partition_count": len(self.partitions),
            "files_read": self.file_count,
            "files_written": sum(files),
            "bytes_moved": self.size_bytes,
            "target_bytes": self.target_bytes,
            "partitions_left": self.left,
            "partitions": [
                {
                    "partition": partition.name,
                    "bytes": partition.size_bytes,
                    "files": partition.file_count,
                    "files_after": after,
                }
                for partition, after in zip(self.partitions[:SHOWN], files, strict=False)
            ],
        }

    def lines(self) -> Iterator[str]:
        """Yield what is compacted and what is left, as sentences."""
        if self.held is not None:
            yield f"skipped: {self.held}"
            return
        if not self.partitions and not self.left and not self.too_large:
            yield "no partition has many small files"
            return
        yield (
            f"{len(self.partitions):,} partition(s) with {self.file_count:,} files, {self.size_bytes:,} bytes, to "
            f"compact into files of about {self.target_bytes:,} bytes"
        )
        limit = self.rules.at_most_per_day
        if self.left:
            spent = replace(self.spent, size_bytes=None) if limit.partitions is not None else self.spent
            yield (
                f"{self.left:,} more partition(s) are left to later runs: at most {limit} in 24 hours, and {spent} are "
                "done"
            )
        for name in self.too_large:
            yield f"{name} is larger than {limit}, the limit of a day, so it is never compacted"


def policies(is_needed: Callable[[str], bool] | None = None) -> dict[str, CompactionRules]:
    """Return the policies of the tables whose valid entries in the list of tables have one.

    Args:
        is_needed: As for `read_table_list`.

    Raises:
        InvalidConfigurationError: As `read_table_list`.
    """
    configs = read_table_list(is_needed=is_needed).configs.items()
    return {
        name: CompactionRules.from_config(entry.compaction) for name, entry in configs if entry.compaction is not None
    }


def rules_of(table: Table) -> CompactionRules:
    """Return the policy of a table, or the defaults if it has none.

    Raises:
        InvalidConfigurationError: As `read_table_list`.
    """
    return policies(lambda name: name == table.full_name).get(table.full_name, CompactionRules())


def is_compacted(table: Table) -> bool:
    """Return whether partitions of a table can be compacted by Calve; Iceberg's own procedure does it for others."""
    is_partitioned = bool(table.partition_keys) or table.scheme is not None
    is_written = table.format.is_readable and bucket_count(table) is None
    return is_partitioned and not table.is_view and not table.is_iceberg and is_written


def require_compacted(table: Table) -> None:
    """Refuse a table without partitions that Calve compacts.

    Raises:
        UnsupportedChangeError: It is one.
    """
    if is_compacted(table):
        return
    reason = f"has the format {table.format}, which Calve only records"
    if table.is_view:
        reason = "is a view, which has no files"
    elif table.is_iceberg:
        reason = "is an Iceberg table, which Iceberg's rewrite_data_files compacts"
    elif not table.partition_keys:
        reason = "has no partition keys"
    elif bucket_count(table) is not None:
        reason = "has buckets, which Calve does not write"
    raise UnsupportedChangeError(f"table {table.full_name} {reason}; compaction is for partitions that Calve writes")


def partitions_to_compact(storage: Storage, table: Table, ids: Sequence[int]) -> list[Partition]:
    """Return the partitions with some ids that still exist and are visible."""
    with storage.read() as connection:
        query = partition_query(table).where(~PartitionRow.is_quarantined, among(connection, PartitionRow.id, ids))
        return PartitionFactory(table).make_all(connection.execute(query.order_by(PartitionRow.id)).all())


def plan_compaction(storage: Storage, operations: Operations, table: Table, rules: CompactionRules) -> CompactionPlan:
    """Return the partitions of a table to compact now; changes nothing.

    Raises:
        InvalidTableError: The table's own target size is not a number.
    """
    target = rules.target_file_size or target_file_bytes(table)
    with storage.read() as connection:
        try:
            operations.refuse_if_held(connection, table.full_name)
        except OperationConflictError as conflict:
            return CompactionPlan(table.full_name, rules, target, held=str(conflict))
        now_ms = read_clock_ms(connection)
        found, total = _small(connection, table, rules, target, now_ms)
        spent = _spent(connection, table, now_ms)
    chosen, too_large = _within(found, rules.at_most_per_day, spent)
    left = total - len(chosen) - len(too_large)
    return CompactionPlan(table.full_name, rules, target, chosen, left, too_large, spent)


def _small(
    connection: Connection, table: Table, rules: CompactionRules, target: int, now_ms: int
) -> tuple[list[SmallFiles], int]:
    """Return the first `MOST` partitions with small files, and the number of all."""
    row, change = PartitionRow, OperationRow
    counted = _counted_files(table) if table.has_file_rows else _counted_partitions(table)
    counts = counted.c.files, counted.c.size, func.count().over().label("total")
    young_ms = now_ms - rules.min_age // timedelta(milliseconds=1)
    if table.scheme is not None:
        query = select(counted.c.id, cast(counted.c.id, Text).label("packed_values"), *counts)
        query = query.where(counted.c.id != UNPLACED)
    else:
        query = select(row.id, row.packed_values, *counts).join(counted, counted.c.id == row.id)
        query = query.where(row.table_id == table.id, not_(row.is_quarantined), row.created_at_ms <= young_ms)
    query = query.outerjoin(change, change.number == counted.c.last).where(
        counted.c.files >= rules.min_files,
        # On average less than half as large as they should be, so that there will be at most about half as many.
        counted.c.size * 2 < counted.c.files * target,
        func.coalesce(change.heartbeat_at_ms, 0) <= young_ms,
        or_(change.number.is_(None), counted.c.first != counted.c.last, not_(is_compaction())),
    )
    found = connection.execute(query.order_by(counted.c.files.desc(), counted.c.id).limit(MOST)).all()
    name = str if table.scheme is not None else table.partition_name
    partitions = [SmallFiles(row.id, name(row.packed_values), row.files, row.size) for row in found]
    return partitions, found[0].total if found else 0


def _counted_partitions(table: Table) -> Subquery:
    """Return the partitions of a Hive-style table with their counts, and the operation that wrote files last."""
    row, last = PartitionRow, PartitionRow.operation_number
    counts = (
        row.id,
        row.file_count.label("files"),
        row.size_bytes.label("size"),
        last.label("first"),
        last.label("last"),
    )
    return select(*counts).where(row.table_id == table.id).subquery()


def _counted_files(table: Table) -> Subquery:
    """Return the same for a table whose files the catalog knows, with the first of the operations, too.

    Files of other engines have operation 0, or none.
    """
    row, number = DataFileRow, func.coalesce(DataFileRow.operation_number, 0)
    counts = (
        row.partition_id.label("id"),
        func.count().label("files"),
        # PostgreSQL's sum of bigint is a decimal.
        cast(func.sum(row.size_bytes), BigInteger).label("size"),
        func.min(number).label("first"),
        func.max(number).label("last"),
    )
    return select(*counts).where(row.table_id == table.id).group_by(row.partition_id).subquery()


def _spent(connection: Connection, table: Table, now_ms: int) -> DailyLimit:
    """Return how much the compactions of a table have rewritten within 24 hours, those by hand included."""
    query = select(OperationRow.request).where(
        OperationRow.table_id == table.id,
        OperationRow.state.in_(FINISHED),
        OperationRow.created_at_ms > now_ms - _DAY_MS,
        is_compaction(),
    )
    requests = connection.scalars(query).all()
    return DailyLimit(
        sum(request.get("bytes") or 0 for request in requests),
        sum(request.get("partitions") or 0 for request in requests),
    )


def _within(
    found: Iterable[SmallFiles], limit: DailyLimit, spent: DailyLimit
) -> tuple[tuple[SmallFiles, ...], tuple[str, ...]]:
    """Return the partitions that fit into what is left of a daily limit, and those that never fit."""
    size_left = None if limit.size_bytes is None else limit.size_bytes - (spent.size_bytes or 0)
    count_left = None if limit.partitions is None else limit.partitions - (spent.partitions or 0)
    chosen, too_large = list[SmallFiles](), list[str]()
    for partition in found:
        if limit.size_bytes is not None and partition.size_bytes > limit.size_bytes:
            too_large.append(partition.name)
        elif (count_left is None or len(chosen) < count_left) and (
            size_left is None or partition.size_bytes <= size_left
        ):
            chosen.append(partition)
            size_left = None if size_left is None else size_left - partition.size_bytes
    return tuple(chosen), tuple(too_large)
