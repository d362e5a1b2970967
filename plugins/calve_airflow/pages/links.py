"""Links from tasks in Airflow's UI to Calve's pages.

Airflow's API server asks for them when somebody opens a task, so they are there while the task runs. They are offered
for all operators of an installation; other operators than Calve's have none.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode, urlsplit

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink

from calve_airflow.pages.mounting import NAVIGATION

_OPERATORS = "calve_airflow."
_QUALITY_CHECK = "CheckQualityOperator"


def page_in_airflow(path: str, **fields: str) -> str:
    """Return the address of a page inside Airflow's UI, such as `/plugin/calve/calve/tables`.

    Args:
        path: The page's path under that of the pages.
        fields: Its query.
    """
    base = urlsplit(conf.get("api", "base_url", fallback="/") or "/").path.rstrip("/")
    return f"{base}{NAVIGATION}{path}{'?' if fields else ''}{urlencode(fields)}"


def _of_class(operator: Any, name: str) -> str:
    """Return an attribute of an operator as Airflow stores it; mapped ones store it with their class."""
    mapped = getattr(operator, "operator_class", None)
    value = mapped.get(name) if isinstance(mapped, dict) else getattr(operator, name, None)
    return str(value or "")


class OperationLink(BaseOperatorLink):
    """The page of the operation, or operations, of a task's run."""

    @property
    def name(self) -> str:
        """The link's title."""
        return "Calve operation"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the page's address; empty for operators that are not Calve's."""
        if not _of_class(operator, "_task_module").startswith(_OPERATORS):
            return ""
        return page_in_airflow("/operation", dag_id=ti_key.dag_id, run_id=ti_key.run_id)


class QualityLink(BaseOperatorLink):
    """The verdicts of the partitions of a table, for the task that checks them."""

    @property
    def name(self) -> str:
        """The link's title."""
        return "Calve quality"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the page's address, with the table that the run has loaded; empty for tasks that check nothing."""
        is_calves = _of_class(operator, "_task_module").startswith(_OPERATORS)
        if not is_calves or _of_class(operator, "task_type") != _QUALITY_CHECK:
            return ""
        from calve_airflow.pages.open_catalog import find_operation
        from catalog.errors import CatalogError

        try:
            operation = find_operation(f"{ti_key.dag_id}/{ti_key.run_id}")
        except CatalogError:
            operation = None
        return page_in_airflow("/quality", **({"table": operation.table} if operation else {}))
