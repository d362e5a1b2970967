"""When a table's partitions count as badly cut; all sizes in the size that its data files aim at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from catalog.errors import InvalidConfigurationError


@dataclass(frozen=True)
class RebalanceRules:
    """What is proposed for one table, and whether it is done.

    Attributes:
        apply: Whether what is proposed is done at once, without a person.
        split_factor: A partition with more than so many times the bytes of the median one is split, …
        split_files: … if it has more than so many files' bytes.
        maximum_files: A partition with more than so many files' bytes is split, whatever the others have.
        merge_files: Neighbouring partitions with less than so many files' bytes each are merged, up to one file's.
    """

    apply: bool = False
    split_factor: float = 4.0
    split_files: float = 4.0
    maximum_files: float = 256.0
    merge_files: float = 0.125

    @classmethod
    def from_config(cls, entry: Mapping[str, Any]) -> Self:
        """Return the rules of a mapping; what it leaves out is as usual.

        Raises:
            InvalidConfigurationError: A field is not known, or has a wrong value.
        """
        known = {each.name for each in fields(cls)}
        if unknown := sorted(map(str, set(entry) - known)):
            raise InvalidConfigurationError(
                f"unknown rebalance field {', '.join(unknown)}; the fields are {', '.join(sorted(known))}"
            )
        values: dict[str, Any] = {}
        for name, value in entry.items():
            if name == "apply":
                if not isinstance(value, bool):
                    raise InvalidConfigurationError(f"rebalance.apply is {value!r}, expected true or false")
                values[name] = value
                continue
            low, high = _LIMITS[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise InvalidConfigurationError(
                    f"rebalance.{name} is {value!r}, expected a number from {low} to {high}"
                )
            values[name] = float(value)
        rules = cls(**values)
        if rules.maximum_files < 2 * rules.split_files:
            raise InvalidConfigurationError(
                f"rebalance.maximum_files is {rules.maximum_files} and split_files {rules.split_files}; the first has "
                "to be at least twice the second"
            )
        return rules


# Within these, what is split is not split again, and not merged, when somebody looks the next time.
_LIMITS: Mapping[str, tuple[float, float]] = {
    "split_factor": (2.5, 1_000),
    "split_files": (2.5, 100_000),
    "maximum_files": (5, 1_000_000),
    "merge_files": (0, 0.5),
}
