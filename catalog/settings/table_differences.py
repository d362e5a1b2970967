"""Comparison of the list of tables with the tables of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from catalog.errors.base import did_you_mean
from catalog.model import IndexState, PartitionIndex, Table
from catalog.settings.contracts import ContractMode
from catalog.settings.load_keys import CHANGING_FUNCTIONS
from catalog.settings.merge_rules import MergeRule
from catalog.settings.quality_rules import QualityRules
from catalog.settings.relation_rules import references
from catalog.settings.scheme_loads import unsuitable_settings
from catalog.settings.spark_functions import columns_of
from catalog.settings.table_config import TableConfig
from catalog.types.key_types import parse_key_type


def compare_with_tables(
    configs: Mapping[str, TableConfig],
    tables: Iterable[Table],
    indexes_of: Callable[[str], Iterable[PartitionIndex]],
) -> dict[str, list[str]]:
    """Return what entries of the list say otherwise than the tables that they are for.

    Args:
        configs: Name of the table → entry.
        tables: The tables of the catalog; entries of others are for tables that a load will create.
        indexes_of: Returns the partition indexes of a table.

    Returns:
        Name of the table → sentences, without file and table.
    """
    existing = {table.full_name: table for table in tables}
    differences = {
        name: [
            *(_compare(config, existing[name], indexes_of) if name in existing else _compare_with_none(config)),
            *_compare_references(config, existing, configs),
        ]
        for name, config in configs.items()
    }
    return {name: sentences for name, sentences in differences.items() if sentences}


def possible_misspellings(config: TableConfig) -> Iterator[str]:
    """Yield the columns that rules name, and that are similar to listed ones; the files may have them nevertheless."""
    columns = [*config.keys, *config.columns]
    for field, name in _unknown_columns(config, columns, tuple(config.keys)):
        if similar := did_you_mean(name, columns):
            yield f"{field} has {name}, which is not listed in keys or columns; {similar}"


def _compare(config: TableConfig, table: Table, indexes_of: Callable[[str], Iterable[PartitionIndex]]) -> Iterator[str]:
    if config.source and (kind := _unloadable(table)):
        yield f"source is {config.source}, but the table in the catalog is {kind}; remove the source"
        return
    yield from _compare_rules(config, table)
    if config.source and table.scheme is not None:
        yield from unsuitable_settings(table, config.job_request(), config.quality)
        return
    yield from _compare_keys(config, table)
    if config.indexes:
        existing = [index for index in indexes_of(table.full_name) if index.state is not IndexState.FAILED]
        yield from _compare_indexes(config, table, existing)


def _compare_with_none(config: TableConfig) -> Iterator[str]:
    if config.source and not config.keys:
        yield (
            "keys is missing, but the table is not in the catalog, and a load that creates it needs them; name its "
            "partition keys with their types, such as keys: {day: date}, or create the table first"
        )


def _unloadable(table: Table) -> str:
    if table.is_view:
        return "a view, which has no rows of its own"
    if table.is_iceberg:
        return "an Iceberg table whose files Calve does not manage"
    return ""


def _compare_keys(config: TableConfig, table: Table) -> Iterator[str]:
    if not config.keys:
        return
    if unknown := [name for name in config.keys if name not in table.key_names]:
        yield (
            f"keys has {', '.join(unknown)}, which the table in the catalog does not have; its keys are "
            f"{_keys(table)}. Write these, or leave out keys"
        )
    elif list(config.keys) != list(table.key_names):
        yield (
            f"keys are {', '.join(config.keys)}, but those of the table in the catalog are {_keys(table)}; write "
            "these in their order, or leave out keys"
        )
    for key in table.partition_keys:
        written = config.keys.get(key.name, key.type)
        if parse_key_type(written).name != parse_key_type(key.type).name:
            yield (
                f"keys.{key.name} is {written}, but the table in the catalog has the type {key.type}; write "
                f"{key.type}, or change the table: ALTER TABLE {table.full_name} CHANGE COLUMN {key.name} {key.name} "
                f"{written}"
            )


def _compare_rules(config: TableConfig, table: Table) -> Iterator[str]:
    """Yield what the rules say about columns that the table does not have, and no load will add."""
    if config.contract.get("columns") == ContractMode.EVOLVE or table.is_view or table.is_iceberg:
        return
    columns = _columns(table)
    renamed = {name: column.name for column in table.columns for name in column.stored_names}
    for field, name in _unknown_columns(config, columns, table.key_names):
        advice = f"it is named {renamed[name]} now." if name in renamed else did_you_mean(name, columns)
        advice = advice or f"its columns are {', '.join(columns)}."
        yield f"{field} has {name}, which the table in the catalog does not have; {advice} Correct the rule"


def _unknown_columns(config: TableConfig, columns: Collection[str], keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the columns that rules name, and that are not among those given, each with the field of the rule."""
    quality = QualityRules.from_config(config.quality, keys=keys)
    merge = MergeRule.from_config(config.merge) if config.merge else None
    rules: dict[str, Iterable[str]] = {
        "required": config.required,
        **({} if merge is None else merge.columns()),
        "merge.delete": _columns_of(merge.delete) if merge is not None and merge.delete else (),
        "quality.columns": quality.columns,
        "quality.unique": [name for rule in quality.unique for name in rule.columns],
        **{f"quality.agree.{key}": _columns_of(expression) for key, expression in quality.agree.items()},
        "quality.references": quality.references,
    }
    for field, names in rules.items():
        yield from ((field, name) for name in dict.fromkeys(map(str.lower, names)) if name not in columns)


