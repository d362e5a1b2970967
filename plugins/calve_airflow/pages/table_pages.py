"""The parts that all pages of one table have: its kind, its sizes, its tabs and its buttons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import Request, Response

from calve_airflow.pages.access import User, may_start
from calve_airflow.pages.engine_writes import unseen_writes
from calve_airflow.pages.open_catalog import Remembered
from calve_airflow.pages.overview import table_sizes
from calve_airflow.pages.rendering import render
from calve_airflow.pages.table_actions import Action, actions_of
from catalog import Catalog
from catalog.errors import CatalogError
from catalog.model import ICEBERG, Table
from catalog.partitions.counting import TableSize

if TYPE_CHECKING:
    from catalog.iceberg.described import TableSnapshots


def kind_of(table: Table) -> str:
    """Return the kind of a table, in the words of the pages."""
    if table.is_view:
        return "view"
    if table.scheme is not None:
        return f"{table.scheme.type} scheme"
    if table.is_iceberg or table.is_stored_as_iceberg:
        return ICEBERG.capitalize()
    return "Hive"


def keys_of(table: Table) -> str:
    """Return the partition keys of a table with their types, or the column of its scheme."""
    if table.scheme is not None:
        return f"{table.scheme.column} {table.scheme.column_type}"
    return ", ".join(f"{key.name} {key.type}" for key in table.partition_keys)


def has_partition_rows(table: Table) -> bool:
    """Return whether the catalog has a row for each of the table's partitions."""
    return bool(table.partition_keys) and not table.is_view and not table.is_iceberg


def _tabs(table: Table) -> list[tuple[str, str]]:
    """Return the tabs of a table: the last part of the address, and the title."""
    tabs = [("", "Definition")]
    if has_partition_rows(table) or (table.scheme is not None and not table.is_iceberg):
        tabs.append(("partitions", "Partitions"))
    if table.scheme is not None and not table.is_iceberg:
        tabs.append(("studio", "Change partitions"))
    if has_partition_rows(table):
        tabs += [("picture", "Picture"), ("explain", "Explain")]
    if not table.is_view:
        tabs += [("quality", "Quality"), ("files", "Files")]
    return [*tabs, ("operations", "Operations")]


def render_table(
    request: Request, user: User, catalog: Catalog, table: Table, tab: str, template: str, **values: Any
) -> Response:
    """Return a page of a table.

    Args:
        tab: The last part of the address of the page's tab.
    """
    allowed: dict[str, bool] = {}
    for action in (actions := actions_of(table)):
        allowed.setdefault(action.dag_id, may_start(user, action.dag_id))
    return render(
        request,
        template,
        active="tables",
        table=table,
        address=f"/tables/{quote(table.full_name)}",
        kind=kind_of(table),
        keys=keys_of(table),
        size=shown_size(catalog, table),
        unseen=unseen_writes(table, _delete_files(catalog, table)),
        tabs=_tabs(table),
        tab=tab,
        actions=[(group, list(found)) for group, found in groupby(_sorted(actions), _group)],
        may_start_any=any(allowed.values()),
        **values,
    )


def size_of(table: Table, measured: Mapping[int, TableSize]) -> TableSize | None:
    """Return the size of a table; None if the catalog does not know it.

    Of an Iceberg table, the catalog's partitions are those of the former Hive table.
    """
    if table.is_iceberg:
        return None
    is_counted = has_partition_rows(table) or table.has_file_rows
    return measured.get(table.id) or (TableSize() if is_counted else None)


_snapshots = Remembered(seconds=3600)
"""The totals in metadata files, which never change."""

_attempts = Remembered(seconds=15)
"""The totals, or None where they could not be read: a storage that does not answer is not asked by each request."""


def shown_size(catalog: Catalog, table: Table) -> TableSize | None:
    """Return the size of a table: of an Iceberg table, as its snapshot says, otherwise as the catalog knows it.

    None if it cannot be read, or if the snapshot has no totals.
    """
    if not table.is_iceberg:
        return size_of(table, table_sizes(catalog))
    found = _of_iceberg(catalog, table)
    if found is None or found.files is None or found.rows is None or found.size_bytes is None:
        return None
    return TableSize(files=found.files, rows=found.rows, size_bytes=found.size_bytes)


def _delete_files(catalog: Catalog, table: Table) -> int:
    """Return the number of delete files in a table's current snapshot, as far as it is known."""
    if not table.is_iceberg:
        return table.delete_file_count
    found = _of_iceberg(catalog, table)
    return (found.delete_files if found is not None else None) or 0


def _of_iceberg(catalog: Catalog, table: Table) -> TableSnapshots | None:
    """Return the snapshots of an Iceberg table; None if they cannot be read, which a later request tries again."""
    location = table.metadata_location

    def attempt() -> TableSnapshots | None:
        found: TableSnapshots | None
        # An error leaves `Remembered.get`, so that it is not remembered for an hour.
        found, _ = explained(lambda: _snapshots.get(location, lambda: catalog.browsing.snapshots(table.full_name)))
        return found

    return _attempts.get(location, attempt)


_GROUPS = ("Rows", "Partitions", "Indexes", "Files", "Table")


def _group(action: Action) -> str:
    return action.group


def _sorted(actions: list[Action]) -> list[Action]:
    return sorted(actions, key=lambda action: _GROUPS.index(action.group))


def explained(read: Callable[[], Any]) -> tuple[Any, str | None]:
    """Return a result and None; or None and the catalog's reason why there is none."""
    try:
        return read(), None
    except CatalogError as error:
        return None, str(error)
