"""The page on which the partitions of a table with a scheme are split, merged, dropped and added, with their plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from calve_airflow.operators.rebalancing import needs_approval
from calve_airflow.pages.access import User, may_start
from calve_airflow.pages.engine_writes import unseen_writes
from calve_airflow.pages.fields import PageNumber
from calve_airflow.pages.open_catalog import OpenCatalog
from calve_airflow.pages.rendering import is_part, render
from catalog import Catalog
from catalog.datafiles.partitions import SchemePartition
from catalog.errors import (
    CatalogError,
    CatalogUnavailableError,
    InvalidConfigurationError,
    NotFoundError,
    SchemeValueError,
    WrongFieldError,
)
from catalog.model import Table
from catalog.rebalancing.changes.base import item_of_values
from catalog.rebalancing.planning import RebalancePlan
from catalog.rebalancing.requests import RebalanceRequest
from catalog.schemes.hashing import HashScheme
from catalog.schemes.lists import ListScheme
from catalog.schemes.model import DEFAULT_PARTITION, UNPLACED, Scheme
from catalog.schemes.ranges import RangeScheme
from catalog.tables.checks import require_scheme

router = APIRouter()

DAG = "rebalance_partitions"

_PAGE = 200
_TARGETS = 12
_MEASURES = ("rows", "bytes")
_TITLES = {
    "split": "Split",
    "merge": "Merge",
    "drop": "Drop",
    "add": "Add",
    "set_partition_num": "Number of partitions",
    "place": "Place files",
}

_NEEDED = {
    "split": ("partition_ids", "items"),
    "merge": ("partition_ids",),
    "drop": ("partition_ids",),
    "add": ("items",),
    "set_partition_num": ("count",),
}


@dataclass(frozen=True)
class Bar:
    """A partition with the length of its bar, from 0 to 100."""

    partition: SchemePartition
    text: str
    percent: float
    can_change: bool


def _operations(scheme: Scheme, *, has_unplaced: bool) -> list[str]:
    """Return the changes that the partitions of a scheme support."""
    own = ["set_partition_num"] if isinstance(scheme, HashScheme) else ["split", "merge", "drop", "add"]
    return [*own, "place"] if has_unplaced else own


@router.get("/tables/{name}/studio")
def studio(
    request: Request,
    catalog: OpenCatalog,
    user: User,
    name: str,
    by: str = "rows",
    page: PageNumber = 1,
    operation: str = "",
    partition_ids: str = "",
) -> Response:
    """Show the partitions of a table as bars, and the form of a change."""
    table = require_scheme(catalog.get_table(name))
    assert table.scheme is not None
    by = by if by in _MEASURES else _MEASURES[0]
    partitions = catalog.scheme_partitions(name)
    operations = _operations(table.scheme, has_unplaced=partitions[-1].id == UNPLACED)
    page = min(max(1, page), -(-len(partitions) // _PAGE))
    rows = sum(partition.row_count for partition in partitions)
    return render(
        request,
        "studio_bars_part.html" if is_part(request) else "studio.html",
        active="tables",
        table=table,
        scheme=table.scheme,
        bars=_bars(table.scheme, partitions, by)[(page - 1) * _PAGE : page * _PAGE],
        by=by,
        page=page,
        pages=-(-len(partitions) // _PAGE),
        total=len(partitions),
        rows=rows,
        size_bytes=sum(partition.size_bytes for partition in partitions),
        unseen=unseen_writes(table, table.delete_file_count),
        skew=max(partition.row_count for partition in partitions) * len(partitions) / rows if rows else None,
        operations=[(change, _TITLES[change]) for change in operations],
        operation=operation if operation in operations else operations[0],
        partition_ids=partition_ids,
        may_start=may_start(user, DAG),
    )


def _bars(scheme: Scheme, partitions: Sequence[SchemePartition], by: str) -> list[Bar]:
    sizes = [partition.row_count if by == "rows" else partition.size_bytes for partition in partitions]
    largest = max(sizes, default=0) or 1
    can_change = not isinstance(scheme, HashScheme)
    return [
        Bar(
            partition,
            _text(scheme, partition.id),
            100 * size / largest,
            can_change and partition.id not in (DEFAULT_PARTITION, UNPLACED),
        )
        for partition, size in zip(partitions, sizes, strict=True)
    ]


def _text(scheme: Scheme, partition_id: int) -> str:
    if partition_id == UNPLACED:
        return "in no partition yet: files of other engines"
    if partition_id == DEFAULT_PARTITION and not isinstance(scheme, HashScheme):
        return f"default: all other values of {scheme.column}, and null"
    return scheme.text_of(partition_id)


@router.get("/tables/{name}/studio/points")
def points(request: Request, catalog: OpenCatalog, name: str, operation: str = "", partition_ids: str = "") -> Response:
    """Show what a change needs: split points of a range, groups of values, new bounds, or a number of partitions."""
    table = require_scheme(catalog.get_table(name))
    scheme, ids = table.scheme, _ids(partition_ids)
    chosen = ids[0] if len(ids) == 1 and isinstance(ids[0], int) and scheme and ids[0] in scheme.ids else None
    found, problem = None, None
    if isinstance(scheme, RangeScheme) and operation in ("split", "add"):
        partition_id = DEFAULT_PARTITION if operation == "add" else chosen
        try:
            if partition_id is not None and (operation == "add" or partition_id != DEFAULT_PARTITION):
                found = catalog.rebalancing.split_points(name, partition_id)
        except CatalogUnavailableError:
            raise
        except CatalogError as error:
            problem = str(error)
    values: Sequence[str] = ()
    if isinstance(scheme, ListScheme) and operation == "split" and chosen:
        values = dict(scheme.groups)[chosen]
    return render(
        request,
        "studio_points_part.html",
        table=table,
        scheme=scheme,
        is_range=isinstance(scheme, RangeScheme),
        is_hash=isinstance(scheme, HashScheme),
        operation=operation,
        chosen=chosen,
        found=found,
        marks=[[point.text, point.bytes_below, point.is_free] for point in found.points] if found else [],
        problem=problem,
        values=values,
    )


@router.get("/tables/{name}/studio/plan")
def plan(
    request: Request,
    catalog: OpenCatalog,
    user: User,
    name: str,
    operation: str = "",
    partition_ids: str = "",
    items: Annotated[list[str] | None, Query()] = None,
    value: Annotated[list[str] | None, Query()] = None,
    part: Annotated[list[str] | None, Query()] = None,
    with_data: bool = False,
    count: str = "",
) -> Response:
    """Show the plan of a change, as a dry run does, without starting a run; or why there is none."""
    table = require_scheme(catalog.get_table(name))
    form = form_of(
        table,
        operation,
        _ids(partition_ids),
        [item.strip() for item in items or () if item.strip()] + _groups(value or (), part or ()),
        with_data=with_data,
        count=count.strip(),
    )
    planned, problem = _planned(catalog, form) if _is_begun(form) else (None, None)
    return render(
        request,
        "studio_plan_part.html",
        table=table,
        plan=planned,
        problem=problem,
        is_begun=_is_begun(form),
        needs_approval=planned is not None and _needs_approval(planned),
        targets=_target_texts(planned),
        form={name: value for name, value in form.items() if value not in (None, [], False)},
        dag=DAG,
        may_start=may_start(user, DAG),
    )


def _is_begun(form: dict[str, Any]) -> bool:
    """Return whether enough is chosen for a plan, so that an incomplete form is no error yet."""
    return all(form.get(name) not in (None, "", []) for name in _NEEDED.get(form["operation"], ()))


def _planned(catalog: Catalog, form: dict[str, Any]) -> tuple[RebalancePlan | None, str | None]:
    try:
        request = RebalanceRequest.from_form({**form, "dry_run": True})
        return catalog.rebalancing.plan_request(request), None
    except (CatalogUnavailableError, NotFoundError):
        raise
    except WrongFieldError as error:
        # The form is beside it: its reader needs neither the name of the field nor that of the class.
        return None, str(error.__cause__ if isinstance(error.__cause__, CatalogError) else error)
    except CatalogError as error:
        return None, str(error)


def _needs_approval(planned: RebalancePlan) -> bool:
    try:
        return needs_approval(planned)
    except InvalidConfigurationError:
        # The run says what is wrong with the list of tables.
        return planned.is_destructive


def form_of(
    table: Table, operation: str, ids: Sequence[int | str], items: Sequence[str], *, with_data: bool, count: str
) -> dict[str, Any]:
    """Return the form of the DAG for what the page sends, with only the fields that the operation takes.

    Args:
        items: For a split of a range, the points between its bounds.
    """
    form: dict[str, Any] = {"table": table.full_name, "operation": operation}
    if operation in ("split", "merge", "drop"):
        form["partition_ids"] = list(ids)
    if operation == "drop":
        form["with_data"] = with_data
    if operation in ("split", "add"):
        form["items"] = list(items)
    if operation == "set_partition_num":
        form["count"] = int(count) if count.isascii() and count.isdigit() and len(count) < 10 else count
    scheme = table.scheme
    if "items" in form and isinstance(scheme, RangeScheme):
        form["items"] = _ascending(scheme, items)
    if operation == "split" and items and isinstance(scheme, RangeScheme) and len(ids) == 1:
        # The last part ends where the range ends.
        upper = dict(scheme.bounds).get(ids[0]) if isinstance(ids[0], int) else None
        form["items"] += [upper] if upper is not None else []
    return form


def _ascending(scheme: RangeScheme, items: Sequence[str]) -> list[str]:
    """Return bounds in their order, as handles may pass each other; as they are if one is no value."""
    try:
        return sorted(items, key=scheme.encoded)
    except SchemeValueError:
        return list(items)


def _groups(values: Sequence[str], parts: Sequence[str]) -> list[str]:
    """Return the groups of a list's values, by the number of the part that each belongs to."""
    groups: dict[str, list[str]] = defaultdict(list)
    for value, part in zip(values, parts, strict=False):
        groups[part.strip()].append(value)
    ordered = sorted(groups, key=lambda part: (len(part), part))
    return [item_of_values(groups[part]) for part in ordered]


def _ids(text: str) -> list[int | str]:
    """Return the partition ids in a text such as `3, 4`; what is no number stays, for the message."""
    parts = text.replace(",", " ").split()
    return [int(part) if part.isascii() and part.isdigit() and len(part) < 10 else part for part in parts]


def _target_texts(planned: RebalancePlan | None) -> dict[int, str]:
    """Return the partitions that rows move to, with their conditions afterwards."""
    if planned is None:
        return {}
    targets = (target for reading in planned.readings for target in reading.targets[:_TARGETS])
    return {target: _text(planned.scheme, target) for target in targets}
