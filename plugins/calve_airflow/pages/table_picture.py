"""The partitions of a table as a calendar or by their keys, and the form that loads what is missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import JSONResponse

from calve_airflow.pages.access import User, may_start
from calve_airflow.pages.airflow_records import known_dags
from calve_airflow.pages.fields import Filter
from calve_airflow.pages.open_catalog import OpenCatalog, Remembered
from calve_airflow.pages.rendering import DATA_HEADERS, is_part
from calve_airflow.pages.table_actions import form_query, load_dag
from calve_airflow.pages.table_pages import explained, has_partition_rows, render_table
from catalog import Catalog
from catalog.errors import InvalidConfigurationError
from catalog.files.credentials import has_credentials, without_credentials
from catalog.model import Table
from catalog.partitions.browsing import PartitionGroups
from catalog.partitions.gaps import Calendar, day_keys, day_of, day_range
from catalog.partitions.specs import spec_filter
from catalog.settings.table_config import configured_load

router = APIRouter()

_CELLS = 5_000
_SHOWN = 500
_RUNS = 31

_read = Remembered(seconds=15)


def _require_partitions(catalog: Catalog, name: str) -> Table:
    table = catalog.get_table(name)
    if not has_partition_rows(table):
        raise HTTPException(404, f"{table.full_name} has no partitions in the catalog")
    return table


@router.get("/tables/{name}/picture")
def picture(
    request: Request, catalog: OpenCatalog, user: User, name: str, where: Filter = "", view: str = "", inside: str = ""
) -> Response:
    """Show the page of a picture, whose script asks for the data."""
    table = _require_partitions(catalog, name)
    has_days = bool(day_keys(table))
    return render_table(
        request,
        user,
        catalog,
        table,
        "picture",
        "table_picture.html",
        where=where,
        inside=inside,
        has_days=has_days,
        view="keys" if view == "keys" or not has_days else "calendar",
    )


@router.get("/tables/{name}/picture/data")
def data(catalog: OpenCatalog, name: str, where: Filter = "", view: str = "calendar", inside: str = "") -> Response:
    """Return the data of a picture: days, or groups of partitions by keys.

    Args:
        inside: Values of the first keys, as a list in JSON: only partitions inside them are shown.
    """
    table = _require_partitions(catalog, name)
    if view == "calendar":
        calendar = _read.get(
            (table.id, table.version, where, None), lambda: catalog.browsing.calendar(name, where or None)
        )
        if calendar is not None:
            return JSONResponse(_of_days(calendar), headers=DATA_HEADERS)
    prefix = _prefix(table, inside)
    groups = _read.get((table.id, table.version, where, prefix), lambda: _groups(catalog, table, where, prefix))
    return JSONResponse(groups, headers=DATA_HEADERS)


def _of_days(calendar: Calendar) -> dict[str, Any]:
    """Return a calendar as JSON values; a day is a list, because there may be thousands."""
    return {
        "kind": "calendar",
        "keys": list(calendar.keys),
        "series_keys": list(calendar.series_keys),
        "series": calendar.series,
        "undated": calendar.undated.partitions,
        "days": [
            [
                day.at.isoformat(),
                day.sums.partitions,
                day.missing,
                day.sums.quarantined,
                day.failed,
                day.sums.rows,
                day.sums.size_bytes,
                day.sums.files,
                day.sums.newest_at_ms,
            ]
            for day in calendar.days
        ],
    }


def _prefix(table: Table, inside: str) -> tuple[str | None, ...]:
    try:
        values = json.loads(inside) if inside else []
        # Unpaired surrogates, which JSON can have and no partition has.
        json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or not all(value is None or isinstance(value, str) for value in values):
        raise HTTPException(422, f"inside={inside!r} is no list of values; choose a group in the picture")
    if len(values) >= len(table.partition_keys):
        raise HTTPException(422, f"{table.full_name} has only {len(table.partition_keys)} keys; leave the picture")
    return tuple(values)


def _groups(catalog: Catalog, table: Table, where: str, prefix: Sequence[str | None]) -> dict[str, Any]:
    """Return groups by the next key; by all other keys, too, if these are few cells."""
    own = spec_filter(table, dict(enumerate(prefix)))
    parts = [f"({where})" if where.strip() else None, own]
    expression = " and ".join(part for part in parts if part) or None
    left = table.key_names[len(prefix) :]
    groups = catalog.browsing.groups(table.full_name, left[:1], expression, limit=_CELLS)
    levels = 1
    total = sum(group.sums.partitions for group in groups.groups)
    if not groups.is_cut and total <= _CELLS and len(left) > 1:
        levels = len(left)
        groups = catalog.browsing.groups(table.full_name, left, expression, limit=_CELLS)
    return _of_groups(table, groups, prefix, left, levels)


def _of_groups(
    table: Table, groups: PartitionGroups, prefix: Sequence[str | None], left: Sequence[str], levels: int
) -> dict[str, Any]:
    return {
        "kind": "groups",
        "inside": list(prefix),
        "keys": list(table.key_names),
        "levels": levels,
        "has_more": levels < len(left),
        "is_cut": groups.is_cut,
        "groups": [
            [
                list(group.values),
                group.sums.partitions,
                None,
                group.sums.quarantined,
                group.failed,
                group.sums.rows,
                group.sums.size_bytes,
                group.sums.files,
                group.sums.newest_at_ms,
            ]
            for group in groups.groups
        ],
    }


@dataclass(frozen=True)
class LoadOffer:
    """How a table is loaded.

    Attributes:
        dag_id: The DAG that loads it.
        source: The source in the table's entry; None without an entry.
        has_days: Whether each run loads the files of its own day.
        can_backfill: Whether Airflow can start a run for each day of a range.
        may_start: Whether the user may start its runs.
        new: The query of its form, for a run that loads what was not loaded yet.
        again: The query of its form, for a run that replaces what was loaded before.
    """

    dag_id: str
    source: str | None
    has_days: bool
    can_backfill: bool
    may_start: bool
    new: dict[str, str]
    again: dict[str, str]


def _offer(user: User, table: Table) -> LoadOffer:
    try:
        source = configured_load({"table": table.full_name}).source
    except InvalidConfigurationError:
        source = None
    dag_id = load_dag(table)
    fields: dict[str, Any] = {"table": table.full_name, "dry_run": False}
    has_days = source is not None and "{{" in source
    if source is not None and has_credentials(source):
        # The load refuses it, and says so.
        source = without_credentials(source)
    elif source is not None and not has_days:
        fields["source"] = source
    known = known_dags([dag_id]).get(dag_id)
    return LoadOffer(
        dag_id,
        source,
        has_days=has_days,
        can_backfill=has_days and known is not None and known.is_periodic,
        may_start=may_start(user, dag_id),
        new=form_query(fields),
        again=form_query({**fields, "reload": True, "mode": "replace"}),
    )


@router.get("/tables/{name}/missing")
def missing(
    request: Request, catalog: OpenCatalog, user: User, name: str, first: str, last: str, where: Filter = ""
) -> Response:
    """Show what some days lack and what failed on them, and offer to load it; the page asks for its part."""
    table = _require_partitions(catalog, name)
    shown = {"first": first, "last": last, "where": where}
    if not is_part(request):
        return render_table(request, user, catalog, table, "picture", "table_missing.html", **shown)
    browsing, expression = catalog.browsing, where.strip() or None
    lacking, problem = explained(lambda: browsing.missing(table.full_name, first, last, expression))
    bad = None
    if problem is None:
        both = " and ".join([*([f"({expression})"] if expression else []), day_range(browsing, table, first, last)])
        bad, problem = explained(lambda: browsing.page(table.full_name, both, only_bad=True, limit=_SHOWN))
    failed = bad.partitions if bad else []
    lacking_days = lacking.days if lacking else []
    failed_days = sorted({day for partition in failed if (day := day_of(table, partition.values))})
    return render_table(
        request,
        user,
        catalog,
        table,
        "picture",
        "table_missing_part.html",
        **shown,
        problem=problem,
        missing=lacking.partitions[:_SHOWN] if lacking else [],
        missing_count=len(lacking.partitions) if lacking else 0,
        lacking_days=lacking_days,
        failed=failed,
        failed_count=bad.sums.partitions if bad else 0,
        failed_days=failed_days,
        most_runs=_RUNS,
        offer=_offer(user, table),
        backfill=_backfill(load_dag(table), lacking_days),
    )


def _backfill(dag_id: str, days: Sequence[date]) -> dict[str, Any]:
    """Return the request to Airflow's API that starts a run for each day between the first and the last.

    Loads of one table exclude each other, so the runs follow each other. A run of a day that has no new files is
    skipped, so days that were run before are run again.
    """
    if not days:
        return {}
    return {
        "dag_id": dag_id,
        "from_date": f"{days[0]}T00:00:00Z",
        "to_date": f"{days[-1]}T23:59:59Z",
        "reprocess_behavior": "completed",
        "max_active_runs": 1,
    }
