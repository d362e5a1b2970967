"""Reading the fields of quality rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from catalog.errors import InvalidConfigurationError


def require_mapping(place: str, value: Any) -> Mapping[str, Any]:
    """Return a field that is a mapping; an empty one for a missing field.

    Raises:
        InvalidConfigurationError: It is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidConfigurationError(f"{place} is {value!r}, expected a mapping")
    return value


def require_fields(place: str, config: Mapping[str, Any], known: Sequence[str]) -> None:
    """Check that a mapping has only known fields.

    Raises:
        InvalidConfigurationError: It has others.
    """
    if unknown := [str(name) for name in config if name not in known]:
        raise InvalidConfigurationError(f"{place} has unknown fields {', '.join(unknown)}; it takes {', '.join(known)}")


def require_keys(place: str, names: Any, keys: Sequence[str]) -> None:
    """Check that names are partition keys; nothing is checked if the keys are unknown, and so empty.

    Raises:
        InvalidConfigurationError: One is not.
    """
    if keys and (unknown := [str(name) for name in names if str(name).lower() not in keys]):
        raise InvalidConfigurationError(
            f"{place} names {', '.join(unknown)}, which is not a partition key; the keys are {', '.join(keys)}"
        )


def require_names(place: str, value: Any, what: str) -> tuple[str, ...]:
    """Return a field that is a list of names without repetitions, in lower case.

    Args:
        what: What is named, as in "columns".

    Raises:
        InvalidConfigurationError: It is something else.
    """
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(name, str) and name for name in value):
        raise InvalidConfigurationError(f"{place} is {value!r}, expected a list of {what}")
    names = tuple(name.lower() for name in value)
    if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InvalidConfigurationError(f"{place} has {', '.join(repeated)} twice; remove one")
    return names


MOST_SAMPLED = 20
"""The maximum number of failing rows that a rule may show."""


def sample_of(place: str, rule: Mapping[str, Any]) -> int:
    """Return the number of failing rows that a rule allows to show; 0 without the field `sample`.

    Raises:
        InvalidConfigurationError: It is no whole number, or too large.
    """
    sample = rule.get("sample", 0)
    if isinstance(sample, bool) or not isinstance(sample, int) or not 0 <= sample <= MOST_SAMPLED:
        raise InvalidConfigurationError(
            f"{place}.sample is {sample!r}, expected a number of rows from 0 to {MOST_SAMPLED}"
        )
    return sample


def is_number(value: Any) -> bool:
    """Return whether a value is a number; true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
