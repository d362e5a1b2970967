"""The rule by which the rows of a load with mode `merge` are merged into a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.errors import InvalidConfigurationError
from catalog.model.identifiers import normalise_identifier

_FIELDS = ("keys", "order", "delete")


@dataclass(frozen=True)
class MergeRule:
    """A rule of merging: of all rows with the same keys, the latest stays.

    Attributes:
        keys: The columns that identify a row.
        order: The column by which the latest of several rows is found; empty if the rows of a source are always later
            than those of the table.
        delete: A Spark SQL condition; a row that stays and meets it is deleted. Empty to delete none.
    """

    keys: Sequence[str]
    order: str = ""
    delete: str = ""

    def columns(self) -> dict[str, Sequence[str]]:
        """Return the columns that the rule names, without those of `delete`, by its fields."""
        return {"merge.keys": self.keys, "merge.order": [self.order] if self.order else []}

    @classmethod
    def from_config(cls, config: Any) -> MergeRule:
        """Return the rule in the field `merge` of an entry of the list of tables.

        Raises:
            InvalidConfigurationError: It has unknown fields, or no keys.
        """
        example = "expected a mapping such as {keys: [id], order: updated_at, delete: \"status = 'deleted'\"}"
        if not isinstance(config, Mapping):
            raise InvalidConfigurationError(f"merge is {config!r}, {example}")
        if unknown := sorted(map(str, set(config) - set(_FIELDS))):
            raise InvalidConfigurationError(
                f"merge has unknown field {', '.join(unknown)}; the fields are {', '.join(_FIELDS)}"
            )
        keys = config.get("keys")
        if not isinstance(keys, list | tuple) or not keys:
            raise InvalidConfigurationError(
                f"merge has keys {keys!r}, not a list of columns that identify a row; {example}"
            )
        names = tuple(normalise_identifier(str(key), "column") for key in keys)
        if len(set(names)) < len(names):
            raise InvalidConfigurationError(f"merge has keys {', '.join(names)}; name each column once")
        for name in ("order", "delete"):
            if not isinstance(config.get(name) or "", str):
                raise InvalidConfigurationError(f"merge has {name} {config[name]!r}, {example}")
        order = config.get("order") or ""
        return cls(names, normalise_identifier(order, "column") if order else "", config.get("delete") or "")
