"""Schema contracts: what a load does with columns and values that do not fit its table, in the words of dlt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from catalog.errors import InvalidConfigurationError


class ContractMode(StrEnum):
    """The treatment of a column that the table does not have, or of a value that does not fit its column's type.

    Source: dlt, "Schema contracts".
    """

    EVOLVE = "evolve"
    FREEZE = "freeze"
    DISCARD_ROW = "discard_row"
    DISCARD_VALUE = "discard_value"

    @property
    def discards(self) -> bool:
        """Return whether rows or values are left out of the load, and counted."""
        return self in (ContractMode.DISCARD_ROW, ContractMode.DISCARD_VALUE)


CONTRACT_MODES = tuple(map(str, ContractMode))


@dataclass(frozen=True)
class Contract:
    """The schema contract of a load.

    Attributes:
        columns: For columns of the files that the table does not have. EVOLVE adds them to the table; FREEZE refuses
            the file; DISCARD_ROW leaves out the rows that have a value there, DISCARD_VALUE only these values.
        types: For values that do not fit the types of their columns. EVOLVE widens a type without loss, and refuses
            other values; FREEZE refuses them; DISCARD_ROW leaves out their rows, DISCARD_VALUE makes them null.
    """

    columns: ContractMode = ContractMode.FREEZE
    types: ContractMode = ContractMode.FREEZE

    @classmethod
    def from_config(cls, config: Any) -> Contract:
        """Return the contract in the field `contract` of an entry: one word for both, or a mapping.

        Raises:
            InvalidConfigurationError: It is neither, or has another word.
        """
        if config is None or config == {}:
            return cls()
        if not isinstance(config, Mapping):
            mode = _mode("contract", config)
            return cls(mode, mode)
        if unknown := sorted(map(str, set(config) - {"columns", "types"})):
            raise InvalidConfigurationError(
                f"contract has unknown field {', '.join(unknown)}; its fields are columns and types, such as "
                "{columns: evolve, types: freeze}"
            )
        return cls(**{name: _mode(f"contract.{name}", word) for name, word in config.items()})

    def after_evolution(self) -> Contract:
        """Return the contract of the steps after a table has evolved: what is not in the table now is refused."""
        modes = (ContractMode.FREEZE if mode is ContractMode.EVOLVE else mode for mode in (self.columns, self.types))
        return Contract(*modes)

    def as_json(self) -> dict[str, str]:
        """Return the contract as `from_config` reads it."""
        return {"columns": str(self.columns), "types": str(self.types)}


def _mode(place: str, word: Any) -> ContractMode:
    if word not in CONTRACT_MODES:
        raise InvalidConfigurationError(f"{place} is {word!r}, expected one of {', '.join(CONTRACT_MODES)}")
    return ContractMode(word)
