"""The page that explains, while one types, how a filter of partitions is answered."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from calve_airflow.pages.access import User, may_start
from calve_airflow.pages.fields import Filter
from calve_airflow.pages.open_catalog import OpenCatalog, Remembered
from calve_airflow.pages.overview import table_sizes
from calve_airflow.pages.rendering import DATA_HEADERS, is_part, render
from calve_airflow.pages.table_pages import render_table
from catalog import Catalog
from catalog.errors import ExpressionError
from catalog.model import MAXIMUM_INDEXES, IndexState, Table

router = APIRouter()

BUILD_DAG = "build_partition_index"
"""The DAG that builds a proposed index."""

_SHOWN = 100
_TOKEN = re.compile(r"\w+|'[^']*'?|\S")
_values = Remembered(seconds=30)


@dataclass(frozen=True)
class Misplaced:
    """An error of an expression, with the place that it is about.

    Attributes:
        before, at, after: The parts of the expression around the place; `at` is empty at the end.
    """

    message: str
    before: str
    at: str
    after: str

    @classmethod
    def of(cls, error: ExpressionError) -> Misplaced:
        """Return the error of an expression for its reader, who sees the expression."""
        message = str(error).rpartition(" in expression: ")[0]
        text = error.expression
        if error.position is None:
            return cls(message, text, "", "")
        token = _TOKEN.match(text, error.position)
        end = token.end() if token else error.position
        return cls(message, text[: error.position], text[error.position : end], text[end:])


@router.get("/tables/{name}/explain")
def explain(request: Request, catalog: OpenCatalog, user: User, name: str, where: Filter = "") -> Response:
    """Show which index answers a filter, what is read, what is found, and which index would be better."""
    table = catalog.get_table(name)
    is_served = bool(table.partition_keys) and not table.is_iceberg
    size = table_sizes(catalog).get(table.id)
    total = 0 if size is None else size.partitions + size.quarantined
    answer = _answer(catalog, table, where, total) if is_served else {"problem": None, "preview": None}
    shown: dict[str, Any] = {
        "where": where,
        "total": total,
        "is_served": is_served,
        "typed_keys": [{"name": key.name, "type": str(key.type)} for key in table.partition_keys],
        "build_dag": BUILD_DAG,
        "may_build": may_start(user, BUILD_DAG),
        **answer,
    }
    if is_part(request):
        return render(request, "explain_part.html", table=table, **shown)
    return render_table(request, user, catalog, table, "explain", "explain.html", **shown)


def _answer(catalog: Catalog, table: Table, where: str, total: int) -> dict[str, object]:
    try:
        preview = catalog.previews.search(table.full_name, where, shown=_SHOWN)
        proposal = catalog.previews.better_index(table.full_name, where, partition_count=total)
    except ExpressionError as error:
        return {"problem": Misplaced.of(error), "preview": None}
    indexes = catalog.get_partition_indexes(table.full_name)
    count = sum(index.state is not IndexState.FAILED for index in indexes)
    return {
        "problem": None,
        "preview": preview,
        "proposal": proposal,
        "has_all_indexes": count >= MAXIMUM_INDEXES,
        "building": [index for index in indexes if index.state is IndexState.CREATING],
    }


@router.get("/tables/{name}/explain/values")
def values(catalog: OpenCatalog, name: str, key: str, prefix: str = "") -> Response:
    """Return values of a partition key that begin with a text, as literals of the filter language."""
    found = _values.get((name, key, prefix), lambda: catalog.previews.values(name, key, prefix))
    return JSONResponse(found, headers=DATA_HEADERS)
