"""Report on how a table should be partitioned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from catalog.advice.choosing import Candidate, Following, as_loaded, best, candidates, following
from catalog.advice.profile import PartitionSpread, TableProfile
from catalog.model import Table
from catalog.rebalancing.advising import Advice
from catalog.rebalancing.planning import target_file_bytes
from catalog.schemes.model import Scheme
from catalog.types.literals import quoted, quoted_name

_SHOWN = 20


class Measuring(Protocol):
    """Measures tables; implemented by `catalog.statements.engine.Engine`."""

    def profile(self, table: Table, queries: Sequence[str], database: str) -> TableProfile:
        """Measure a table's columns and the conditions of queries on it."""
        ...

    def spread(self, table: Table, scheme: Scheme) -> list[PartitionSpread]:
        """Return what each partition would contain under a scheme."""
        ...


@dataclass(frozen=True)
class TuningReport:
    """The recommended partitioning of a table, with reasons.

    Attributes:
        profile: The measurements.
        candidates: All columns, the best partition column first.
        scheme: The proposed scheme; None if no column is suitable.
        statement: The CREATE TABLE statement of an equal table with this scheme.
        following: Columns whose file statistics would prune files, too.
        rebalancing: Proposals for the table's existing partitions; None without a scheme.
        compaction: Proposals to compact partitions with small files: `statement`, `reason`, and the `request` of a
            `dag`.
    """

    profile: TableProfile
    candidates: tuple[Candidate, ...]
    scheme: Scheme | None
    statement: str | None
    following: tuple[Following, ...]
    rebalancing: Advice | None
    compaction: Sequence[Mapping[str, Any]] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        profile = self.profile
        return {
            "table": profile.table,
            "rows": profile.row_count,
            "bytes": profile.size_bytes,
            "columns": [_candidate_json(candidate) for candidate in self.candidates],
            "scheme": None if self.scheme is None else self.scheme.as_json(),
            "statement": self.statement,
            "following": [
                {"column": follower.column, "read_share": round(follower.read_share, 4)} for follower in self.following
            ],
            "queries": [
                {
                    "query": query.text,
                    "reads_table": query.reads_table,
                    "columns": sorted(query.bounds),
                    "error": query.error,
                }
                for query in profile.queries
            ],
            "rebalancing": None if self.rebalancing is None else self.rebalancing.as_json(),
            "compaction": list(self.compaction),
        }

    def lines(self) -> Iterator[str]:
        """Yield the lines of text after the table of columns."""
        for query in self.profile.queries:
            if query.error is not None:
                yield f"Not understood: {query.error}"
            elif not query.reads_table:
                yield f"Does not read {self.profile.table}: {' '.join(query.text.split())[:80]}"
        if self.statement is None or self.scheme is None:
            yield "No column would make a sensible partition column."
        else:
            yield from ("", "Proposed:", "", *self.statement.splitlines(), "")
        for follower in self.following[:_SHOWN]:
            yield (
                f"{follower.column} follows {self.scheme.column if self.scheme else ''}: a typical range of it lies in "
                f"{_percent(follower.read_share)} of the rows; as a sort column it prunes files by their minima and "
                "maxima."
            )
        if self.rebalancing is not None:
            for proposal in self.rebalancing.proposals:
                yield f"ALTER TABLE {self.profile.table} {proposal.change};  -- {proposal.reason}"
            for number in self.rebalancing.to_count:
                yield f"Partition {number} is too large; the DAG rebalance_advisor finds where to split it."
        for compaction in self.compaction:
            yield f"{compaction['statement']};  -- {compaction['reason']}"

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row for each column, with the values of `HEADERS`."""
        query_count = sum(query.reads_table and query.error is None for query in self.profile.queries)
        return [
            (
                candidate.column.name,
                candidate.column.type,
                f"{candidate.column.distinct_count:,}",
                _percent(candidate.column.null_share),
                _percent(candidate.column.largest_share),
                f"{candidate.queries_pruned} of {query_count}" if query_count else "",
                "" if candidate.read_share is None else _percent(candidate.read_share),
                "" if candidate.partition_skew is None else f"{candidate.partition_skew:.1f}",
                _in_short(candidate.scheme),
            )
            for candidate in self.candidates
        ]


HEADERS = ("COLUMN", "TYPE", "VALUES", "NULLS", "LARGEST", "QUERIES", "ROWS READ", "SKEW", "WOULD BE")


def advise_table(
    engine: Measuring, table: Table, queries: Sequence[str], database: str, rebalancing: Advice | None
) -> TuningReport:
    """Measure a table, and return the recommended partitioning.

    Raises:
        CatalogError: The table cannot be read.
    """
    profile = engine.profile(table, queries, database)
    ranked = candidates(profile, target_file_bytes(table))
    scheme = best(ranked)
    followers: list[Following] = []
    statement = None
    if scheme is not None:
        followers = following(profile, scheme, engine.spread(table, as_loaded(ranked[0].column, scheme)))
        if not scheme.sort_columns and followers:
            scheme = replace(scheme, sort_columns=tuple(follower.column for follower in followers[:2]))
        statement = create_statement(table, scheme)
    return TuningReport(profile, tuple(ranked), scheme, statement, tuple(followers), rebalancing)


def create_statement(table: Table, scheme: Scheme) -> str:
    """Return the statement that creates a table with the same columns and a scheme, under another name."""
    others = [column for column in (*table.columns, *table.partition_keys) if column.name != scheme.column]
    columns = [f"{quoted_name(column.name)} {column.type}" for column in others]
    properties = scheme.properties()
    if scheme.sort_columns:
        properties |= {"SORT_COLUMNS": ", ".join(scheme.sort_columns)}
    listed = ", ".join(f"{quoted(name)}={quoted(value)}" for name, value in properties.items())
    return "\n".join(
        [
            f"CREATE TABLE {quoted_name(table.database)}.{quoted_name(f'{table.name}_by_{scheme.column}')} (",
            ",\n".join(f"  {column}" for column in columns) + ")",
            f"PARTITIONED BY ({quoted_name(scheme.column)} {scheme.column_type})",
            "STORED BY 'carbondata'",
            f"TBLPROPERTIES ({listed});",
        ]
    )


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    column, scheme = candidate.column, candidate.scheme
    return {
        "column": column.name,
        "type": column.type,
        "distinct_values": column.distinct_count,
        "null_share": round(column.null_share, 4),
        "largest_share": round(column.largest_share, 4),
        "largest_value": column.frequent[0][0] if column.frequent else None,
        "queries_pruned": candidate.queries_pruned,
        "read_share": None if candidate.read_share is None else round(candidate.read_share, 4),
        "partition_skew": None if candidate.partition_skew is None else round(candidate.partition_skew, 2),
        "score": round(candidate.score, 4),
        "properties": None if scheme is None else scheme.properties(),
    }


def _in_short(scheme: Scheme | None) -> str:
    if scheme is None:
        return ""
    properties = scheme.properties()
    count = f"{len(scheme.ids):,}" if "INTERVAL" not in properties else properties["INTERVAL"]
    return f"{scheme.type} {count}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if 0 < share < 0.995 else f"{100 * share:.0f} %"
