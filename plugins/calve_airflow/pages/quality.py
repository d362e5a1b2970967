"""The page of quality: the latest verdict on each partition, and the release of quarantined ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Form, HTTPException, Request, Response

from calve_airflow.pages.access import User, may_start
from calve_airflow.pages.address_fields import Id
from calve_airflow.pages.open_catalog import OpenCatalog, Remembered
from calve_airflow.pages.overview import sizes
from calve_airflow.pages.rendering import is_part, render
from calve_airflow.pages.table_actions import load_dags
from catalog import Catalog
from catalog.errors import CatalogError, CatalogUnavailableError
from catalog.loading.quality_lists import PROBLEMS, QualityState
from catalog.model import Table
from catalog.model.identifiers import TableName
from catalog.model.partition_names import partition_path

router = APIRouter()

_PAGE = 50
_MOST_RELEASED = 1_000
_STATES: Mapping[str, Sequence[QualityState]] = {
    "problems": PROBLEMS,
    **{str(state): (state,) for state in QualityState},
    "all": tuple(QualityState),
}
"""Choice of the filter → the states that it shows."""

_summaries = Remembered(seconds=15)


@router.get("/quality")
def quality(
    request: Request,
    catalog: OpenCatalog,
    user: User,
    table: str = "",
    state: str = "problems",
    before: Id | None = None,
) -> Response:
    """List partitions with their verdicts."""
    return _listed(request, catalog, user, table=table, state=state, before=before)


@router.get("/quality/tables")
def summaries(request: Request, catalog: OpenCatalog, table: str = "") -> Response:
    """Show how many partitions of each table passed and failed."""
    counted = _summaries.get("all", catalog.quality.summaries)
    rows = [(found, counted[found.id]) for found in _chosen(catalog, table) if found.id in counted]
    # Tables with problems first.
    rows.sort(key=lambda row: (-row[1].quarantined, -row[1].failed, row[0].full_name))
    return render(request, "quality_tables_part.html", rows=rows[:_PAGE], total=len(rows))


@router.post("/quality/release")
def release(
    request: Request,
    catalog: OpenCatalog,
    user: User,
    reason: Annotated[str, Form()] = "",
    partition: Annotated[list[str] | None, Form()] = None,
    table: Annotated[str, Form()] = "",
    state: Annotated[str, Form()] = "problems",
) -> Response:
    """Release quarantined partitions, each given as `database.table:id`, and list again what is left.

    Raises:
        HTTPException: 422; the reason or the partitions are missing. 403; the user may not start a table's load.
    """
    if not reason.strip():
        raise HTTPException(422, "the reason is empty; say why these partitions may be read although they failed")
    chosen = _by_table(partition or ())
    _require_load(user, chosen)
    released, problems = _release(catalog, chosen, reason.strip(), user.get_name())
    for remembered in (_summaries, sizes):
        remembered.forget()
    return _listed(request, catalog, user, table=table, state=state, released=released, problems=problems)


def _by_table(partitions: Iterable[str]) -> dict[str, set[int]]:
    """Return table → ids of what the page sends.

    Raises:
        HTTPException: 422; it is nothing, too much, or not what the page sends.
        InvalidIdentifierError: A name is not valid.
    """
    chosen: dict[str, set[int]] = defaultdict(set)
    for text in partitions:
        name, _, number = text.rpartition(":")
        if not name or not number.isascii() or not number.isdigit() or len(number) > 18:
            raise HTTPException(422, f"partition is {text!r}; it is written as database.table:id")
        # Only the catalog's own spelling names the DAG that the right depends on.
        chosen[str(TableName.parse(name))].add(int(number))
    count = sum(map(len, chosen.values()))
    if not 0 < count <= _MOST_RELEASED:
        raise HTTPException(422, f"{count:,} partitions are chosen; choose 1 to {_MOST_RELEASED:,}")
    return chosen


def _require_load(user: User, tables: Iterable[str]) -> None:
    for name, dag_id in load_dags(tables).items():
        if not may_start(user, dag_id):
            raise HTTPException(
                403, f"you may not release partitions of {name}: that needs the right to start runs of the DAG {dag_id}"
            )


def _release(
    catalog: Catalog, chosen: Mapping[str, set[int]], reason: str, user_name: str
) -> tuple[dict[str, int], dict[str, str]]:
    """Release partitions table by table; return table → their number, and table → why it failed."""
    released, problems = {}, {}
    for name, ids in chosen.items():
        try:
            released[name] = catalog.release_partitions(name, ids=ids, reason=reason, requested_by=user_name)
        except CatalogUnavailableError:
            raise
        except CatalogError as error:
            problems[name] = str(error)
    return released, problems


def _chosen(catalog: Catalog, text: str) -> list[Table]:
    wanted = text.strip().lower()
    return [found for found in catalog.list_tables() if wanted in found.full_name]


def _listed(
    request: Request,
    catalog: Catalog,
    user: User,
    *,
    table: str,
    state: str,
    before: int | None = None,
    released: Mapping[str, int] | None = None,
    problems: Mapping[str, str] | None = None,
) -> Response:
    state = state if state in _STATES else "problems"
    tables = {found.id: found for found in _chosen(catalog, table)}
    ids = list(tables) if table.strip() else None
    listed = catalog.quality.list_partitions(_STATES[state], table_ids=ids, before=before, limit=_PAGE + 1)
    shown = [checked for checked in listed[:_PAGE] if checked.table_id in tables]
    names = {tables[checked.table_id].full_name for checked in shown if checked.state is QualityState.QUARANTINED}
    samples = catalog.quality.samples([checked.id for checked in shown if checked.failures])
    sampled = {tables[checked.table_id].full_name for checked in shown if checked.id in samples}
    may_load = {name: may_start(user, dag_id) for name, dag_id in load_dags(names | sampled).items()}
    may_release = {name: may_load[name] for name in names}
    return render(
        request,
        "quality_part.html" if is_part(request) else "quality.html",
        active="quality",
        rows=[
            (tables[checked.table_id], partition_path(tables[checked.table_id].key_names, checked.values), checked)
            for checked in shown
        ],
        may_release=may_release,
        # Rows are for those who may load the table.
        samples={
            checked.id: {sample.check: sample for sample in samples[checked.id]}
            for checked in shown
            if checked.id in samples and may_load[tables[checked.table_id].full_name]
        },
        hidden_samples={name for name in sampled if not may_load[name]},
        next_before=listed[_PAGE - 1].id if len(listed) > _PAGE else None,
        table=table,
        state=state,
        states=list(_STATES),
        released=released or {},
        problems=problems or {},
    )
