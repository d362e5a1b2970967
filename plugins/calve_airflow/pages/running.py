"""The page that starts a run of one of Calve's DAGs, with its form filled in.

Airflow's own form cannot be opened with values. This one shows the same fields, and starts the run through Airflow's
API, which checks the values and the user's access.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response

from calve_airflow.pages.access import User, may_start, require_read
from calve_airflow.pages.airflow_records import find_form
from calve_airflow.pages.rendering import form_text, render

router = APIRouter()


@router.get("/run/{dag_id}")
def form(request: Request, user: User, dag_id: str) -> Response:
    """Show the form of a DAG; the query has values of its fields, and perhaps the `logical_date` of the run.

    Raises:
        HTTPException: 403; the user may not see the DAG. 404; there is no such DAG.
    """
    require_read(user, dag_id)
    found = find_form(dag_id)
    if found is None:
        raise HTTPException(404, f"there is no DAG {dag_id}; Airflow has not read it yet, or its file has errors")
    texts = {name: request.query_params.getlist(name) for name in request.query_params}
    # Pages with a list to tick send each ticked value.
    given = {name: values[0] if len(values) == 1 else json.dumps(values) for name, values in texts.items()}
    return render(
        request,
        "run.html",
        active=None,
        dag_id=dag_id,
        fields=[field_of(name, schema, given) for name, schema in found.fields.items()],
        logical_date=request.query_params.get("logical_date", ""),
        may_start=may_start(user, dag_id),
        is_paused=found.is_paused,
    )


def field_of(name: str, schema: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return what the template needs for a field.

    Args:
        name: The field's name.
        schema: Its JSON schema, with `value` and `description`.
        given: Values from the page's address, as text; JSON for fields that are not texts.
    """
    types = schema.get("type") or "string"
    types = [types] if isinstance(types, str) else list(types)
    kinds = [kind for kind in types if kind != "null"]
    kind = "enum" if schema.get("enum") else kinds[0] if kinds else "string"
    value = schema.get("value")
    if name in given:
        value = _parsed(given[name], kind)
    text = form_text(value)
    return {
        "name": name,
        "title": schema.get("title") or name,
        "description": schema.get("description") or "",
        "kind": kind,
        "is_optional": "null" in types,
        "choices": schema.get("enum") or (),
        "value": value,
        "text": text,
        # A field of one line drops line breaks, and hides the end of what a link has filled in.
        "has_lines": kind in ("array", "object") or schema.get("format") == "multiline" or "\n" in text,
        "section": schema.get("section"),
        "is_given": name in given,
    }


def _parsed(text: str, kind: str) -> Any:
    if kind == "string":
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return [line for line in text.splitlines() if line] if kind == "array" and not isinstance(value, list) else value
