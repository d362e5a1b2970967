"""The partitions of a table as a list, and one partition with its files."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import RedirectResponse

from calve_airflow.pages.access import User
from calve_airflow.pages.address_fields import Id, PageNumber
from calve_airflow.pages.open_catalog import OpenCatalog
from calve_airflow.pages.rendering import is_part, with_query
from calve_airflow.pages.table_actions import Action, compaction_of, drop_statement, statement
from calve_airflow.pages.table_pages import explained, has_partition_rows, render_table
from catalog import Catalog
from catalog.model import Partition, Table
from catalog.partitions.browsing import Sort
from catalog.partitions.gaps import day_range
from catalog.partitions.specs import spec_filter

router = APIRouter()

_PAGE = 100


@router.get("/tables/{name}/partitions")
def partitions(
    request: Request,
    catalog: OpenCatalog,
    user: User,
    name: str,
    where: str = "",
    sort: str = Sort.NEWEST,
    order: str = "desc",
    only: str = "",
    page: PageNumber = 1,
) -> Response:
    """List the partitions that match an expression."""
    table = catalog.get_table(name)
    if table.scheme is not None and not table.is_iceberg:
        return _scheme_partitions(request, catalog, user, table, where)
    if not has_partition_rows(table):
        raise HTTPException(404, f"{table.full_name} has no partitions in the catalog")
    page = max(1, page)
    found, problem = explained(
        lambda: catalog.browsing.page(
            table.full_name,
            where.strip() or None,
            sort=sort,
            descending=order != "asc",
            offset=(page - 1) * _PAGE,
            limit=_PAGE,
            only_bad=only == "bad",
        )
    )
    listed = found.partitions if found else []
    checks = catalog.quality.get_many([partition.id for partition in listed])
    return render_table(
        request,
        user,
        catalog,
        table,
        "partitions",
        "table_partitions_part.html" if is_part(request) else "table_partitions.html",
        where=where,
        sort=sort,
        order=order,
        only=only,
        page=page,
        pages=max(1, -(-found.sums.partitions // _PAGE)) if found else 1,
        found=found,
        problem=problem,
        rows=[(partition, checks.get(partition.id)) for partition in listed],
    )


@router.get("/tables/{name}/days")
def days(request: Request, catalog: OpenCatalog, name: str, first: str, last: str, where: str = "") -> Response:
    """Lead to the list of the partitions of some days."""
    table = catalog.get_table(name)
    expression = day_range(catalog.browsing, table, first, last)
    both = f"({where}) and {expression}" if where.strip() else expression
    root = request.scope.get("root_path", "")
    return RedirectResponse(root + with_query(f"/tables/{table.full_name}/partitions", where=both, sort=""), 303)


def _scheme_partitions(request: Request, catalog: Catalog, user: User, table: Table, where: str) -> Response:
    found, problem = explained(lambda: catalog.scheme_partitions(table.full_name, where.strip() or None))
    return render_table(
        request,
        user,
        catalog,
        table,
        "partitions",
        "table_scheme_part.html" if is_part(request) else "table_scheme.html",
        where=where,
        partitions=found or [],
        largest=max((partition.row_count for partition in found or ()), default=0),
        problem=problem,
    )


@router.get("/tables/{name}/partition")
def partition(request: Request, catalog: OpenCatalog, user: User, name: str, id: Id) -> Response:
    """Show a partition of a table.

    Raises:
        HTTPException: 404; there is no such partition.
    """
    table = catalog.get_table(name)
    if not has_partition_rows(table):
        raise HTTPException(404, f"{table.full_name} has no partitions in the catalog")
    found = catalog.browsing.partition(table.full_name, id)
    if found is None:
        raise HTTPException(404, f"{table.full_name} has no such partition; it was dropped, or rewritten")
    check = catalog.quality.get(found.id)
    return render_table(
        request,
        user,
        catalog,
        table,
        "partitions",
        "table_partition.html",
        partition=found,
        check=check,
        own_actions=_actions(table, found),
        where=spec_filter(table, dict(enumerate(found.values))) or "",
    )


def _actions(table: Table, partition: Partition) -> list[Action]:
    compact = compaction_of(table)
    drop = statement("Drop", "Partitions", drop_statement(table, partition.values), is_danger=True)
    if table.is_stored_as_iceberg:
        return [compact, drop]
    purged = drop_statement(table, partition.values, purge=True)
    return [compact, drop, statement("Purge", "Partitions", purged, is_danger=True)]
