"""Base class of the last task of a run over many tables, which reports the outcomes and fails if one failed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.exceptions import AirflowFailException

from calve_airflow.batches import FAILED_ITEMS
from calve_airflow.catalog_access import open_catalog

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog


_WIDEST = 60
_MOST_FAILURES = 50


@dataclass(frozen=True)
class Outcome:
    """The outcome of one item of a run, such as a table or an index.

    Attributes:
        row: Column name → cell of the reported table.
        failure: Why the item failed, and what to do; None if it succeeded.
    """

    row: Mapping[str, Any]
    failure: str | None = None


class SummaryOperator(BaseOperator):
    """Task that logs the outcomes as a Markdown table and returns its rows; fails if one failed.

    It is the last task of a run, with the trigger rule `all_done`, so that its state becomes the run's.

    Args:
        planned: What the first task planned (templated); None if it failed.
    """

    template_fields: Sequence[str] = ("operation_id", "planned")

    def __init__(self, *, operation_id: str, planned: Any, **kwargs: Any) -> None:
        super().__init__(trigger_rule="all_done", **kwargs)
        self.operation_id = operation_id
        self.planned = planned

    @abstractmethod
    def outcomes(self, context: Context, catalog: Catalog) -> list[Outcome]:
        """Return the outcome of each planned item."""

    def execute(self, context: Context) -> None:
        """Log the outcomes."""
        from catalog.errors.base import first_of

        if self.planned is None:
            raise AirflowFailException("nothing was planned, so nothing was done; see the log of `plan`")
        with open_catalog() as catalog:
            outcomes = self.outcomes(context, catalog)
        for line in markdown_table([outcome.row for outcome in outcomes]):
            self.log.info("%s", line)
        # Pushed explicitly, because a failed task has no return value, and users need its rows most.
        rows = [dict(outcome.row) for outcome in outcomes]
        context["ti"].xcom_push(key=BaseXCom.XCOM_RETURN_KEY, value=rows)
        failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
        # Also items whose outcome does not tell it, because they failed before their operation or job began.
        failures = failures or self._failed_items(context)
        if failures:
            named = first_of(failures, _MOST_FAILURES, separator="; ")
            raise AirflowFailException(f"{len(failures)} of {len(outcomes)} failed: {named}")

    def _failed_items(self, context: Context) -> list[str]:
        """Return the items of the tasks before this one that failed, with the reasons."""
        if not self.upstream_task_ids:
            return []
        pulled = context["ti"].xcom_pull(sorted(self.upstream_task_ids), key=FAILED_ITEMS)
        return [failure for failures in pulled for failure in failures or ()]


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table; the first row determines the column names."""
    if not rows:
        return ["There was nothing to do."]
    names = list(rows[0])
    cells = [["" if cell is None else str(cell).replace("|", "\\|") for cell in row.values()] for row in rows]
    # Columns are aligned for readers of the log; longer cells extend beyond `_WIDEST`.
    widths = [min(_WIDEST, max(map(len, column))) for column in zip(names, *cells, strict=True)]
    lines = [names, ["-" * width for width in widths], *cells]
    return [f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines]
