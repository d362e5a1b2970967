"""Quality rules for new partitions, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from catalog.errors import InvalidConfigurationError
from catalog.settings.learning_rules import LearningRule
from catalog.settings.problems import Problems
from catalog.settings.relation_rules import Reference, UniqueRule, references, unique_rules
from catalog.settings.rule_fields import is_number, require_fields, require_keys, require_mapping, sample_of

_FIELDS = ("on_failure", "row_count", "columns", "agree", "learn", "unique", "references")


class OnFailure(StrEnum):
    """How to treat new partitions that fail a check."""

    WARN = "warn"
    FAIL = "fail"
    QUARANTINE = "quarantine"


@dataclass(frozen=True)
class RowCountRule:
    """The expected number of rows.

    Attributes:
        minimum: Of each partition.
        usual: Minimum and maximum ratio, inclusive, of the rows of a partition's group to the median of the table's
            other groups; None for no such check. The first group of a table passes.
        per: The keys that define a group, for instance year and month.
    """

    minimum: int = 1
    usual: tuple[float, float] | None = None
    per: tuple[str, ...] = ()


@dataclass(frozen=True)
class ColumnRule:
    """The valid values of a column.

    Attributes:
        minimum, maximum: Inclusive; None for no bound. Nulls are not compared.
        max_null_ratio: Ratio of nulls to rows of a partition, 0 to 1; None for any.
        sample: The number of failing rows that pages may show; 0 for none.
    """

    minimum: Any = None
    maximum: Any = None
    max_null_ratio: float | None = None
    sample: int = 0


@dataclass(frozen=True)
class QualityRules:
    """The `quality:` part of a table's entry in the YAML list.

        on_failure: quarantine        # or warn, the default, or fail
        row_count: {min: 1, usual: [0.75, 1.5], per: [year, month]}
        columns: {delay: {min: -120, max: 2000, max_null_ratio: 0.2, sample: 5}}   # shows up to 5 failing rows
        agree: {month: month(departure)}
        learn: on                    # or some of [row_count, nulls, distinct, freshness]
        unique: [id]                 # in a partition; {columns: [id], within: table} in the table
        references: {customer: shop.customers.id}

    Attributes:
        agree: Partition key → SQL expression over the data files' columns that gives the key's value in every row.
        learn: What must be as in earlier partitions; None for nothing.
        unique: Columns that identify a row.
        references: Column → the column of another table that has its values.
    """

    on_failure: OnFailure = OnFailure.WARN
    row_count: RowCountRule = RowCountRule()
    columns: Mapping[str, ColumnRule] = field(default_factory=dict)
    agree: Mapping[str, str] = field(default_factory=dict)
    learn: LearningRule | None = None
    unique: tuple[UniqueRule, ...] = ()
    references: Mapping[str, Reference] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, keys: Sequence[str]) -> QualityRules:
        """Parse the rules.

        Args:
            config: The mapping from the YAML list.
            keys: The table's partition keys; empty when unknown, which leaves key names unchecked.

        Raises:
            InvalidConfigurationError: A field is unknown or has an invalid value.
        """
        require_mapping("quality", config)
        problems = Problems()
        with problems:
            require_fields("quality", config, _FIELDS)
        with problems:
            on_failure = _on_failure(config)
        with problems:
            agree = _agree(config, keys)
        with problems:
            row_count = _row_count_rule(require_mapping("quality.row_count", config.get("row_count")), keys)
        columns: dict[str, ColumnRule] = {}
        with problems:
            for name, rule in require_mapping("quality.columns", config.get("columns")).items():
                with problems:
                    columns[str(name).lower()] = _column_rule(name, rule)
        with problems:
            learn = LearningRule.from_config(config.get("learn"), keys=keys)
        with problems:
            unique = unique_rules(config.get("unique"))
        with problems:
            referred = references(config.get("references"))
        problems.report()
        return cls(on_failure, row_count, columns, agree, learn, unique, referred)


def _on_failure(config: Mapping[str, Any]) -> OnFailure:
    value = config.get("on_failure", OnFailure.WARN)
    if value not in list(OnFailure):
        raise InvalidConfigurationError(f"quality.on_failure is {value!r}, expected warn, fail or quarantine")
    return OnFailure(value)


def _agree(config: Mapping[str, Any], keys: Sequence[str]) -> dict[str, str]:
    agree = require_mapping("quality.agree", config.get("agree"))
    require_keys("quality.agree", agree, keys)
    return {str(name).lower(): str(expression) for name, expression in agree.items()}


def _row_count_rule(config: Mapping[str, Any], keys: Sequence[str]) -> RowCountRule:
    require_fields("quality.row_count", config, ("min", "usual", "per"))
    minimum, usual, per = config.get("min", 1), config.get("usual"), config.get("per") or ()
    if isinstance(minimum, bool) or not isinstance(minimum, int) or minimum < 0:
        raise InvalidConfigurationError(f"quality.row_count.min is {minimum!r}, expected a whole number, 0 or more")
    if not isinstance(per, (list, tuple)):
        raise InvalidConfigurationError(f"quality.row_count.per is {per!r}, expected a list of partition keys")
    require_keys("quality.row_count.per", per, keys)
    if usual is None:
        return RowCountRule(minimum)
    if not isinstance(usual, (list, tuple)) or len(usual) != 2 or not all(map(is_number, usual)) or usual[0] > usual[1]:
        raise InvalidConfigurationError(
            f"quality.row_count.usual is {usual!r}, expected the minimum and maximum ratio, such as [0.75, 1.5]"
        )
    if not per:
        raise InvalidConfigurationError("quality.row_count.usual needs `per`, the keys by which rows are compared")
    return RowCountRule(minimum, (float(usual[0]), float(usual[1])), tuple(str(key).lower() for key in per))


def _column_rule(name: object, config: Any) -> ColumnRule:
    place = f"quality.columns.{name}"
    rule = require_mapping(place, config)
    require_fields(place, rule, ("min", "max", "max_null_ratio", "sample"))
    ratio = rule.get("max_null_ratio")
    if ratio is not None and not (is_number(ratio) and 0 <= ratio <= 1):
        raise InvalidConfigurationError(f"{place}.max_null_ratio is {ratio!r}, expected a number from 0 to 1")
    minimum, maximum = rule.get("min"), rule.get("max")
    if type(minimum) is type(maximum) and minimum is not None and minimum > maximum:
        raise InvalidConfigurationError(
            f"{place} has min {minimum!r} and max {maximum!r}, which no value fits; exchange them"
        )
    return ColumnRule(minimum, maximum, ratio, sample_of(place, rule))


@dataclass(frozen=True)
class FailedCheck:
    """A check that a partition failed, with the observed and the allowed value."""

    check: str
    observed: str
    allowed: str

    def __str__(self) -> str:
        """Return check, observed and allowed value as one line."""
        return f"{self.check}: {self.observed}, expected {self.allowed}"


@dataclass(frozen=True)
class FailedSample:
    """The first rows of a partition that failed a check whose rule allows to show them.

    Attributes:
        check: As in `FailedCheck`.
        columns: Names of columns.
        rows: The values as text, one for each column; None is null.
    """

    check: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]


@dataclass(frozen=True)
class PartitionCheck:
    """The result of all checks of a partition.

    Attributes:
        measures: What the check has counted, by name; empty for a check of an earlier version.
        samples: Failing rows; empty for a check that was read from the catalog, which keeps them apart.
    """

    partition_id: int
    failures: tuple[FailedCheck, ...] = ()
    measures: Mapping[str, Any] = field(default_factory=dict)
    samples: tuple[FailedSample, ...] = ()

    @property
    def passed(self) -> bool:
        """Return whether no check failed."""
        return not self.failures
