"""The forms that the page of a table offers, with their fields filled in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calve_airflow.forms.loads import load_dag_id
from calve_airflow.pages.airflow_records import known_dags
from catalog.model import Table
from catalog.schemes.model import SchemeType
from catalog.types.literals import quoted, quoted_name


@dataclass(frozen=True)
class Action:
    """A button that opens the form of a DAG.

    Attributes:
        group: The heading under which it is listed.
        fields: Values of the form's fields; those that are no texts become JSON.
        page: The address of a page for these fields, which shows more than the form.
    """

    title: str
    dag_id: str
    group: str
    fields: Mapping[str, Any]
    is_danger: bool = False
    page: str | None = None

    @property
    def query(self) -> dict[str, str]:
        """The fields as the query of the form's address."""
        return form_query(self.fields)


def form_query(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return values of a form's fields as the query of its address."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}


def load_dags(tables: Iterable[str]) -> dict[str, str]:
    """Return table → the DAG that loads it: its own one if Airflow has it, otherwise that of all tables."""
    own = {table: load_dag_id(table) for table in tables}
    known = known_dags(list(own.values()))
    return {table: dag_id if dag_id in known else load_dag_id(None) for table, dag_id in own.items()}


def load_dag(table: Table) -> str:
    """Return the DAG that loads a table, as `load_dags`."""
    return load_dags([table.full_name])[table.full_name]


def sql_name(table: Table) -> str:
    """Return a table's name as statements write it."""
    return f"{quoted_name(table.database)}.{quoted_name(table.name)}"


def statement(title: str, group: str, text: str, *, is_danger: bool = False) -> Action:
    """Return the button of a statement."""
    return Action(title, "run_statement", group, {"statement": text}, is_danger)


def drop_statement(table: Table, values: Sequence[str | None], *, purge: bool = False) -> str:
    """Return the statement that drops one partition."""
    named = ", ".join(
        f"{quoted_name(key)}={'NULL' if value is None else quoted(value)}"
        for key, value in zip(table.key_names, values, strict=True)
    )
    return f"ALTER TABLE {sql_name(table)} DROP PARTITION ({named}){' PURGE' if purge else ''}"


def actions_of(table: Table) -> list[Action]:
    """Return the buttons for a table, by its kind."""
    select = statement("Run a statement", "Rows", f"SELECT * FROM {sql_name(table)} LIMIT 20")
    if table.is_view:
        return [select]
    if table.is_only_iceberg:
        return [select, compaction_of(table)]
    load = Action("Load files", load_dag(table), "Rows", {"table": table.full_name})
    if table.is_iceberg:
        return [load, select, *_of_iceberg(table)]
    return [load, select, *(_of_scheme(table) if table.scheme is not None else _of_values(table))]


def compaction_of(table: Table) -> Action:
    """Return the button that compacts a table's files; it opens a dry run."""
    fields = {"tables": [table.full_name], "dry_run": True}
    if table.is_iceberg:
        return Action("Compact files, expire snapshots", "maintain_iceberg", "Files", fields)
    return Action("Compact small files", "compact_partitions", "Files", fields)


def _of_iceberg(table: Table) -> Iterator[Action]:
    yield compaction_of(table)
    call = f"schema_name => {quoted(table.database)}, table_name => {quoted(table.name)}"
    yield statement("Revert to Hive", "Table", f"CALL iceberg.system.revert({call})", is_danger=True)


def _of_scheme(table: Table) -> Iterator[Action]:
    assert table.scheme is not None
    is_hash = table.scheme.type is SchemeType.HASH
    changes = ["set_partition_num"] if is_hash else ["add", "split", "merge", "drop"]
    titles = {"set_partition_num": "Set the number of partitions", "place": "Place files of other engines"}
    for change in (*changes, "place"):
        title = titles.get(change, f"{change.capitalize()} partitions")
        fields = {"table": table.full_name, "operation": change}
        studio = None if change == "place" else f"/tables/{table.full_name}/studio"
        yield Action(title, "rebalance_partitions", "Partitions", fields, is_danger=change == "drop", page=studio)
    yield compaction_of(table)


def _of_values(table: Table) -> Iterator[Action]:
    tables = [table.full_name]
    if table.partition_keys:
        keys = list(table.key_names)
        yield Action(
            "Build an index",
            "build_partition_index",
            "Indexes",
            {"table": table.full_name, "index": f"by_{keys[0]}", "keys": keys},
        )
        yield Action("Verify all indexes", "verify_partition_indexes", "Indexes", {"tables": tables})
        example = ", ".join(f"{quoted_name(key)}='…'" for key in table.key_names)
        alter = f"ALTER TABLE {sql_name(table)}"
        if not table.is_stored_as_iceberg:
            yield statement("Add a partition", "Partitions", f"{alter} ADD PARTITION ({example})")
        yield statement("Drop partitions", "Partitions", f"{alter} DROP PARTITION ({example})", is_danger=True)
        if not table.is_stored_as_iceberg:
            yield statement(
                "Purge partitions", "Partitions", f"{alter} DROP PARTITION ({example}) PURGE", is_danger=True
            )
    yield compaction_of(table)
    if not table.has_file_rows:
        yield Action("Migrate to Iceberg", "migrate_hive_to_iceberg", "Table", {"tables": tables, "dry_run": True})


def verify_action(table: Table) -> Action:
    """Return the button that verifies a table's indexes."""
    return Action("Verify", "verify_partition_indexes", "Indexes", {"tables": [table.full_name]})


def index_actions(table: Table, name: str, keys: Sequence[str]) -> tuple[Action, Action]:
    """Return the buttons that build an index, or continue its build, and that delete it."""
    build = {"table": table.full_name, "index": name, "keys": list(keys)}
    drop = f"DROP PARTITION INDEX {quoted_name(name)} ON {sql_name(table)}"
    return (
        Action("Build", "build_partition_index", "Indexes", build),
        statement("Delete", "Indexes", drop, is_danger=True),
    )