def _columns_of(expression: str) -> list[str]:
    return [name for name in columns_of(expression) if name not in CHANGING_FUNCTIONS]


def _columns(table: Table) -> list[str]:
    return [column.name for column in (*table.columns, *table.partition_keys)]


def _compare_references(config: TableConfig, tables: Mapping[str, Table], listed: Iterable[str]) -> Iterator[str]:
    """Yield the columns of other tables that a rule refers to, and that are not there."""
    for name, reference in references(config.quality.get("references")).items():
        rule, target = f"quality.references.{name} is {reference}, but", tables.get(reference.table)
        if target is None and reference.table not in listed:
            advice = did_you_mean(reference.table, [*tables, *listed]) or "create it."
            yield f"{rule} neither the catalog nor the list has a table {reference.table}; {advice} Correct the rule"
            continue
        # The columns of Iceberg tables that engines made are not known here.
        columns = [] if target is None or target.is_view or target.is_iceberg else _columns(target)
        if columns and reference.column not in columns:
            advice = did_you_mean(reference.column, columns) or f"its columns are {', '.join(columns)}."
            yield f"{rule} {reference.table} in the catalog has no column {reference.column}; {advice} Correct the rule"


def _compare_indexes(config: TableConfig, table: Table, existing: Sequence[PartitionIndex]) -> Iterator[str]:
    present = {index.name: index for index in existing}
    for name, keys in config.indexes.items():
        if unknown := [key for key in keys if key not in table.key_names]:
            if not config.keys:
                yield (
                    f"index {name} has {', '.join(unknown)}, not a partition key of the table in the catalog; its "
                    f"keys are {_keys(table)}; correct the index"
                )
        elif name in present and present[name].keys != tuple(keys):
            yield (
                f"index {name} is on {', '.join(keys)}, but that of the table in the catalog is on "
                f"{', '.join(present[name].keys)}; write these keys, another name, or drop the index"
            )
        else:
            for index in existing:
                if index.name != name and index.keys == tuple(keys):
                    yield (
                        f"index {name} is on {', '.join(keys)}, as the index {index.name} of the table in the catalog "
                        "already is; write that name"
                    )


def _keys(table: Table) -> str:
    return ", ".join(f"{key.name} {key.type}" for key in table.partition_keys) or "none"
