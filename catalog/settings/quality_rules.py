"""Quality rules for new partitions, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from catalog.errors import InvalidConfigurationError
from catalog.settings.problems import Problems


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
    """

    minimum: Any = None
    maximum: Any = None
    max_null_ratio: float | None = None


@dataclass(frozen=True)
class QualityRules:
    """The `quality:` part of a table's entry in the YAML list.

        on_failure: quarantine        # or warn, the default, or fail
        row_count: {min: 1, usual: [0.75, 1.5], per: [year, month]}
        columns: {delay: {min: -120, max: 2000, max_null_ratio: 0.2}}
        agree: {month: month(departure)}

    Attributes:
        agree: Partition key → SQL expression over the data files' columns that gives the key's value in every row.
    """

    on_failure: OnFailure = OnFailure.WARN
    row_count: RowCountRule = RowCountRule()
    columns: Mapping[str, ColumnRule] = field(default_factory=dict)
    agree: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, keys: Sequence[str]) -> QualityRules:
        """Parse the rules.

        Args:
            config: The mapping from the YAML list.
            keys: The table's partition keys; empty when unknown, which leaves key names unchecked.

        Raises:
            InvalidConfigurationError: A field is unknown or has an invalid value.
        """
        _mapping("quality", config)
        problems = Problems()
        with problems:
            _check_fields("quality", config, ("on_failure", "row_count", "columns", "agree"))
        with problems:
            on_failure = _on_failure(config)
        with problems:
            agree = _agree(config, keys)
        with problems:
            row_count = _row_count_rule(_mapping("quality.row_count", config.get("row_count")), keys)
        columns: dict[str, ColumnRule] = {}
        with problems:
            for name, rule in _mapping("quality.columns", config.get("columns")).items():
                with problems:
                    columns[str(name).lower()] = _column_rule(name, rule)
        problems.report()
        return cls(on_failure, row_count, columns, agree)


def _on_failure(config: Mapping[str, Any]) -> OnFailure:
    value = config.get("on_failure", OnFailure.WARN)
    if value not in list(OnFailure):
        raise InvalidConfigurationError(f"quality.on_failure is {value!r}, expected warn, fail or quarantine")
    return OnFailure(value)


def _agree(config: Mapping[str, Any], keys: Sequence[str]) -> dict[str, str]:
    agree = _mapping("quality.agree", config.get("agree"))
    _check_keys("quality.agree", agree, keys)
    return {str(name).lower(): str(expression) for name, expression in agree.items()}


def _row_count_rule(config: Mapping[str, Any], keys: Sequence[str]) -> RowCountRule:
    _check_fields("quality.row_count", config, ("min", "usual", "per"))
    minimum, usual, per = config.get("min", 1), config.get("usual"), config.get("per") or ()
    if isinstance(minimum, bool) or not isinstance(minimum, int) or minimum < 0:
        raise InvalidConfigurationError(f"quality.row_count.min is {minimum!r}, expected a whole number, 0 or more")
    if not isinstance(per, (list, tuple)):
        raise InvalidConfigurationError(f"quality.row_count.per is {per!r}, expected a list of partition keys")
    _check_keys("quality.row_count.per", per, keys)
    if usual is None:
        return RowCountRule(minimum)
    if (
        not isinstance(usual, (list, tuple))
        or len(usual) != 2
        or not all(map(_is_number, usual))
        or usual[0] > usual[1]
    ):
        raise InvalidConfigurationError(
            f"quality.row_count.usual is {usual!r}, expected the minimum and maximum ratio, such as [0.75, 1.5]"
        )
    if not per:
        raise InvalidConfigurationError("quality.row_count.usual needs `per`, the keys by which rows are compared")
    return RowCountRule(minimum, (float(usual[0]), float(usual[1])), tuple(str(key).lower() for key in per))


def _column_rule(name: object, config: Any) -> ColumnRule:
    place = f"quality.columns.{name}"
    rule = _mapping(place, config)
    _check_fields(place, rule, ("min", "max", "max_null_ratio"))
    ratio = rule.get("max_null_ratio")
    if ratio is not None and not (_is_number(ratio) and 0 <= ratio <= 1):
        raise InvalidConfigurationError(f"{place}.max_null_ratio is {ratio!r}, expected a number from 0 to 1")
    minimum, maximum = rule.get("min"), rule.get("max")
    if type(minimum) is type(maximum) and minimum is not None and minimum > maximum:
        raise InvalidConfigurationError(
            f"{place} has min {minimum!r} and max {maximum!r}, which no value fits; exchange them"
        )
    return ColumnRule(minimum, maximum, ratio)


def _mapping(place: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidConfigurationError(f"{place} is {value!r}, expected a mapping")
    return value


def _check_fields(place: str, config: Mapping[str, Any], known: Sequence[str]) -> None:
    if unknown := [str(name) for name in config if name not in known]:
        raise InvalidConfigurationError(f"{place} has unknown fields {', '.join(unknown)}; it takes {', '.join(known)}")


def _check_keys(place: str, names: Any, keys: Sequence[str]) -> None:
    if keys and (unknown := [str(name) for name in names if str(name).lower() not in keys]):
        raise InvalidConfigurationError(
            f"{place} names {', '.join(unknown)}, which is not a partition key; the keys are {', '.join(keys)}"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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
class PartitionCheck:
    """The result of all checks of a partition.

    Attributes:
        measures: What the check has counted, by name; empty for a check of an earlier version.
    """

    partition_id: int
    failures: tuple[FailedCheck, ...] = ()
    measures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Return whether no check failed."""
        return not self.failures
