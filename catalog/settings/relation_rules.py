"""Rules about rows together: columns whose values are unique, and columns that refer to another table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catalog.errors import CatalogError, InvalidConfigurationError
from catalog.model.identifiers import TableName
from catalog.settings.problems import Problems
from catalog.settings.rule_fields import require_fields, require_mapping, require_names, sample_of

_UNIQUE = "quality.unique"
_WITHIN = ("partition", "table")


@dataclass(frozen=True)
class UniqueRule:
    """Columns whose values together identify a row; rows with a null in one of them are not compared.

    Attributes:
        is_table_wide: No other partition has the same values, either.
        sample: The number of repeated values that pages may show; 0 for none.
    """

    columns: tuple[str, ...]
    is_table_wide: bool = False
    sample: int = 0

    @property
    def name(self) -> str:
        """The columns as text."""
        return ", ".join(self.columns)


@dataclass(frozen=True)
class Reference:
    """The column of another table that has each value of a column; nulls refer to nothing.

    Attributes:
        sample: The number of rows without such a value that pages may show; 0 for none.
    """

    table: str
    column: str
    sample: int = 0

    def __str__(self) -> str:
        """Return `database.table.column`."""
        return f"{self.table}.{self.column}"


def unique_rules(config: Any) -> tuple[UniqueRule, ...]:
    """Parse `unique`: a list of columns, a mapping of `columns` and `within`, or a list of such mappings.

    Raises:
        InvalidConfigurationError: It is something else.
    """
    if config is None:
        return ()
    if isinstance(config, Mapping):
        return (_unique_rule(_UNIQUE, config),)
    if isinstance(config, (list, tuple)) and config and all(isinstance(rule, Mapping) for rule in config):
        rules: list[UniqueRule] = []
        problems = Problems()
        for number, rule in enumerate(config, 1):
            with problems:
                rules.append(_unique_rule(f"{_UNIQUE}, rule {number}", rule))
        problems.report()
        return tuple(rules)
    return (UniqueRule(require_names(_UNIQUE, config, "columns, such as [id]")),)


def _unique_rule(place: str, rule: Mapping[str, Any]) -> UniqueRule:
    require_fields(place, rule, ("columns", "within", "sample"))
    columns = require_names(f"{place}.columns", rule.get("columns"), "columns, such as [id]")
    within = rule.get("within", "partition")
    if within not in _WITHIN:
        raise InvalidConfigurationError(f"{place}.within is {within!r}, expected partition or table")
    return UniqueRule(columns, within == "table", sample_of(place, rule))


def references(config: Any) -> dict[str, Reference]:
    """Parse `references`: column → `database.table.column`, or a mapping of it as `to`, and of `sample`.

    Raises:
        InvalidConfigurationError: It is something else.
    """
    found: dict[str, Reference] = {}
    problems = Problems()
    for column, target in require_mapping("quality.references", config).items():
        with problems:
            found[str(column).lower()] = _reference(f"quality.references.{column}", target)
    problems.report()
    return found


def _reference(place: str, target: Any) -> Reference:
    sample = 0
    if isinstance(target, Mapping):
        require_fields(place, target, ("to", "sample"))
        sample, target = sample_of(place, target), target.get("to")
    table, _, column = target.rpartition(".") if isinstance(target, str) else ("", "", "")
    try:
        if not column or table.count(".") != 1:
            raise InvalidConfigurationError("it does not have three parts")
        return Reference(str(TableName.parse(table)), column.lower(), sample)
    except CatalogError as error:
        raise InvalidConfigurationError(
            f"{place} is {target!r}, expected database.table.column, such as shop.customers.id: {error}"
        ) from None
