"""The list of tables, and the definition and the operations of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response

from calve_airflow.pages.access import User
from calve_airflow.pages.address_fields import Id, PageNumber
from calve_airflow.pages.open_catalog import OpenCatalog
from calve_airflow.pages.overview import table_sizes
from calve_airflow.pages.rendering import is_part, render
from calve_airflow.pages.table_actions import Action, index_actions, verify_action
from calve_airflow.pages.table_pages import explained, has_partition_rows, keys_of, kind_of, render_table, size_of
from catalog import Catalog
from catalog.model import IndexState, PartitionIndex, Table
from catalog.partitions.counting import TableSize

router = APIRouter()

_PAGE = 100
_OPERATIONS = 50


@dataclass(frozen=True)
class TableLine:
    """A line of the list of tables."""

    table: Table
    kind: str
    keys: str
    size: TableSize | None
    failed_indexes: int
    building: int


def _order(sort: str, table: Table, size: TableSize | None) -> tuple[int, str]:
    """Return what a table is sorted by: a measure, the largest first, or its name."""
    measures = {"partitions": "partitions", "files": "files", "rows": "rows", "bytes": "size_bytes"}
    measured = getattr(size, measures[sort]) if sort in measures and size else -1
    return (-measured if sort in measures else 0), table.full_name


@router.get("/tables")
def tables(
    request: Request, catalog: OpenCatalog, search: str = "", kind: str = "", sort: str = "name", page: PageNumber = 1
) -> Response:
    """List the tables whose names contain a text."""
    measured = table_sizes(catalog)
    text = search.strip().lower()
    listed = catalog.list_tables()
    found = [table for table in listed if text in table.full_name and kind in ("", kind_of(table))]
    sizes = {table.id: size_of(table, measured) for table in found}
    found.sort(key=lambda table: _order(sort, table, sizes[table.id]))
    page = max(1, page)
    shown = found[(page - 1) * _PAGE : page * _PAGE]
    states = catalog.get_partition_index_states(table.full_name for table in shown)
    return render(
        request,
        "tables_part.html" if is_part(request) else "tables.html",
        active="tables",
        search=search,
        kind=kind,
        sort=sort,
        kinds=sorted({kind_of(table) for table in listed}),
        page=page,
        pages=max(1, -(-len(found) // _PAGE)),
        total=len(found),
        rows=[_line(table, sizes[table.id], list(states.get(table.full_name, {}).values())) for table in shown],
    )


def _line(table: Table, size: TableSize | None, states: list[IndexState]) -> TableLine:
    failed, building = states.count(IndexState.FAILED), states.count(IndexState.CREATING)
    return TableLine(table, kind_of(table), keys_of(table), size, failed, building)


@dataclass(frozen=True)
class IndexLine:
    """An index with its progress and its buttons."""

    index: PartitionIndex
    items: int | None
    total: int | None
    actions: tuple[Action, ...]

    @property
    def is_building(self) -> bool:
        """Whether it is being built."""
        return self.index.state is IndexState.CREATING


@router.get("/tables/{name}")
def table(request: Request, catalog: OpenCatalog, user: User, name: str) -> Response:
    """Show a table: its columns, keys and indexes, and what it is made of."""
    found = catalog.get_table(name)
    indexes = _indexes(catalog, found) if has_partition_rows(found) else []
    if is_part(request):
        return render(request, "table_indexes.html", table=found, indexes=indexes)
    shown, problem = explained(lambda: _with_live_columns(found))
    return render_table(
        request,
        user,
        catalog,
        found,
        "",
        "table.html",
        indexes=indexes,
        is_building=any(line.is_building for line in indexes),
        columns=(shown or found).columns,
        partition_keys=(shown or found).partition_keys,
        problem=problem,
        scheme=_scheme(found),
        has_indexes=has_partition_rows(found),
    )


def _with_live_columns(table: Table) -> Table:
    if not table.is_iceberg:
        return table
    from catalog.iceberg.live_columns import with_live_columns

    return with_live_columns(table)


def _scheme(table: Table) -> dict[str, Any] | None:
    """Return what the definition says about a partition scheme."""
    scheme = table.scheme
    if scheme is None:
        return None
    return {
        "type": scheme.type,
        "column": scheme.column,
        "count": len(scheme.ids),
        "sort_columns": ", ".join(scheme.sort_columns),
    }


def _indexes(catalog: Catalog, table: Table) -> list[IndexLine]:
    progress = catalog.get_partition_index_progress(table.full_name)
    lines = []
    for index in catalog.get_partition_indexes(table.full_name):
        built = progress.get(index.id)
        build, delete = index_actions(table, index.name, index.keys)
        actions = {
            IndexState.ACTIVE: (verify_action(table), delete),
            IndexState.CREATING: (build, delete),
            IndexState.FAILED: (build, delete),
        }.get(index.state, (delete,))
        total = built.items + built.remaining if built else None
        lines.append(IndexLine(index, built.items if built else None, total, actions))
    return lines


@router.get("/tables/{name}/operations")
def operations(request: Request, catalog: OpenCatalog, user: User, name: str, before: Id | None = None) -> Response:
    """List the operations of a table."""
    found = catalog.get_table(name)
    listed = catalog.operations.list(found.full_name, before=before, limit=_OPERATIONS + 1)
    return render_table(
        request,
        user,
        catalog,
        found,
        "operations",
        "table_operations.html",
        operations=listed[:_OPERATIONS],
        next_before=listed[_OPERATIONS - 1].number if len(listed) > _OPERATIONS else None,
    )
