"""The pages of tables."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from calve_airflow.pages.open_catalog import OpenCatalog
from calve_airflow.pages.overview import table_sizes
from calve_airflow.pages.rendering import is_part, render
from catalog.model import ICEBERG, Table

router = APIRouter()

_PAGE = 100


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


@router.get("/tables")
def tables(request: Request, catalog: OpenCatalog, search: str = "", page: int = 1) -> Response:
    """List the tables whose names contain a text."""
    measured = table_sizes(catalog)
    text = search.strip().lower()
    found = [table for table in catalog.list_tables() if text in table.full_name]
    page = max(1, page)
    shown = found[(page - 1) * _PAGE : page * _PAGE]
    return render(
        request,
        "tables_part.html" if is_part(request) else "tables.html",
        active="tables",
        search=search,
        page=page,
        pages=max(1, -(-len(found) // _PAGE)),
        total=len(found),
        rows=[(table, kind_of(table), keys_of(table), measured.get(table.id)) for table in shown],
    )


@router.get("/tables/{name}")
def table(request: Request, catalog: OpenCatalog, name: str) -> Response:
    """Show a table: its columns, keys, indexes and latest operations."""
    found = catalog.get_table(name)
    return render(
        request,
        "table.html",
        active="tables",
        table=found,
        kind=kind_of(found),
        keys=keys_of(found),
        size=table_sizes(catalog).get(found.id),
        indexes=catalog.get_partition_indexes(name) if found.partition_keys else [],
        operations=catalog.operations.list(found.full_name, limit=20),
    )
