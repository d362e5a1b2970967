"""The checks of each partition, as expectations about one column of a partition summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from catalog import Table
from catalog.settings.quality_rules import QualityRules
from spark_jobs.checking.measures import DUPLICATES, ELSEWHERE, ORPHANS, column_of
from spark_jobs.checking.partition_summary import claims

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Check:
    """An expectation about one column of the summary.

    Attributes:
        column: The checked column of the summary.
        minimum, maximum: Inclusive bounds of its values; None for no bound. Nulls pass.
        name: Description of the checked value.
        allowed: Description of the allowed values.
        is_claim: The column is boolean and must be true.
        observed_in, allowed_in: Partition → the observed and the allowed value, where the column does not have them.
    """

    column: str
    name: str
    allowed: str
    minimum: Any = None
    maximum: Any = None
    is_claim: bool = False
    observed_in: Mapping[str, str] = field(default_factory=dict)
    allowed_in: Mapping[str, str] = field(default_factory=dict)


def planned_checks(summary: pandas.DataFrame, table: Table, rules: QualityRules) -> list[Check]:
    """Return the checks of each partition."""
    rows = rules.row_count
    checks = [
        Check("row_count_difference", "rows in the files minus registered rows", "0", 0, 0),
        Check("row_count", "rows", f"at least {rows.minimum}", rows.minimum),
    ]
    if table.scheme is None:
        checks += [
            Check("path_agrees", "the path has the registered values", "true", is_claim=True),
            Check("values_fit", "the values have the keys' types", "true", is_claim=True),
        ]
    if rows.usual is not None:
        low, high = rows.usual
        name = f"ratio of the rows of the same {', '.join(rows.per)} to the usual number"
        checks.append(Check("usual_ratio", name, f"{low} to {high}", low, high))
    for column, rule in rules.columns.items():
        if rule.max_null_ratio is not None:
            checks.append(
                Check(
                    f"{column}_null_ratio",
                    f"ratio of nulls in {column}",
                    f"at most {rule.max_null_ratio}",
                    0,
                    rule.max_null_ratio,
                )
            )
        if rule.minimum is not None:
            checks.append(Check(f"{column}_below", f"rows with {column} below {rule.minimum}", "0", 0, 0))
        if rule.maximum is not None:
            checks.append(Check(f"{column}_above", f"rows with {column} above {rule.maximum}", "0", 0, 0))
    checks += _of_related_rows(rules)
    known_claims = [claim for claim in claims(table, table.key_names, rules) if claim.column in summary.columns]
    for claim in known_claims:
        where = f"column {claim.key} in the files" if claim.may_be_null else claim.expression
        checks.append(Check(claim.column, f"{where} gives the partition's {claim.key}", "true", is_claim=True))
    return checks


def _of_related_rows(rules: QualityRules) -> Iterator[Check]:
    """Yield the checks of unique columns, and of references to other tables."""
    for rule in rules.unique:
        name = f"rows with the same {rule.name} as an earlier row of the partition"
        yield Check(column_of(rule, DUPLICATES), name, "0", 0, 0)
        if rule.is_table_wide:
            name = f"values of {rule.name} that other partitions have, too"
            yield Check(column_of(rule, ELSEWHERE), name, "0", 0, 0)
    for column, reference in rules.references.items():
        yield Check(f"{column}{ORPHANS}", f"rows with a {column} that {reference} does not have", "0", 0, 0)
