"""The files of a table: their sizes, and the partitions with the smallest ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, HTTPException, Request, Response

from calve_airflow.pages.access import User
from calve_airflow.pages.fields import Number, PageNumber
from calve_airflow.pages.open_catalog import OpenCatalog
from calve_airflow.pages.overview import SMALL_BYTES, has_small_files
from calve_airflow.pages.table_actions import compaction_of
from calve_airflow.pages.table_pages import explained, has_partition_rows, render_table, shown_size
from catalog import Catalog
from catalog.files.filesystem import Folder
from catalog.model import Table
from catalog.partitions.browsing import Sort

router = APIRouter()

_PAGE = 100
_SHOWN = 50


@router.get("/tables/{name}/files")
def files(request: Request, catalog: OpenCatalog, user: User, name: str, partition: Number | None = None) -> Response:
    """Show the sizes of a table's files.

    Raises:
        HTTPException: 404; it is a view.
    """
    table = catalog.get_table(name)
    if table.is_view:
        raise HTTPException(404, f"{table.full_name} is a view and has no files; look at the tables that it reads")
    smallest = None
    if has_partition_rows(table):
        browsing = catalog.browsing
        smallest = browsing.page(table.full_name, sort=Sort.FILE_BYTES, descending=False, limit=_SHOWN).partitions
    size = shown_size(catalog, table)
    snapshots, problem = explained(lambda: catalog.browsing.snapshots(table.full_name))
    return render_table(
        request,
        user,
        catalog,
        table,
        "files",
        "table_files.html",
        smallest=smallest,
        snapshots=snapshots,
        problem=problem,
        is_small=has_small_files(size),
        compaction=compaction_of(table),
        small_bytes=SMALL_BYTES,
        partition=partition,
        lists_files=not table.is_iceberg and (table.has_file_rows or not table.partition_keys),
    )


@router.get("/tables/{name}/files/list")
def listed(
    request: Request,
    catalog: OpenCatalog,
    user: User,
    name: str,
    id: Number | None = None,
    page: PageNumber = 1,
) -> Response:
    """List the files of a partition, or of a table without partition keys, smallest first.

    Those of a Hive-style table are listed in the storage now.

    Raises:
        HTTPException: 404; there is no such partition.
    """
    table = catalog.get_table(name)
    page = max(1, page)
    if table.is_iceberg or table.is_view or (id is None and table.partition_keys and not table.has_file_rows):
        raise HTTPException(404, f"the files of {table.full_name} are not listed here")
    found = _of_catalog(catalog, table, id, page) if table.has_file_rows else _of_folder(catalog, table, id)
    return render_table(
        request,
        user,
        catalog,
        table,
        "files",
        "table_files_part.html",
        found=found,
        id=id,
        page=page,
        pages=max(1, -(-found.count // _PAGE)) if table.has_file_rows else 1,
        small_bytes=SMALL_BYTES,
    )


@dataclass(frozen=True)
class FoundFiles:
    """Some files: path, bytes, rows and time of each; the number and the size of all; why they cannot be listed."""

    listed: Sequence[tuple[str, int, int | None, int | None]]
    count: int
    size_bytes: int
    problem: str | None = None


def _of_catalog(catalog: Catalog, table: Table, id: int | None, page: int) -> FoundFiles:
    files, sums = catalog.browsing.files(table.full_name, id, offset=(page - 1) * _PAGE, limit=_PAGE)
    listed = [(file.path, file.size_bytes, file.row_count, None) for file in files]
    return FoundFiles(listed, sums.files, sums.size_bytes)


def _of_folder(catalog: Catalog, table: Table, id: int | None) -> FoundFiles:
    location = table.location
    if id is not None:
        found = catalog.browsing.partition(table.full_name, id)
        if found is None:
            raise HTTPException(404, f"{table.full_name} has no such partition; it was dropped, or rewritten")
        location = found.location
    entries, problem = explained(lambda: Folder(location).files())
    files = sorted(entries or (), key=lambda file: (file.size_bytes, file.path))
    start = len(location.rstrip("/")) + 1
    listed = [(file.path[start:], file.size_bytes, None, file.modified_at_ms) for file in files[:_PAGE]]
    return FoundFiles(listed, len(files), sum(file.size_bytes for file in files), problem)
