"""Statements that read or change rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalog.statements.merges import MergeAction, MergeCase
from catalog.statements.model.base import Statement, TableStatement
from catalog.statements.terms import Literal, PartitionValues


@dataclass(frozen=True, kw_only=True)
class ForgetRows(TableStatement):
    """CALL calve.system.forget.

    Attributes:
        where: The condition of the rows.
        at_once: Delete the files that had the rows now, although running readers may need them.
    """

    where: str
    at_once: bool = False


@dataclass(frozen=True, kw_only=True)
class InsertStatement(TableStatement):
    """An INSERT INTO or INSERT OVERWRITE.

    Attributes:
        columns: The columns that get values, in order; empty for all.
        values: Constant values of partition keys.
        overwrite: Replace the partitions with these values; without values, those that the rows belong to.
    """

    overwrite: bool = False
    columns: tuple[str, ...] = ()
    values: PartitionValues = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class InsertValues(InsertStatement):
    """INSERT INTO … VALUES."""

    rows: Sequence[tuple[Literal, ...]]


@dataclass(frozen=True, kw_only=True)
class InsertQuery(InsertStatement):
    """INSERT INTO … SELECT."""

    query: str


@dataclass(frozen=True, kw_only=True)
class DeleteRows(TableStatement):
    """DELETE FROM.

    Attributes:
        where: The condition as it was written; None for all rows.
    """

    where: str | None = None


@dataclass(frozen=True, kw_only=True)
class UpdateRows(TableStatement):
    """UPDATE.

    Attributes:
        assignments: Column → expression of the new value, as it was written.
        where: The condition as it was written; None for all rows.
    """

    assignments: Mapping[str, str]
    where: str | None = None


@dataclass(frozen=True)
class MergeClause:
    """A WHEN clause of MERGE.

    Attributes:
        condition: After AND; None without it.
        values: Column → expression of its value; None for `*`, the columns of the same names. A list of expressions
            has one for each column, in their order. Empty for DELETE.
    """

    case: MergeCase
    action: MergeAction
    condition: str | None = None
    values: Mapping[str, str] | Sequence[str] | None = ()


@dataclass(frozen=True, kw_only=True)
class MergeRows(TableStatement):
    """MERGE INTO.

    Attributes:
        alias: The name of the target in expressions.
        source: A table or a query in parentheses, as it was written.
        source_alias: The name of the source in expressions.
        condition: The condition after ON.
        clauses: The first whose condition is met applies to a row.
    """

    alias: str
    source: str
    source_alias: str
    condition: str
    clauses: Sequence[MergeClause]


@dataclass(frozen=True, kw_only=True)
class TruncateTable(TableStatement):
    """TRUNCATE TABLE.

    Attributes:
        values: Values of some keys; empty for all partitions.
    """

    values: PartitionValues = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CompactTable(TableStatement):
    """ALTER TABLE … [PARTITION (…)] COMPACT.

    Attributes:
        values: Values of some keys; empty for all partitions.
    """

    values: PartitionValues = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LoadData(TableStatement):
    """LOAD DATA INPATH.

    Attributes:
        options: Options, with names in upper case.
        overwrite: Replace the partitions that the rows belong to.
    """

    path: str
    overwrite: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Select(Statement):
    """A SELECT, as it was written."""

    query: str


@dataclass(frozen=True, kw_only=True)
class ExplainSelect(Statement):
    """EXPLAIN SELECT; the SELECT as it was written."""

    query: str
