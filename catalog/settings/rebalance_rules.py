"""Rules for changes of a table's partitions, and for their proposals; sizes are multiples of the target file size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from catalog.errors import InvalidConfigurationError
from catalog.settings.problems import Problems


@dataclass(frozen=True)
class RebalanceRules:
    """Thresholds for proposals to rebalance one table, and who decides about changes.

    Attributes:
        apply: Apply proposals at once, without approval.
        approval: In Airflow, a person must approve every change, also one that deletes no row.
        split_factor: Split a partition that is larger than this multiple of the median partition, …
        split_files: … if it is also larger than this number of files.
        maximum_files: Split a partition that is larger than this number of files, whatever the size of the others.
        merge_files: Merge adjacent partitions that are each smaller than this number of files, up to the size of one
            file.
    """

    apply: bool = False
    approval: bool = False
    split_factor: float = 4.0
    split_files: float = 4.0
    maximum_files: float = 256.0
    merge_files: float = 0.125

    @classmethod
    def from_config(cls, entry: Mapping[str, Any]) -> Self:
        """Return the rules of a mapping; missing fields have their defaults.

        Raises:
            InvalidConfigurationError: A field is unknown or has an invalid value.
        """
        known = {rule.name for rule in fields(cls)}
        problems = Problems()
        with problems:
            if unknown := sorted(map(str, set(entry) - known)):
                raise InvalidConfigurationError(
                    f"unknown rebalance field {', '.join(unknown)}; the fields are {', '.join(sorted(known))}"
                )
        values: dict[str, Any] = {}
        for name in sorted(known.intersection(entry)):
            with problems:
                values[name] = _value(name, entry[name])
        problems.report()
        rules = cls(**values)
        if rules.apply and rules.approval:
            raise InvalidConfigurationError(
                "rebalance.apply and rebalance.approval are both true, but changes that a person must approve are not "
                "applied at once; remove one of them"
            )
        if rules.maximum_files < 2 * rules.split_files:
            raise InvalidConfigurationError(
                f"rebalance.maximum_files is {rules.maximum_files} and split_files {rules.split_files}; the first must "
                "be at least twice the second"
            )
        return rules


def _value(name: str, value: Any) -> bool | float:
    if name not in _LIMITS:
        if not isinstance(value, bool):
            raise InvalidConfigurationError(f"rebalance.{name} is {value!r}, expected true or false")
        return value
    low, high = _LIMITS[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidConfigurationError(f"rebalance.{name} is {value!r}, expected a number from {low} to {high}")
    return float(value)


# Within these limits the next run proposes neither to split nor to merge the parts of a split again.
_LIMITS: Mapping[str, tuple[float, float]] = {
    "split_factor": (2.5, 1_000),
    "split_files": (2.5, 100_000),
    "maximum_files": (5, 1_000_000),
    "merge_files": (0, 0.5),
}
