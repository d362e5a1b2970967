"""The partition indexes that tables should have, by the YAML list or as requested."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from catalog.errors import InvalidConfigurationError
from catalog.model import Table
from catalog.model.identifiers import TableName, normalise_identifier
from catalog.settings.environment import tables_path
from catalog.settings.table_config import read_table_list


@dataclass(frozen=True)
class WantedIndexes:
    """The partition indexes that tables should have.

    Attributes:
        indexes: Table → index → keys.
        problems: Table → reason why its indexes are unknown.
    """

    indexes: Mapping[str, Mapping[str, Sequence[str]]]
    problems: Mapping[str, str] = field(default_factory=dict)


def wanted_indexes(existing: Iterable[Table], tables: Sequence[str] = (), indexes: Sequence[str] = ()) -> WantedIndexes:
    """Return the partition indexes that tables should have; an invalid entry of the list affects its own table only.

    Args:
        existing: The tables of the catalog.
        tables: The tables; empty for all of them, without those that do not exist yet or lack a key.
        indexes: Indexes for each of these tables, such as `by_day: year, day`; empty for those of its entry in the
            list.

    Raises:
        InvalidConfigurationError: One of `indexes`, or the list, cannot be parsed.
    """
    names = [str(TableName.parse(name)) for name in tables]
    if indexes:
        requested = dict(_name_and_keys(str(index)) for index in indexes)
        if names:
            return WantedIndexes(dict.fromkeys(names, requested))
        return WantedIndexes(_without_empty({table.full_name: _fitting(requested, table) for table in existing}))
    listed = read_table_list()
    known = _without_empty({name: config.indexes for name, config in listed.configs.items()})
    problems = {name: str(entry.error) for name, entry in listed.wrong.items()}
    if not names:
        present = {table.full_name for table in existing}
        return WantedIndexes({name: known[name] for name in known if name in present}, problems)
    for name in names:
        if name not in known:
            nothing = f"{tables_path()} has no indexes for {name}; add them there, or specify the indexes to build"
            problems.setdefault(name, nothing)
    return WantedIndexes(
        {name: known[name] for name in names if name in known},
        {name: problems[name] for name in names if name in problems},
    )


def _without_empty(indexes_by_table: Mapping[str, Mapping[str, list[str]]]) -> dict[str, Mapping[str, list[str]]]:
    return {table: indexes for table, indexes in indexes_by_table.items() if indexes}


def _fitting(indexes: Mapping[str, list[str]], table: Table) -> dict[str, list[str]]:
    return {name: keys for name, keys in indexes.items() if set(keys) <= set(table.key_names)}


def _name_and_keys(text: str) -> tuple[str, list[str]]:
    name, _, keys = text.partition(":")
    if not keys.strip():
        raise InvalidConfigurationError(f"index {text!r} has no keys; write a name and its keys: by_day: year, day")
    return normalise_identifier(name, "partition index"), [
        normalise_identifier(key, "column") for key in keys.split(",")
    ]
