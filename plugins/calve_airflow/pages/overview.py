"""The page with an overview of the catalog."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter, Request, Response

from calve_airflow.pages.access import User, may_start
from calve_airflow.pages.airflow_records import latest_result, waiting_questions
from calve_airflow.pages.open_catalog import OpenCatalog, Remembered
from calve_airflow.pages.rendering import render
from calve_airflow.pages.studio import DAG as REBALANCE_DAG
from calve_airflow.pages.table_actions import form_query
from catalog import Catalog
from catalog.advice.proposals import StoredProposal
from catalog.errors import InvalidConfigurationError
from catalog.loading.late_tables import LateTable
from catalog.model import IndexState, Table
from catalog.operations.records import UNFINISHED, OperationKind, OperationState
from catalog.partitions.counting import TableSize
from catalog.settings.own_rules import freshness_rules

router = APIRouter()

SMALL_BYTES = 16 * 1024 * 1024
"""Files below this mean size are small."""

FEW_FILES = 100
"""Fewer files are no problem, whatever their size."""

ADVISOR = "rebalance_advisor"
"""The DAG that proposes changes of partitions."""

CHECKING_DAG, CHECKING_TASK = "catalog_maintenance", "check_catalog"
"""The DAG and its task that compare the catalog with the files."""

_SKEWED = 10.0
_SHOWN = 8
_MOST_PROPOSALS = 100
_DAY_MS = 24 * 60 * 60 * 1000

sizes = Remembered(seconds=15, stale_seconds=300)
"""The sizes of all tables, which pages share: of a million partitions, they take a second."""


_late = Remembered(seconds=60, stale_seconds=600)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Warned:
    """A table whose files or partitions are of uneven or too small sizes."""

    table: Table
    size: TableSize
    reason: str


@dataclass(frozen=True)
class Proposed:
    """A proposal of the advisor, with the addresses of its buttons.

    Attributes:
        form: The query of the form of its DAG.
        studio: The query of the page that changes the partitions of a scheme; None for other changes.
    """

    proposal: StoredProposal
    form: dict[str, str]
    studio: dict[str, str] | None


def table_sizes(catalog: Catalog) -> dict[int, TableSize]:
    """Return the sizes of all tables, as they were a short time ago."""
    return sizes.get("all", catalog.table_sizes)


@router.get("/")
def overview(request: Request, catalog: OpenCatalog, user: User) -> Response:
    """Show totals, what failed, what waits, and what was done today."""
    listed = catalog.list_tables()
    # In the catalog, an Iceberg table has the partitions and indexes of the former Hive table.
    tables = [table for table in listed if not table.is_iceberg]
    measured = table_sizes(catalog)
    known = [measured[table.id] for table in tables if table.id in measured]
    since = int(time.time() * 1000) - _DAY_MS
    running = catalog.operations.list(states=UNFINISHED, limit=_SHOWN)
    failed = catalog.operations.list(
        states=(OperationState.FAILED,), since_ms=since, with_dry_runs=False, with_overcome=False, limit=_SHOWN + 1
    )
    loads = catalog.operations.list(kinds=(OperationKind.ADD_PARTITIONS,), since_ms=since, limit=_SHOWN)
    states = catalog.get_partition_index_states(table.full_name for table in tables)
    found = warnings(tables, measured)
    proposed = catalog.proposals.list(limit=_MOST_PROPOSALS + 1)
    return render(
        request,
        "overview.html",
        active="overview",
        tables=len(listed),
        uncounted=len(listed) - len(tables),
        partitions=sum(size.partitions for size in known),
        rows=sum(size.rows for size in known),
        size_bytes=sum(size.size_bytes for size in known),
        counted_seconds_ago=sizes.age("all"),
        quarantined={table.full_name: measured[table.id].quarantined for table in tables if _is_held(measured, table)},
        failed_indexes=[
            (table, index)
            for table, indexes in states.items()
            for index, state in indexes.items()
            if state is IndexState.FAILED
        ],
        running=running,
        failed=failed[:_SHOWN],
        has_more_failed=len(failed) > _SHOWN,
        loads=loads,
        waiting=waiting_questions(user),
        small=[warned for warned in found if warned.reason == "small files"],
        skewed=[warned for warned in found if warned.reason == "skew"],
        late=_late.get("all", partial(_late_tables, catalog)),
        shown=_SHOWN,
        proposals=[_with_buttons(proposal) for proposal in proposed[:_MOST_PROPOSALS]],
        has_more_proposals=len(proposed) > _MOST_PROPOSALS,
        check=latest_result(user, CHECKING_DAG, CHECKING_TASK),
        checking_dag=CHECKING_DAG,
        may_check=may_start(user, CHECKING_DAG),
        advisor=ADVISOR,
        may_advise=may_start(user, ADVISOR),
    )


def _late_tables(catalog: Catalog) -> list[LateTable]:
    try:
        return catalog.quality.late_tables(freshness_rules())
    except InvalidConfigurationError as error:
        # Each load says so, too.
        log.warning("Tables without new partitions are not shown, because the list of tables is wrong: %s", error)
        return []


def _with_buttons(proposal: StoredProposal) -> Proposed:
    studio = None
    if proposal.dag == REBALANCE_DAG:
        chosen = ", ".join(map(str, proposal.request.get("partition_ids") or ()))
        studio = {"operation": str(proposal.request["operation"]), "partition_ids": chosen}
    return Proposed(proposal, form_query({**proposal.request, "dry_run": True}), studio)


def _is_held(measured: dict[int, TableSize], table: Table) -> bool:
    return table.id in measured and measured[table.id].quarantined > 0


def has_small_files(size: TableSize | None) -> bool:
    """Return whether a table has small files that a compaction would merge: some partitions have several of them."""
    mean = size.mean_file_bytes if size else None
    return size is not None and mean is not None and mean < SMALL_BYTES and size.files > max(size.partitions, FEW_FILES)


def warnings(tables: list[Table], measured: dict[int, TableSize]) -> list[Warned]:
    """Return the tables with many small files or with one partition that is much larger than others."""
    found = []
    for table in tables:
        size = measured.get(table.id)
        if size is None:
            continue
        if has_small_files(size):
            found.append(Warned(table, size, "small files"))
        if (skew := size.skew) is not None and skew >= _SKEWED:
            found.append(Warned(table, size, "skew"))
    return sorted(found, key=lambda warned: -warned.size.files)
